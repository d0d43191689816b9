r"""Lagged states of every client as orthonormal columns, window by window.

Lags of a slow state are nearly the same column. Each client's own, turned into orthonormal ones,

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

from fedgranger.errors import InferenceError
from fedgranger.inference.states import StateSource
from fedgranger.linalg.stretches import run_on
from fedgranger.linalg.triangle import triangle

__all__ = ["LagBasis", "LagWindow", "lag_bases", "lag_windows"]

DEPENDENT = 1e-9
"""A column that the ones before it explain up to this share of its size is left out."""
WINDOW_VALUES = 600_000
"""States times lags that are held at once: more do not fit a cache, with fewer two cores wait
for each other."""
LEAST_STEPS = 256


class LagBasis(NamedTuple):
    """The lagged states of one client.

    Attributes:
        client: whose.
        first: place of its first state among all.
        own_lags: lags of its own equation.
        depth: D.
        lag: (column,), lag of every column that is kept; 0 is the constant, the first one.
        state: (column,), its place among all states; of no meaning for the constant.
        gone: lags of the columns that are left out.
        turn: (1 + D p, column), T.
        back: (column, column), R.
        prediction: (column of own lags, p), what the own past says of the present.
        spread: (p, p), the present less that has the sum of squares `spread.T @ spread`.
    """

    client: int
    first: int
    own_lags: int
    depth: int
    lag: np.ndarray
    state: np.ndarray
    gone: np.ndarray
    turn: np.ndarray
    back: np.ndarray
    prediction: np.ndarray
    spread: np.ndarray

    def columns_until(self, lag: int) -> int:
        """Columns of the constant and the first lags."""
        return int((self.lag <= lag).sum())

    def columns(self, window: LagWindow) -> np.ndarray:
        """The orthonormal columns of a window's steps."""
        return _lagged(window, self.client, self.depth) @ self.turn

    def news(self, window: LagWindow, columns: np.ndarray) -> np.ndarray:
        """What the own past leaves of the present, scaled to a unit sum of squares."""
        rest = window.present(self.client) - columns[:, : len(self.prediction)] @ self.prediction
        return scipy.linalg.solve_triangular(self.spread, rest.T, trans=1, check_finite=False).T


class LagWindow(NamedTuple):
    """A stretch of time with the steps before it.

    Attributes:
        states: (history + time, P), zero where missing.
        run: (1 + time, client), unbroken observed steps that end there, from one step before.
        history: number of steps that come before.
        first: position in time of the first step after them.
        owner: (P,), client of every state.
    """

    states: np.ndarray
    run: np.ndarray
    history: int
    first: int
    owner: np.ndarray

    def present(self, client: int) -> np.ndarray:
        """(time, p), the states of one client."""
        return self.states[self.history :, self.owner == client]


def lag_windows(source: StateSource, depth: int) -> Iterator[LagWindow]:
    """Read the source once, every window with the steps before it."""
    owner = source.owner
    steps = max(LEAST_STEPS, WINDOW_VALUES // max(depth * source.total_dim, 1))
    states = np.zeros((depth, source.total_dim))
    last, time = np.zeros((1, len(source.dims)), dtype=np.int64), 0
    for chunk in source.chunks():
        for start in range(0, len(chunk.starts), steps):
            part = slice(start, start + steps)
            observed = chunk.observed[part]
            new = np.where(observed[:, owner], chunk.states[part], 0.0)
            states = np.concatenate([states, new])
            run = np.concatenate([last, run_on(last[0], observed, chunk.starts[part])])
            yield LagWindow(states, run, depth, time, owner)
            states, last, time = states[len(states) - depth :], run[-1:], time + len(new)


def _lagged(window: LagWindow, client: int, depth: int) -> np.ndarray:
    """[1, s(t−1), …, s(t−D)] of one client, (time, 1 + D p)."""
    states = window.states[:, window.owner == client]
    stop = len(states)
    steps = [states[window.history - k : stop - k] for k in range(1, depth + 1)]
    return np.concatenate([np.ones((stop - window.history, 1)), *steps], axis=1)


def lag_bases(source: StateSource, own_lags: np.ndarray, depths: np.ndarray) -> list[LagBasis]:
    """Bases of all clients, each over the time steps at which its own past is there.

    A present that is missing counts as zero: any prediction and scale of it would do, these are
    good ones as long as that is rare.

    Args:
        source: the states.
        own_lags: (client,), lags of the own past.
        depths: (client,), largest lag that is needed, at least the own ones.

    Raises:
        InferenceError: there are too few rows.
    """
    clients = range(len(source.dims))
    triangles = [np.zeros((0, 1 + (depths[m] + 1) * source.dims[m])) for m in clients]
    for window in lag_windows(source, int(depths.max())):
        for m in clients:
            rows = window.run[:-1, m] >= depths[m]
            new = np.concatenate([_lagged(window, m, depths[m]), window.present(m)], axis=1)[rows]
            triangles[m] = triangle(np.concatenate([triangles[m], new]))
    return [_basis(source, m, triangles[m], int(own_lags[m]), int(depths[m])) for m in clients]


def _basis(source: StateSource, client: int, R: np.ndarray, own: int, depth: int) -> LagBasis:
    p = source.dims[client]
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
    turn = np.zeros((q, c))
    turn[keep] = scipy.linalg.solve_triangular(R[:c, :c], np.eye(c), check_finite=False)
    own_columns = int((lag[keep] <= own).sum())
    spread = triangle(R[own_columns:, c:])
    still = np.abs(np.diag(spread)) <= DEPENDENT * np.sqrt((R[:, c:] ** 2).sum(axis=0))
    spread[still, still] = 1.0  # nothing is left of it to be scaled
    return LagBasis(
        client,
        int(np.argmax(source.owner == client)),
        own,
        depth,
        lag[keep],
        state[keep],
        lag[~keep],
        turn,
        R[:c, :c],
        R[:own_columns, c:],
        spread,
    )
