r"""When something of one client arrives at another: cross-correlation of residuals.

What a model leaves of a client's states (r, scaled to unit covariance) is compared with what was
new in another client l steps before (u: what its own past leaves of its states, likewise):

$$n_l\,\lVert \overline{r_m(t)\,u_n(t-l)^\top} \rVert_F^2 \sim \chi^2(p_m p_n)$$

where nothing more arrives than the model knows of, or compared with what it is on copies with
shifted clocks (residuals that keep some rhythm of their own make it larger). The last lag at which
it is larger than that allows is how far back a cause has to be looked at; a dead time of six steps
is seen although one lag would not show it.

Both are bounded first: a row longer than `BOUND` of normal ones has that length. In recordings with
bursts one event of each client, ten lags apart by chance, otherwise makes up most of the sum.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from scipy import stats

from fedgranger.inference.calibrate import calibrate
from fedgranger.inference.shifts import StateTable, room
from fedgranger.linalg.runs import run_on

__all__ = [
    "Whitened",
    "arrival_p_values",
    "arrivals",
    "choose_cause_lags",
    "late_arrivals",
    "whiten",
]

LEVEL = 0.01
"""Chance, over all pairs and lags together, that a lag is seen where nothing arrives."""
BOUND = 0.99
"""Rows longer than this share of normal ones would be are shortened to it."""
BOUNDING_STEPS = 5
SHARE_OF_ROWS = 0.2
"""An equation has at most this many coefficients per row."""


class Whitened(NamedTuple):
    """Own residuals of all clients on their own clocks.

    Attributes:
        values: (time, P), zero where there is none.
        bounded: the same with long rows shortened.
        known: (time, client).
        covs: covariance of each client's residuals before they were scaled.
    """

    values: np.ndarray
    bounded: np.ndarray
    known: np.ndarray
    covs: tuple[np.ndarray, ...]


def whiten(table: StateTable, own_lags: np.ndarray) -> Whitened:
    """Take out of every client's states what its own past says, and scale what is left."""
    source = table.source
    values = room((len(table.starts), source.total_dim))
    none = np.zeros(len(source.dims), dtype=np.int64)
    run = run_on(none, table.observed, table.starts)
    known = run > own_lags
    offsets = np.concatenate([[0], np.cumsum(source.dims)])
    for m, order in enumerate(own_lags):
        states = table.states[:, offsets[m] : offsets[m + 1]]
        rows = np.flatnonzero(known[:, m])
        if len(rows) <= 2 * (1 + order * states.shape[1]):
            known[:, m] = False
            continue
        lagged = [states[rows - k] for k in range(1, order + 1)]
        X = np.concatenate([np.ones((len(rows), 1)), *lagged], axis=1)
        Q = np.asarray(scipy.linalg.qr(X, mode="economic", check_finite=False)[0])
        error = states[rows] - Q @ (Q.T @ states[rows])
        values[rows, offsets[m] : offsets[m + 1]] = error
    count = np.maximum(known.sum(axis=0), 1)
    parts = (values[:, a:b] for a, b in itertools.pairwise(offsets))
    covs = tuple(part.T @ part / n for part, n in zip(parts, count, strict=True))
    values = _unit(values, known, offsets)
    return Whitened(values, _bounded(values, known, offsets), known, covs)


def arrivals(
    residuals: np.ndarray,
    whitened: Whitened,
    dims: tuple[int, ...],
    largest: int,
    shifts: np.ndarray | None = None,
) -> np.ndarray:
    """The sum of squares per degree of freedom, (lag, effect, cause), l = 1, 2, … steps later.

    Args:
        residuals: (time, P), what a model leaves of the effects; zero where there is none.
        whitened: own residuals of the causes.
        dims: states per client.
        largest: the largest lag.
        shifts: turn each cause's clock first, as was done for the residuals.
    """
    T = len(residuals)
    u, known = whitened.bounded[:T], whitened.known[:T]
    offsets = np.concatenate([[0], np.cumsum(dims)])
    if shifts is not None:
        pieces = zip(itertools.pairwise(offsets), shifts, strict=True)
        u = np.concatenate([np.roll(u[:, a:b], s, axis=0) for (a, b), s in pieces], axis=1)
        known = np.stack([np.roll(known[:, m], s) for m, s in enumerate(shifts)], axis=1)
    there = np.add.reduceat(residuals**2, offsets[:-1], axis=1) > 0
    whole = _bounded(_unit(residuals, there, offsets), there, offsets)
    seen, here = known.astype(np.float64), there.astype(np.float64)
    out = np.empty((largest, len(dims), len(dims)))
    for lag in range(1, largest + 1):
        products = whole[lag:].T @ u[:-lag]
        energy = np.add.reduceat(products**2, offsets[:-1], axis=0)
        energy = np.add.reduceat(energy, offsets[:-1], axis=1)
        out[lag - 1] = energy / np.maximum(here[lag:].T @ seen[:-lag], 1.0)
    return out / np.outer(dims, dims)


def arrival_p_values(
    found: np.ndarray, dims: tuple[int, ...], copies: np.ndarray | None = None
) -> np.ndarray:
    """P-values (lag, effect, cause) that nothing of the cause arrives.

    Args:
        found: `arrivals` of the data.
        dims: states per client.
        copies: (copy, lag, effect, cause), those of shifted copies. The first lag, which is in the
            regression, has a law of its own; all others have one together.
    """
    df = np.outer(dims, dims).astype(np.float64)
    if copies is None:
        return stats.chi2.sf(found * df, df)
    p = np.ones_like(found)
    for part in (slice(0, 1), slice(1, None)):
        null = copies[:, part].reshape(-1, *df.shape)
        for m in range(len(dims) if len(null) else 0):  # all pairs at once need too much memory
            law = calibrate(np.ones((1, len(dims))), df[[m]], null[:, [m]]).law
            p[part, m] = [law.tail(one[[m]])[0] for one in found[part]]
    p[:, np.arange(len(dims)), np.arange(len(dims))] = 1.0
    return np.where(np.isnan(p), 1.0, p)


def _unit(values: np.ndarray, there: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Turn and scale every client's columns to unit covariance."""
    parts = []
    for m, (a, b) in enumerate(itertools.pairwise(offsets)):
        part = values[:, a:b]
        spread, basis = np.linalg.eigh(part.T @ part / max(int(there[:, m].sum()), 1))
        floor = max(1e-12 * spread[-1], np.finfo(np.float64).tiny)
        parts.append(part @ basis / np.sqrt(np.maximum(spread, floor)))
    return np.concatenate(parts, axis=1)


def _bounded(values: np.ndarray, there: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Shorten long rows of every client and scale to unit covariance, again and again.

    One row can make up most of a direction's scatter; only when it is shortened others show.
    """
    longest = [np.sqrt(stats.chi2.ppf(BOUND, b - a)) for a, b in itertools.pairwise(offsets)]
    for _ in range(BOUNDING_STEPS):
        length = np.sqrt(np.add.reduceat(values**2, offsets[:-1], axis=1))
        shorter = longest / np.maximum(length, longest)
        values = _unit(values * np.repeat(shorter, np.diff(offsets), axis=1), there, offsets)
    return values


def late_arrivals(
    p_values: np.ndarray, names: tuple[str, ...], first_lag: int
) -> list[dict[str, Any]]:
    """Pairs between which something arrives, each with its clearest lag; plain values.

    Args:
        p_values: (lag, effect, cause), from `first_lag` on.
        names: the clients.
        first_lag: the lag of the first table.
    """
    M = len(names)
    level = LEVEL / max(p_values.shape[0] * M * (M - 1), 1)
    out = []
    for m, n in itertools.permutations(range(M), 2):
        lag = int(p_values[:, m, n].argmin()) if len(p_values) else 0
        if len(p_values) and p_values[lag, m, n] < level:
            p = float(p_values[lag, m, n])
            steps = first_lag + lag
            out.append({"cause": names[n], "effect": names[m], "steps": steps, "p_value": p})
    return sorted(out, key=lambda one: one["p_value"])


def choose_cause_lags(p_values: np.ndarray, dims: tuple[int, ...], num_rows: int) -> np.ndarray:
    """K per pair: the last lag at which something arrives, at least 1, as the rows allow.

    Args:
        p_values: (lag, effect, cause), from lag 2 on.
        dims: states per client.
        num_rows: of an equation.
    """
    later, M, _ = p_values.shape
    seen = p_values < LEVEL / max(later * M * (M - 1), 1)
    lags = np.where(seen, np.arange(2, later + 2)[:, None, None], 1).max(axis=0, initial=1)
    width = np.array(dims)
    for m in range(M):
        others = np.arange(M) != m
        while (width * (lags[m] + 1))[others].sum() > SHARE_OF_ROWS * num_rows:
            if lags[m][others].max() == 1:
                break
            lags[m] = np.maximum(np.minimum(lags[m], lags[m][others].max() - 1), 1)
    return lags
