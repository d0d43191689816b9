r"""The noise that is taken out of the states' moments: E of every client, and what it added, N.

N is known exactly and always taken out. The two questions below are about E alone; the states hold
both.

**Does E agree with the lags?** A client's E comes from its sensors at one time step (or from the
user). The states from step to step say something about it too (`lag_moments`): J asks whether any
white E fits them, D whether the clients' own does. Where some E fits but not theirs, sensor noise
is part of the dynamics (a controller acts on the reading), a declared R is wrong, or a client had
no way to know it (a single sensor). The E that the lags show is then used for all clients, its
negative directions set to zero (they show E + N, so N is taken off first):

$$\min_{A, E} g^\top S^{-1} g, \qquad
  g = (\Gamma_1 - A(\Gamma_0 - E),\; \Gamma_2 - A\,\Gamma_1)$$

**Does E fit the joint spectrum?** Each client has limited its own E to what its own spectrum
allows. Together the states may be more predictable than each client's alone, so once more the
largest common share c with \(S(\omega) - c\,\mathrm{blockdiag}(E_1, \dots, E_M) \succeq 0\) is
used, unless sampling error explains it (`linalg.noise_floor`; where noise was added, what
\(S(\omega) - N\) has room for). The corrected moments are then those
of a process, and the estimate of order one has no root outside the unit circle.

Where a user declared the noise and both speak against it, it is used all the same, with a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import scipy.linalg

from fedgranger.errors import InferenceError
from fedgranger.inference.lag_moments import LagMomentCheck, lag_moment_check
from fedgranger.inference.state_moments import accumulate, weighted_mean
from fedgranger.inference.states import StateSource, centred_steps, complete_rows
from fedgranger.linalg.noise_floor import (
    LagMoments,
    NoiseFloor,
    is_clearly_below,
    noise_floor,
    order_for,
)

MOST_LAG_STATES = 16
"""With more states the lag moments are too many to be weighted by their own covariance."""
DOUBTFUL = 1e-3
"""J below this: no white measurement error fits."""
CONTRADICTED = 1e-6
"""D below this: the clients' own does not. D is oversized in short records (4.7e-4 was seen on data
of the model at T = 600); where it matters it is far smaller (below 1e-30 in control loops)."""
MUCH_LESS = 0.5
"""Less of a declared E than this share in the lags speaks against it."""


class NoiseChoice(NamedTuple):
    """The states with the noise to use.

    Attributes:
        source: the states, with the clients' own E or with the lags'.
        is_possible: some white measurement error fits the first two lags.
        shares: E of the lags relative to the client's own, by client (None: it had none);
            empty where the own E is used.
        warning: a sentence where it is not; else empty.
    """

    source: StateSource
    is_possible: bool = True
    shares: Mapping[str, float | None] = {}
    warning: str = ""


def choose_noise(source: StateSource) -> NoiseChoice:
    """The clients' own E unless the lags contradict it; too many states are not tried."""
    if source.total_dim > MOST_LAG_STATES:
        return NoiseChoice(source)
    try:
        check = lag_moment_check(source)
    except InferenceError:
        return NoiseChoice(source)
    if check.p_value < DOUBTFUL:
        return NoiseChoice(source, is_possible=False)
    if check.own_p_value >= CONTRADICTED:
        return NoiseChoice(source)
    covs = tuple(map(_nonnegative, _shown_by_lags(source, check), check.state_covs))
    pairs = zip(source.names, source.error_covs, covs, strict=True)
    shares = {name: _share(own, shown) for name, own, shown in pairs}
    by_client = ", ".join(
        f"'{name}' had none" if share is None else f"'{name}' {share:.2g} times its own"
        for name, share in shares.items()
    )
    return NoiseChoice(
        source._replace(error_covs=covs, declared=()),
        True,
        shares,
        "the clients' own estimate of their measurement noise does not agree with how their states "
        "go from step to step (a controller that acts on the readings, a wrong R or too few "
        "sensors may be why); the noise that the first two lags show was taken out instead: "
        f"{by_client}",
    )


def _shown_by_lags(source: StateSource, check: LagMomentCheck) -> tuple[np.ndarray, ...]:
    """E as the lags show it, without what clients added to their states."""
    if not source.is_noise_added:
        return check.error_covs
    pairs = zip(check.error_covs, source.added_covs, strict=True)
    return tuple(both - N for both, N in pairs)


def _nonnegative(E: np.ndarray, state_cov: np.ndarray) -> np.ndarray:
    """E without the directions in which it is negative, in any coordinates the same ones."""
    values, vectors = scipy.linalg.eigh(E, state_cov)
    rotated = state_cov @ vectors
    return (rotated * np.maximum(values, 0.0)) @ rotated.T


def _share(own: np.ndarray, shown: np.ndarray) -> float | None:
    """tr(own⁻¹ shown)/p, which does not depend on the state's coordinates."""
    if not own.any():
        return None
    return float(np.trace(np.linalg.pinv(own, hermitian=True) @ shown) / len(own))


def joint_noise_floor(source: StateSource) -> NoiseFloor:
    """Share of all clients' E that the spectrum of all states allows.

    Only unbroken stretches at which no client is missing count; where there are too few of them,
    or the states are collinear, nothing contradicts E and the share is 1.
    """
    if not source.sensor_cov.any():
        return NoiseFloor(1.0, 1.0, 1.0)
    source = complete_rows(source)
    lags = order_for(source.num_steps, source.total_dim)
    while lags > 0:
        if source.weighting == "none" and _allows_all(source, lags):
            break
        found = accumulate(source, lags)
        if order_for(found.effective_pairs, source.total_dim) >= lags:
            moments = LagMoments(
                found.before_cov, found.lag_cov, found.after_cov, found.effective_pairs
            )
            added_cov = source.added_cov if source.is_noise_added else None
            return noise_floor(moments, source.sensor_cov, added_cov)
        lags -= 1
    return NoiseFloor(1.0, 1.0, 1.0)


def _allows_all(source: StateSource, lags: int) -> bool:
    """Whether nothing contradicts E, from sums that are quick to make: so it is nearly always."""
    moments = window_moments(source, lags)
    enough = order_for(moments.num_windows, source.total_dim) >= lags
    return enough and is_clearly_below(moments, source.error_cov)


def window_moments(source: StateSource, lags: int) -> LagMoments:
    """What `accumulate` has of complete steps with equal weights, up to rounding.

    Windows move on by one step, so the blocks of E[x xᵀ] repeat along its diagonals, but for the
    first and the last window of every stretch.
    """
    P, back = source.total_dim, np.arange(lags + 1)
    top, change, count = np.zeros((P, (lags + 1) * P)), np.zeros((lags * P, lags * P)), 0
    for states, _, segments, _ in centred_steps(source, lags, weighted_mean(source)):
        whole = segments[lags:] == segments[:-lags]
        newest = states[lags:] * whole[:, None]
        parts = [newest.T @ states[lags - k : len(states) - k] for k in back]
        top += np.concatenate(parts, axis=1)
        begins, ends = np.flatnonzero(np.diff(whole, prepend=False, append=False)).reshape(-1, 2).T
        first, last = (
            states[(lags + at)[:, None] - steps].reshape(len(at), lags * P)
            for at, steps in ((begins, back[1:]), (ends - 1, back[:-1]))
        )
        change += first.T @ first - last.T @ last
        count += int(whole.sum())
    before, row = np.empty_like(change), top
    for k in range(0, lags * P, P):
        row = row[:, :-P] + change[k : k + P, k:]
        before[k : k + P, k:], before[k:, k : k + P] = row, row.T
    num = max(count, 1)
    return LagMoments(before / num, top[:, P:] / num, top[:, :P] / num, count)


def limit_errors(source: StateSource, share: float) -> StateSource:
    """Multiply E by the share, except where the user declared it; N stays what it is."""
    if share >= 1:
        return source
    covs = zip(source.names, source.error_covs, strict=True)
    limited = (E if name in source.declared else share * E for name, E in covs)
    return source._replace(error_covs=tuple(limited))


def declared_noise_warnings(source: StateSource) -> list[str]:
    """One sentence per declared R that the client's own spectrum has no room for.

    Where the states' lags speak against it too (no white error fits them, or one of less than half
    the size does), the usual reason is named.
    """
    pairs = zip(source.names, source.noise_shares, strict=True)
    shares = {name: share for name, share in pairs if name in source.declared and share < 1}
    if not shares:
        return []
    doubted = _doubted_by_lags(source)
    return [
        f"client '{name}': of the declared measurement noise {100 * share:.2g} % can be white, as "
        "the spectrum of its states shows; it was used as declared, so its edges may be false"
        + (
            ", and the states' lags contradict it too: sensor noise that enters a control loop is "
            "the usual reason"
            if name in doubted
            else ""
        )
        for name, share in shares.items()
    ]


def noiseless_warnings(source: StateSource) -> list[str]:
    """One sentence per client that found no measurement noise of its own accord."""
    return [
        f"client '{name}': measurement noise could not be separated from the state and was "
        "taken as zero, so its edges may be false; use fewer states"
        for name, E in zip(source.names, source.error_covs, strict=True)
        if name not in source.declared and not E.any()
    ]


def _doubted_by_lags(source: StateSource) -> set[str]:
    try:
        found = lag_moment_check(source)
    except InferenceError:  # too short to say anything
        return set()
    if found.p_value < DOUBTFUL:
        return set(source.names)
    shown = _shown_by_lags(source, found)
    shares = map(_share, source.error_covs, shown)
    pairs = zip(source.names, shares, strict=True)
    return {name for name, share in pairs if share is not None and share < MUCH_LESS}
