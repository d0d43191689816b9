"""What contradicts the measurement noise that clients declared, or could not tell from states."""

from __future__ import annotations

import numpy as np

from fedgranger.errors import InferenceError
from fedgranger.inference.lag_moments import lag_moment_check
from fedgranger.inference.states import StateSource

CONTRADICTION = 0.001
"""p-value of the lag moments below which no white error fits them."""
MUCH_LESS = 0.5


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
    if found.p_value < CONTRADICTION:
        return set(source.names)
    added = source.added_covs or tuple(np.zeros_like(E) for E in source.error_covs)
    pairs = zip(source.names, source.error_covs, found.error_covs, added, strict=True)
    return {
        name
        for name, declared, lagged, N in pairs
        if declared.any()
        and np.trace(np.linalg.solve(declared, lagged - N)) / len(declared) < MUCH_LESS
    }
