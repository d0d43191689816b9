r"""When something of one client arrives at another: cross-correlation of residuals.

What a model leaves of a client's states (r, scaled to unit covariance) is compared with what was
new in another client l steps before (u: what its own past leaves of its states, likewise):

$$n_l\,\lVert \overline{r_m(t)\,u_n(t-l)^\top} \rVert_F^2 \sim \chi^2(p_m p_n)$$

where nothing more arrives than the model knows of, or compared with what it is on copies with
shifted clocks (residuals that keep some rhythm of their own make it larger). The last lag at which
it is larger than that allows is the largest lag at which the cause is tested; a dead time of six
steps is found although one lag would not show it.

Both are bounded first (`whitening`): otherwise one event of each client, ten lags apart by chance,
makes up most of the sum.
"""

from __future__ import annotations

import itertools

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from fedgranger.inference.calibrate import calibrate
from fedgranger.inference.whitening import STEPS_AT_ONCE, Whitened, bounded
from fedgranger.linalg.blocks import client_slices
from fedgranger.tested_facts import LateArrival

LEVEL = 0.01
"""Chance, over all pairs and lags together, that a lag is found where nothing arrives."""
SHARE_OF_ROWS = 0.2
"""An equation has at most this many coefficients per row."""


def arrivals(
    residuals: Float[np.ndarray, "time state"],
    whitened: Whitened,
    dims: tuple[int, ...],
    largest: int,
    shifts: Int[np.ndarray, " client"] | None = None,
) -> Float[np.ndarray, "lag effect cause"]:
    """The sum of squares per degree of freedom, l = 1, 2, … `largest` steps later.

    Args:
        residuals: what a model leaves of the effects; zero where there is none. They are scaled in
            place: a copy of a million rows would cost too much.
        whitened: own residuals of the causes.
        dims: states per client.
        largest: the largest lag.
        shifts: shift each cause's clock first, as was done for the residuals.
    """
    T, M, slices = len(residuals), len(dims), client_slices(dims)
    shifts = np.zeros(M, dtype=np.int64) if shifts is None else shifts
    there = np.zeros((T, M), dtype=np.bool_)
    for m, own in enumerate(slices):
        there[:, m] = (residuals[:, own] != 0).any(axis=1)
        residuals[there[:, m], own] = bounded(residuals[there[:, m], own])
    products, count = np.zeros((largest, sum(dims), sum(dims))), np.zeros((largest, M, M))
    for start in range(0, T, STEPS_AT_ONCE):
        stop = min(start + STEPS_AT_ONCE, T)
        time = np.arange(max(start - largest, 0), stop)
        places = [(time - shift) % T for shift in shifts]
        clocks = list(zip(places, slices, strict=True))
        u = np.concatenate([whitened.bounded[place, own] for place, own in clocks], axis=1)
        known = np.stack([whitened.known[place, m] for m, place in enumerate(places)], axis=1)
        for lag in range(1, largest + 1):
            now = slice(max(start, lag), stop)
            before = slice(now.start - lag - time[0], max(stop - lag - time[0], 0))
            products[lag - 1] += residuals[now].T @ u[before]
            count[lag - 1] += there[now].astype(np.float64).T @ known[before]
    firsts = [own.start for own in slices]
    energy = np.add.reduceat(np.add.reduceat(products**2, firsts, axis=1), firsts, axis=2)
    return energy / np.maximum(count, 1.0) / np.outer(dims, dims)


def arrival_p_values(
    found: Float[np.ndarray, "lag effect cause"],
    dims: tuple[int, ...],
    copies: Float[np.ndarray, "copy lag effect cause"] | None = None,
) -> Float[np.ndarray, "lag effect cause"]:
    """P-values that nothing of the cause arrives, given `arrivals` of the data.

    With those of shifted `copies` the first lag, which is in the regression, has a law of its own;
    all others have one together.
    """
    df = np.outer(dims, dims).astype(np.float64)
    if copies is None:
        return stats.chi2.sf(found * df, df)
    p = np.ones_like(found)
    for part in (slice(0, 1), slice(1, None)):
        null = copies[:, part].reshape(-1, *df.shape)
        for m in range(len(dims) if len(null) else 0):  # all pairs at once need too much memory
            law = calibrate(np.ones((1, len(dims))), df[[m]], null[:, [m]], is_pooled=False).law
            p[part, m] = [law.tail(one[[m]])[0] for one in found[part]]
    p[:, np.arange(len(dims)), np.arange(len(dims))] = 1.0
    return np.where(np.isnan(p), 1.0, p)


def late_arrivals(
    p_values: Float[np.ndarray, "lag effect cause"], names: tuple[str, ...], first_lag: int
) -> list[LateArrival]:
    """Pairs between which something arrives, each with its clearest lag; plain values."""
    if not len(p_values):
        return []
    M, out = len(names), []
    for m, n in itertools.permutations(range(M), 2):
        lag = int(p_values[:, m, n].argmin())
        p, steps = float(p_values[lag, m, n]), first_lag + lag
        if p < LEVEL / (len(p_values) * M * (M - 1)):
            out.append(LateArrival(cause=names[n], effect=names[m], steps=steps, p_value=p))
    return sorted(out, key=lambda one: one.p_value)


def choose_cause_lags(
    p_values: Float[np.ndarray, "lag effect cause"], dims: tuple[int, ...], num_rows: int
) -> Int[np.ndarray, "effect cause"]:
    """K per pair: the last lag at which something arrives, at least 1, as an equation's rows allow.

    The p-values are from lag 2 on.
    """
    later, M, _ = p_values.shape
    arrives = p_values < LEVEL / max(later * M * (M - 1), 1)
    lags = np.where(arrives, np.arange(2, later + 2)[:, None, None], 1).max(axis=0, initial=1)
    width = np.array(dims)
    for m in range(M):
        others = np.arange(M) != m
        while (width * (lags[m] + 1))[others].sum() > SHARE_OF_ROWS * num_rows:
            if lags[m][others].max() == 1:
                break
            lags[m] = np.maximum(np.minimum(lags[m], lags[m][others].max() - 1), 1)
    return lags
