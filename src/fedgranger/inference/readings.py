r"""Test of the readings: does another client's past help to predict a client beyond its own past?

For every effect m, by least squares over all time steps at which everything is there,

$$s_m(t{+}1) = c + \sum_{l=1}^{L_m} B_l\, s_m(t{+}1{-}l)
  + \sum_{n \ne m} \sum_{l=1}^{K_{mn}+1} A_{mn,l}\, s_n(t{+}1{-}l) + e(t{+}1)$$

with the client's *own* lags first (L_m of its own choice) and one lag more of every cause than is
tested: with it the test is valid for series with unit roots too (lag augmentation). The covariance
of the A's is the HC3 sandwich, their test W/k ~ F(k, n − q). No noise is taken out of the states:
where sensors are noisy, a link through a third client can look direct.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.linalg

from fedgranger.errors import InferenceError
from fedgranger.inference.states import StateSource
from fedgranger.linalg.runs import run_on

__all__ = ["Readings", "regress"]

DEPENDENT = 1e-9
"""A column that the ones before it explain up to this share of its size is left out."""
SMALLEST_FREEDOM = 1e-3
"""One minus leverage is not taken smaller: a row that fits itself says nothing."""


class Block(NamedTuple):
    """Coefficients of one cause in one effect's equations, those that could be told apart.

    Attributes:
        lag: (column,), lag of each column, from 1.
        state: (column,), the cause's state of each column.
        coefficients: (p_effect, column).
        cov: of the coefficients in row-major order.
    """

    lag: np.ndarray
    state: np.ndarray
    coefficients: np.ndarray
    cov: np.ndarray


class Readings(NamedTuple):
    """The regressions of all clients.

    Attributes:
        transition: (P, L P), coefficients at all lags that any equation has, zero elsewhere.
        std_error: the same shape, NaN where there is no coefficient.
        lags: L.
        blocks: tested coefficients, by (effect, cause).
        num_rows: rows of each effect's regression.
        num_columns: columns of it.
        residual_covs: covariance of the residuals of each effect, (p_effect, p_effect).
        dependent: pairs (effect, cause) in which states of the cause were left out, because they
            are linear combinations of what the equation has already.
        residuals: (time, P), zero where there is none; None unless asked for.
    """

    transition: np.ndarray
    std_error: np.ndarray
    lags: int
    blocks: dict[tuple[int, int], Block]
    num_rows: np.ndarray
    num_columns: np.ndarray
    residual_covs: tuple[np.ndarray, ...]
    dependent: frozenset[tuple[int, int]]
    residuals: np.ndarray | None = None

    def statistic(self, effect: int, cause: int) -> tuple[float, int]:
        """W/k and k of a pair; NaN where its covariance is not regular."""
        block = self.blocks[effect, cause]
        return _wald(block.coefficients.reshape(-1), block.cov)

    def delay(self, effect: int, cause: int) -> int:
        """The lag at which most of the influence arrives: the largest Wald statistic of one lag."""
        block = self.blocks[effect, cause]
        p = len(block.coefficients)
        best = (-1.0, 0)
        for lag in np.unique(block.lag):
            columns = np.flatnonzero(block.lag == lag)
            where = (np.arange(p)[:, None] * len(block.lag) + columns).reshape(-1)
            size, k = _wald(
                block.coefficients[:, columns].reshape(-1), block.cov[np.ix_(where, where)]
            )
            best = max(best, (size * k if np.isfinite(size) else 0.0, int(lag)), key=lambda b: b[0])
        return best[1]


def _wald(a: np.ndarray, V: np.ndarray) -> tuple[float, int]:
    k = len(a)
    scale = np.sqrt(np.diag(V))
    if k == 0 or not (scale > 0).all() or not np.isfinite(V).all():
        return np.nan, k
    values, vectors = np.linalg.eigh(V / np.outer(scale, scale))
    if values[0] <= k * np.finfo(np.float64).eps * values[-1]:
        return np.nan, k
    return float(((vectors.T @ (a / scale)) ** 2 / values).sum() / k), k


def regress(
    source: StateSource,
    own_lags: np.ndarray,
    cause_lags: np.ndarray,
    residuals: np.ndarray | None = None,
) -> Readings:
    """Regress every client on its own past and the others'; reads the source twice.

    Args:
        source: the states.
        own_lags: (client,), L_m.
        cause_lags: (effect, cause), K_mn, the lags that are tested.
        residuals: (time, P) of zeros, filled in when given.

    Raises:
        InferenceError: there are too few rows.
    """
    clients = range(len(source.dims))
    equations = [_Equation(source, m, int(own_lags[m]), cause_lags[m]) for m in clients]
    depth = max(equation.depth for equation in equations)
    for window in _windows(source, depth):
        for equation in equations:
            equation.collect(window)
    for equation in equations:
        equation.solve()
    for window in _windows(source, depth):
        for equation in equations:
            equation.spread(window, residuals)
    P, lags = source.total_dim, depth
    transition = np.zeros((P, lags * P))
    std_error = np.full(transition.shape, np.nan)
    blocks: dict[tuple[int, int], Block] = {}
    for equation in equations:
        lagged = equation.lag > 0
        columns = (equation.lag[lagged] - 1) * P + equation.state[lagged]
        where = np.ix_(np.flatnonzero(source.owner == equation.effect), columns)
        transition[where] = equation.coefficients[:, lagged]
        std_error[where] = np.sqrt(equation.squares[:, lagged])
        blocks |= {(equation.effect, n): equation.block(n) for n in equation.tested}
    return Readings(
        transition,
        std_error,
        lags,
        blocks,
        np.array([equation.num_rows for equation in equations]),
        np.array([len(equation.lag) for equation in equations]),
        tuple(equation.residual_cov for equation in equations),
        frozenset((equation.effect, n) for equation in equations for n in equation.dependent),
        residuals,
    )


class _Window(NamedTuple):
    """A stretch of time with the steps before it.

    Attributes:
        states: (history + time, P).
        run: (history + time, client), unbroken observed steps that end there.
        history: number of steps that come before.
        first: position in time of the first row.
    """

    states: np.ndarray
    run: np.ndarray
    history: int
    first: int


def _windows(source: StateSource, depth: int) -> Iterator[_Window]:
    states = np.zeros((0, source.total_dim))
    run, time = np.zeros((0, len(source.dims)), dtype=np.int64), 0
    for chunk in source.chunks():
        history = len(states)
        states = np.concatenate([states, chunk.states])
        last = run[-1] if history else np.zeros(len(source.dims), dtype=np.int64)
        run = np.concatenate([run, run_on(last, chunk.observed, chunk.starts)])
        yield _Window(states, run, history, time - history)
        states, run, time = states[-depth:], run[-depth:], time + len(chunk.starts)


class _Equation:
    """One effect's regression, fed window by window.

    The columns are the constant (lag 0), own lags, then every cause's with one lag more. After
    `solve` those that depend on the ones before them are gone.
    """

    def __init__(self, source: StateSource, effect: int, own: int, causes: np.ndarray) -> None:
        self.effect, self._owner, self._causes = effect, source.owner, causes
        self._own = own
        others = [n for n in range(len(source.dims)) if n != effect]
        depths = {effect: own} | {n: int(causes[n]) + 1 for n in others}
        self._need = np.array([depths[n] for n in range(len(source.dims))])
        self.depth = int(self._need.max())
        places = {n: np.flatnonzero(source.owner == n) for n in depths}
        self.lag = np.concatenate(
            [[0], *(np.repeat(np.arange(1, d + 1), len(places[n])) for n, d in depths.items())]
        )
        self.state = np.concatenate([[0], *(np.tile(places[n], d) for n, d in depths.items())])
        self.tested = {n: np.zeros(0, dtype=np.int64) for n in others}
        self.num_rows = 0
        self._targets = places[effect]
        self._triangle = np.zeros((0, len(self.lag) + len(self._targets)))

    def _design(self, window: _Window) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Design, target and rows at which the own past and the causes' past are there."""
        run = window.run
        before = np.concatenate([np.zeros_like(run[:1]), run[:-1]])
        need = self._need.copy()
        need[self.effect] = 0
        ready = np.all(before >= need, axis=1) & (run[:, self.effect] > self._own)
        ready[: window.history] = False
        rows = np.flatnonzero(ready)
        X = window.states[rows[:, None] - self.lag, self.state]
        X[:, self.lag == 0] = 1.0
        return X, window.states[np.ix_(rows, self._targets)], rows

    def collect(self, window: _Window) -> None:
        """Add a window to the triangle R of [X Y] = QR."""
        X, Y, _ = self._design(window)
        self.num_rows += len(X)
        stacked = np.concatenate([self._triangle, np.concatenate([X, Y], axis=1)])
        self._triangle = np.asarray(scipy.linalg.qr(stacked, mode="r", check_finite=False)[0])
        self._triangle = self._triangle[: stacked.shape[1]]

    def solve(self) -> None:
        """Coefficients by back substitution, without columns that depend on earlier ones."""
        q, R = len(self.lag), self._triangle
        if len(R) < q + len(self._targets):
            raise InferenceError(
                f"{self.num_rows} rows for {q} coefficients per equation; give more data, fewer "
                "states or fewer lags"
            )
        size = np.sqrt((R[:, :q] ** 2).sum(axis=0))
        keep = np.abs(np.diag(R)[:q]) > DEPENDENT * size
        gone = ~keep & (self.lag > 0)
        self.dependent = set(self._owner[self.state[gone]].tolist()) - {self.effect}
        self.lag, self.state = self.lag[keep], self.state[keep]
        R = np.asarray(scipy.linalg.qr(R[:, np.concatenate([keep, [True] * (R.shape[1] - q)])],
                                       mode="r", check_finite=False)[0])  # fmt: skip
        q = len(self.lag)
        self._inverse = scipy.linalg.solve_triangular(R[:q, :q], np.eye(q), check_finite=False)
        self.coefficients = (self._inverse @ R[:q, q:]).T
        self.residual_cov = R[q:, q:].T @ R[q:, q:] / max(self.num_rows - q, 1)
        owner = self._owner[self.state]
        for n in self.tested:
            self.tested[n] = np.flatnonzero(
                (owner == n) & (self.lag > 0) & (self.lag <= self._causes[n])
            )
        p = len(self._targets)
        self.squares = np.zeros((p, q))
        self._covs = {n: np.zeros(2 * (p * len(at),)) for n, at in self.tested.items()}

    def spread(self, window: _Window, residuals: np.ndarray | None) -> None:
        """Add a window to the HC3 covariances, and note its residuals."""
        X, Y, rows = self._design(window)
        Q = X @ self._inverse
        freedom = np.maximum(1 - (Q**2).sum(axis=1), SMALLEST_FREEDOM)
        error = Y - X @ self.coefficients.T
        if residuals is not None:
            residuals[np.ix_(window.first + rows, self._targets)] = error
        error /= freedom[:, None]
        Z = Q @ self._inverse.T
        self.squares += (error**2).T @ Z**2
        for n, at in self.tested.items():
            scores = (error[:, :, None] * Z[:, None, at]).reshape(len(X), -1)
            self._covs[n] += scores.T @ scores

    def block(self, cause: int) -> Block:
        """The tested coefficients of one cause."""
        at = self.tested[cause]
        first = int(np.argmax(self._owner == cause))
        return Block(
            self.lag[at], self.state[at] - first, self.coefficients[:, at], self._covs[cause]
        )
