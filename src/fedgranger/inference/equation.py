"""One effect's regression on its own past and the others', fed chunk by chunk."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Bool, Float, Int

from fedgranger.errors import InferenceError
from fedgranger.inference.lag_bases import LagBasis
from fedgranger.inference.lag_columns import ColumnChunk
from fedgranger.linalg.blocks import block_diagonal, client_slices
from fedgranger.linalg.psd import factor_of, inverse_form

DEPENDENT = 1e-6
"""A column is left out when other clients explain what its own client's earlier lags leave of it up
to this share."""
SMALLEST_CHANGE = 1e-10
"""Smaller changes of own leverages, relative to them, are not made."""
SMALLEST_FREEDOM = 1e-3
"""One minus leverage is not taken smaller: a row that fits itself has no information."""

Residuals = Float[np.ndarray, "time state"] | None
"""Of all equations at all time steps, where they are wanted."""


class Block(NamedTuple):
    """Coefficients of one cause in one effect's equations, those that are identified.

    Attributes:
        lag: of each column, from 1.
        state: the cause's state of each column.
        cov: of the coefficients in row-major order.
    """

    lag: Int[np.ndarray, " column"]
    state: Int[np.ndarray, " column"]
    coefficients: Float[np.ndarray, "effect_state column"]
    cov: Float[np.ndarray, "entry entry"]

    def statistic(self) -> tuple[float, int]:
        """W/k and k; NaN where the covariance is not regular."""
        a, k = self.coefficients.reshape(-1), self.coefficients.size
        return inverse_form(a, self.cov, k * np.finfo(np.float64).eps) / max(k, 1), k

    def at_lag(self, lag: int) -> Block:
        """The columns of one lag."""
        p, q = self.coefficients.shape
        at = np.flatnonzero(self.lag == lag)
        cov = self.cov.reshape(p, q, p, q)[:, at][..., at].reshape(2 * (p * len(at),))
        return Block(self.lag[at], self.state[at], self.coefficients[:, at], cov)


class RowSums(NamedTuple):
    """Number of rows, XᵀX and XᵀY of some of an equation's rows."""

    num_rows: int
    products: Float[np.ndarray, "column column"]
    with_innovations: Float[np.ndarray, "column effect_state"]

    def plus(self, other: RowSums) -> RowSums:
        """The sums of both."""
        return RowSums._make(a + b for a, b in zip(self, other, strict=True))


class Equation:
    """One effect's regression, fed chunk by chunk.

    The columns are the constant (lag 0), own lags, then every cause's with one lag more, all in
    the clients' bases; what is regressed are the effect's innovations, which its own past does not
    predict.
    After `solve`, `constant` is c; `lag` and `state` are those of the plain columns, without the
    ones that depend on others before them; `tested` are the coefficients of every cause by (effect,
    cause), `augmented` those of the lag after them. `add_covariance` fills in their covariances.
    """

    def __init__(
        self, bases: Sequence[LagBasis], effect: int, causes: Int[np.ndarray, " client"]
    ) -> None:
        own, others = bases[effect], [basis for basis in bases if basis.client != effect]
        self.effect, self._causes, self._basis = effect, causes, own
        self._need = np.array([0 if b is own else causes[b.client] + 1 for b in bases])
        self._parts = [(own, slice(0, len(own.prediction)))]
        self._parts += [(b, slice(1, b.columns_until(int(self._need[b.client])))) for b in others]
        self.lag = np.concatenate([b.lag[part] for b, part in self._parts])
        self.state = np.concatenate([b.state[part] for b, part in self._parts])
        self._widths = [len(b.lag[part]) for b, part in self._parts]
        self._owner = np.repeat([b.client for b, _ in self._parts], self._widths)
        # without the constant, columns of a basis are centred: by the constant's part of them
        means = [(b is not own) * b.factor[0, part] / b.factor[0, 0] for b, part in self._parts]
        self._means = np.concatenate(means)
        self._factor = block_diagonal([b.factor[part, part] for b, part in self._parts])
        self.dependent = {
            b.client for b in others if (b.dropped_lags <= self._need[b.client]).any()
        }
        self.tested: dict[tuple[int, int], Block] = {}
        self.augmented: dict[tuple[int, int], Block] = {}
        self.num_rows = self.num_unresolved = 0
        q, p = len(self.lag), len(own.innovation_factor)
        self._products, self._with_innovations = np.zeros((q, q)), np.zeros((q, p))
        self._products[: self._widths[0], : self._widths[0]] = own.products
        self._known_rows = 0

    def _ready(self, chunk: ColumnChunk) -> Bool[np.ndarray, " time"]:
        """Rows at which everything is there."""
        ready = np.all(chunk.past >= self._need, axis=1)
        return ready & (chunk.now[:, self.effect] > self._basis.own_lags)

    def _design(
        self, chunk: ColumnChunk, rows: Int[np.ndarray, " row"]
    ) -> tuple[Float[np.ndarray, "row _"], ...]:
        """Own columns, those of the causes, and innovations."""
        taken = slice(None) if len(rows) == len(chunk.now) else rows
        own, *causes = (chunk.columns[basis.client][taken, part] for basis, part in self._parts)
        return own, np.concatenate(causes, axis=1), chunk.innovations[self.effect][taken]

    def collect(self, chunk: ColumnChunk) -> None:
        """Add a chunk to XᵀX and XᵀY.

        The own columns' products are known but for the rows that other clients take away or that
        lack only lags which the own equation does not have.
        """
        q = self._widths[0]
        ready, known = self._ready(chunk), chunk.past[:, self.effect] >= self._basis.depth
        rows = np.flatnonzero(ready)
        self.num_rows += len(rows)
        self._known_rows += int(known.sum())
        for sign, changed in ((-1, known & ~ready), (1, ready & ~known)):
            part = chunk.columns[self.effect][changed, :q]
            self._products[:q, :q] += sign * (part.T @ part)
        O, Z, Y = self._design(chunk, rows)
        across = O.T @ Z
        self._products[:q, q:] += across
        self._products[q:, :q] += across.T
        self._products[q:, q:] += Z.T @ Z
        self._with_innovations[:q] += O.T @ Y
        self._with_innovations[q:] += Z.T @ Y

    def sums(self, chunk: ColumnChunk, taken: Bool[np.ndarray, " time"]) -> RowSums:
        """Of the rows of a chunk that are taken and at which everything is there."""
        rows = np.flatnonzero(self._ready(chunk) & taken)
        own, causes, Y = self._design(chunk, rows)
        X = np.concatenate([own, causes], axis=1)
        return RowSums(len(rows), X.T @ X, X.T @ Y)

    def without(self, rows: RowSums) -> Equation:
        """An equation, not solved yet, that has not collected these rows."""
        other = copy.copy(self)
        other.num_rows = self.num_rows - rows.num_rows
        other._products = self._products - rows.products
        other._with_innovations = self._with_innovations - rows.with_innovations
        other.dependent, other.tested, other.augmented = set(self.dependent), {}, {}
        return other

    def solve(self) -> None:
        """Coefficients of the plain columns, without those that depend on earlier ones."""
        basis, q, p = self._basis, len(self.lag), len(self._basis.innovation_factor)
        if self.num_rows < q + p:
            raise InferenceError(
                f"{self.num_rows} rows for {q} coefficients per equation; give more data, fewer "
                "states or fewer lags"
            )
        if self._known_rows != basis.num_rows:
            raise RuntimeError("the columns belong to other data")
        factor, keep = factor_of(self._products, DEPENDENT)
        self.dependent |= set(self._owner[~keep].tolist()) - {self.effect}
        kept_factor = self._factor[:, keep]
        R = np.asarray(scipy.linalg.qr(factor @ kept_factor, mode="r", check_finite=False)[0])
        q = int(keep.sum())
        self._inverse = scipy.linalg.solve_triangular(R[:q], np.eye(q), check_finite=False)
        self._orthonormal = kept_factor @ self._inverse
        self.coefficients = self._coefficients(keep).T
        self.lag, self.state, owner = self.lag[keep], self.state[keep], self._owner[keep]
        self.constant = self.coefficients @ ((self.lag == 0) - self._means[keep])
        # R⁻¹ is upper triangular, so clients need only the columns up to theirs, or from theirs on
        self._kept = client_slices([int(keep[part].sum()) for part in client_slices(self._widths)])
        C = self._orthonormal[: self._widths[0], self._kept[0]]
        size, vectors = np.linalg.eigh(C @ C.T - np.eye(len(C)))
        changed = np.abs(size) > SMALLEST_CHANGE
        self._own_change = size[changed], vectors[:, changed]
        self.squares = np.zeros((p, q))
        self.residual_cov = np.zeros((p, p))
        self._scored: list[tuple[Block, np.ndarray, int, bool]] = []
        for (cause, _), kept in zip(self._parts[1:], self._kept[1:], strict=True):
            n = cause.client
            for is_later, blocks in ((False, self.tested), (True, self.augmented)):
                at = np.flatnonzero((owner == n) & ((self.lag > self._causes[n]) == is_later))
                lag, state, cov = self.lag[at], self.state[at], np.zeros(2 * (p * len(at),))
                block = Block(lag, state - cause.first, self.coefficients[:, at], cov)
                blocks[self.effect, n] = block
                self._scored.append((block, at, kept.start, is_later))

    def _coefficients(
        self, keep: Bool[np.ndarray, " column"]
    ) -> Float[np.ndarray, "_ effect_state"]:
        """Of the plain columns that are kept, (column, p); notes what residuals need."""
        basis = self._basis
        fitted = self._orthonormal.T @ self._with_innovations
        self._slopes = self._orthonormal @ fitted
        coefficients = np.zeros((len(keep), len(basis.innovation_factor)))
        coefficients[keep] = self._inverse @ fitted @ basis.innovation_factor
        own = len(basis.prediction)
        by_own_past = scipy.linalg.solve_triangular(
            basis.factor[:own, :own], basis.prediction, check_finite=False
        )
        coefficients[:own] += by_own_past
        dropped = np.flatnonzero(~keep[:own])
        if len(dropped):  # their part of the prediction goes to the columns that are kept
            moved = self._products @ self._factor[:, dropped] @ by_own_past[dropped]
            coefficients[keep] += self._inverse @ self._orthonormal.T @ moved
        return coefficients[keep]

    def _note(
        self,
        error: Float[np.ndarray, "row effect_state"],
        time: Int[np.ndarray, " row"],
        residuals: Residuals,
    ) -> None:
        """Residuals at some time steps, and their covariance."""
        if residuals is not None:
            residuals[time, self._basis.first : self._basis.first + error.shape[1]] = error
        self.residual_cov += error.T @ error / max(self.num_rows - len(self.lag), 1)

    def add_covariance(
        self, chunk: ColumnChunk, residuals: Residuals, *, with_errors: bool
    ) -> None:
        """Add a chunk to the HC3 covariances, and note its residuals."""
        rows = np.flatnonzero(self._ready(chunk))
        if not len(rows):
            return
        O, Z, Y = self._design(chunk, rows)
        first, *others = self._kept
        Q = np.empty((len(rows), len(self.lag) - first.stop))
        start = self._widths[0]
        for stop, columns in zip(np.cumsum(self._widths[1:]), others, strict=True):
            from_causes = self._orthonormal[start : start + stop, columns]
            out = Q[:, columns.start - first.stop : columns.stop - first.stop]
            np.matmul(Z[:, :stop], from_causes, out=out)
            out += O @ self._orthonormal[:start, columns]
        # ‖O C‖² by row: O is nearly orthonormal over the rows used, so CCᵀ − I has a low rank
        size, vectors = self._own_change
        own_leverage = np.einsum("ti,ti->t", O, O) + (O @ vectors) ** 2 @ size
        freedom = np.maximum(1 - (own_leverage + np.einsum("ti,ti->t", Q, Q)), SMALLEST_FREEDOM)
        error = Y - O @ self._slopes[:start] - Z @ self._slopes[start:]
        error = error @ self._basis.innovation_factor
        self._note(error, chunk.first + rows, residuals)
        error /= freedom[:, None]
        if with_errors:
            both = np.concatenate([O, Z], axis=1)
            self.squares += (error**2).T @ (both @ self._orthonormal @ self._inverse.T) ** 2
        for block, at, begin, is_later in self._scored:
            if residuals is None and is_later:
                continue
            Z = Q[:, begin - first.stop :] @ self._inverse[at, begin:].T
            scores = (error[:, :, None] * Z[:, None, :]).reshape(len(Q), -1)
            block.cov[:] += scores.T @ scores
