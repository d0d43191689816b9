r"""Lagged states of every client as orthonormal columns, chunk by chunk.

Lags of a slow state are nearly the same column. Each client's own, made orthonormal,

$$[\,1,\; s_n(t{-}1), \dots, s_n(t{-}D)\,]\, T_n, \qquad T_n = R_n^{-1},$$

are so well conditioned that sums of their products can be used instead of a QR decomposition of the
whole design, and shifting clocks hardly changes that: the bases of the data serve all its copies.
T is upper triangular, so its first columns are the basis of fewer lags.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float, Int

from fedgranger.errors import InferenceError
from fedgranger.inference.states import StateChunk, StateSource
from fedgranger.linalg.psd import triangle
from fedgranger.linalg.unbroken_steps import unbroken_steps

DEPENDENT = 1e-9
"""A column that the ones before it explain up to this share of its size is left out."""
CHUNK_VALUES = 600_000
"""States times lags that are held at once: more do not fit a cache, with fewer two cores wait
for each other."""
LEAST_STEPS = 256


class LagBasis(NamedTuple):
    """The lagged states of one client.

    Attributes:
        first: place of its first state among all.
        own_lags: lags of its own equation.
        depth: D.
        lag: of every column that is kept; 0 is the constant, the first one.
        state: its place among all states; of no meaning for the constant.
        dropped_lags: lags of the columns that are left out.
        inverse_factor: (1 + D p, column), T = R⁻¹: from lagged states to orthonormal columns.
        factor: R.
        prediction: (column of own lags, p), the orthonormal columns' coefficients for the present.
        innovation_factor: F; the innovations have the sum of squares FᵀF.
        num_rows: time steps at which the past is there up to lag D, whatever other clients do.
        products: (column of own lags, same), the columns' products over these time steps; the same
            on every copy with other clocks.
    """

    client: int
    first: int
    own_lags: int
    depth: int
    lag: Int[np.ndarray, " column"]
    state: Int[np.ndarray, " column"]
    dropped_lags: Int[np.ndarray, " _"]
    inverse_factor: Float[np.ndarray, "_ column"]
    factor: Float[np.ndarray, "column column"]
    prediction: Float[np.ndarray, "_ client_state"]
    innovation_factor: Float[np.ndarray, "client_state client_state"]
    num_rows: int
    products: Float[np.ndarray, "_ _"]

    def columns_until(self, lag: int) -> int:
        """Columns of the constant and the first lags."""
        return int((self.lag <= lag).sum())

    def columns(self, chunk: LagChunk) -> Float[np.ndarray, "time column"]:
        """The orthonormal columns of a chunk's steps."""
        return _lagged(chunk, self.client, self.depth) @ self.inverse_factor

    def innovations(
        self, chunk: LagChunk, columns: Float[np.ndarray, "time column"]
    ) -> Float[np.ndarray, "time client_state"]:
        """What the own past does not predict of the present, scaled to a unit sum of squares."""
        rest = chunk.present(self.client) - columns[:, : len(self.prediction)] @ self.prediction
        return scipy.linalg.solve_triangular(
            self.innovation_factor, rest.T, trans=1, check_finite=False
        ).T


class LagChunk(NamedTuple):
    """A stretch of time with the steps before it.

    Attributes:
        states: (history + time, P), zero where missing.
        unbroken: (1 + time, client), number of unbroken observed steps that end there, from one
            step before.
        history: number of steps that come before.
        first: position in time of the first step after them.
        owner: (P,), client of every state.
    """

    states: Float[np.ndarray, "_ state"]
    unbroken: Int[np.ndarray, "_ client"]
    history: int
    first: int
    owner: Int[np.ndarray, " state"]

    def present(self, client: int) -> Float[np.ndarray, "time client_state"]:
        """(time, p), the states of one client."""
        return self.states[self.history :, self.owner == client]


def steps_at_once(depth: int, total_dim: int) -> int:
    """Time steps whose lags are held at once."""
    return max(LEAST_STEPS, CHUNK_VALUES // max(depth * total_dim, 1))


def lag_chunks(source: StateSource, depth: int) -> Iterator[LagChunk]:
    """Read the source once, every chunk with the steps before it."""
    owner = source.owner
    steps = steps_at_once(depth, source.total_dim)
    states = np.zeros((depth, source.total_dim))
    last, time = np.zeros((1, len(source.dims)), dtype=np.int64), 0
    if source.before is not None:
        states, last = _with_lengths(source.before(depth), owner, last, slice(None))
        last = last[-1:]
    for whole in source.chunks():
        for start in range(0, len(whole.starts), steps):
            new, lengths = _with_lengths(whole, owner, last, slice(start, start + steps))
            states, unbroken = np.concatenate([states, new]), np.concatenate([last, lengths])
            yield LagChunk(states, unbroken, depth, time, owner)
            states, last, time = states[len(states) - depth :], unbroken[-1:], time + len(new)


def _with_lengths(
    chunk: StateChunk,
    owner: Int[np.ndarray, " state"],
    last: Int[np.ndarray, "_ client"],
    part: slice,
) -> tuple[Float[np.ndarray, "time state"], Int[np.ndarray, "time client"]]:
    """States, zero where missing, and unbroken steps that end at each step."""
    observed = chunk.observed[part]
    starts = chunk.starts if chunk.own_starts is None else chunk.own_starts
    states = np.where(observed[:, owner], chunk.states[part], 0.0)
    return states, unbroken_steps(last[0], observed, starts[part])


def _lagged(chunk: LagChunk, client: int, depth: int) -> Float[np.ndarray, "time _"]:
    """[1, s(t−1), …, s(t−D)] of one client, (time, 1 + D p)."""
    states = chunk.states[:, chunk.owner == client]
    stop = len(states)
    steps = [states[chunk.history - k : stop - k] for k in range(1, depth + 1)]
    return np.concatenate([np.ones((stop - chunk.history, 1)), *steps], axis=1)


def lag_bases(source: StateSource, depths: Int[np.ndarray, " client"]) -> list[LagBasis]:
    """Bases of all clients, each over the time steps at which its own past is there.

    A present that is missing counts as zero: any prediction and scale of it would do, these are
    good ones as long as that is rare. `depths` are the largest lags that are needed, at least the
    own ones.

    Raises:
        InferenceError: there are too few rows.
    """
    clients = range(len(source.dims))
    triangles = [np.zeros((0, 1 + (depths[m] + 1) * source.dims[m])) for m in clients]
    for chunk in lag_chunks(source, int(depths.max())):
        for m in clients:
            rows = chunk.unbroken[:-1, m] >= depths[m]
            new = np.concatenate([_lagged(chunk, m, int(depths[m])), chunk.present(m)], axis=1)
            triangles[m] = triangle(np.concatenate([triangles[m], new[rows]]))
    bases = [_basis(source, m, triangles[m], int(depths[m])) for m in clients]
    num_rows = [0 for _ in clients]
    for chunk in lag_chunks(source, int(depths.max())):
        for m, basis in enumerate(bases):
            rows = chunk.unbroken[:-1, m] >= depths[m]
            own = basis.columns(chunk)[rows, : len(basis.prediction)]
            basis.products[:] += own.T @ own
            num_rows[m] += len(own)
    return [basis._replace(num_rows=count) for basis, count in zip(bases, num_rows, strict=True)]


def _basis(source: StateSource, client: int, R: Float[np.ndarray, "_ _"], depth: int) -> LagBasis:
    p, own = source.dims[client], source.own_lags[client]
    q = 1 + depth * p
    if len(R) < q + p:
        raise InferenceError(
            f"{len(R)} rows for {q} coefficients per equation; give more data, fewer states or "
            "fewer lags"
        )
    lag = np.concatenate([[0], np.repeat(np.arange(1, depth + 1), p)])
    state = np.concatenate([[0], np.tile(np.flatnonzero(source.owner == client), depth)])
    keep = np.abs(np.diag(R)[:q]) > DEPENDENT * np.sqrt((R[:, :q] ** 2).sum(axis=0))
    R = triangle(R[:, np.concatenate([keep, np.ones(p, dtype=np.bool_)])])
    c = int(keep.sum())
    inverse_factor = np.zeros((q, c))
    inverse_factor[keep] = scipy.linalg.solve_triangular(R[:c, :c], np.eye(c), check_finite=False)
    own_columns = int((lag[keep] <= own).sum())
    innovation_factor = triangle(R[own_columns:, c:])
    still = np.abs(np.diag(innovation_factor)) <= DEPENDENT * np.sqrt((R[:, c:] ** 2).sum(axis=0))
    innovation_factor[still, still] = 1.0  # nothing is left of it to be scaled
    return LagBasis(
        client,
        int(np.argmax(source.owner == client)),
        own,
        depth,
        lag[keep],
        state[keep],
        lag[~keep],
        inverse_factor,
        R[:c, :c],
        R[:own_columns, c:],
        innovation_factor,
        0,
        np.zeros((own_columns, own_columns)),
    )
