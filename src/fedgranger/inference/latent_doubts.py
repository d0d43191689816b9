"""What speaks against the latent test on these data: checks of its model, and copies."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fedgranger.inference.arrivals import arrival_p_values, arrivals, late_arrivals
from fedgranger.inference.copy_audit import MOST_REFUSED, Audit
from fedgranger.inference.diagnostics import residuals
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.inference.shifts import large_zeros
from fedgranger.inference.states import StateSource, lagged_pairs
from fedgranger.inference.whitening import Whitened

DOUBTFUL = 1e-3
"""A check of the latent model whose p-value is smaller counts against it."""
FEWEST_TIME_CONSTANTS = 10


def model_doubt(
    source: StateSource,
    whitened: Whitened,
    found: EdgeInference,
    max_lags: int,
    *,
    is_noise_possible: bool,
) -> str:
    """Why the model does not hold, empty where it does; what arrives late is added to the facts."""
    facts, names = found.facts, source.names
    turns = (facts.effective_pairs or 0.0) * (1 - (facts.spectral_radius or 0.0))
    lags, largest = facts.lags, max(max_lags, facts.lags + 1)
    late = arrivals(_latent_residuals(source, found, lags), whitened, source.dims, largest)[lags:]
    p = arrival_p_values(late, source.dims)
    facts.late_arrivals = late_arrivals(p, names, lags + 1)
    if turns < FEWEST_TIME_CONSTANTS:
        return (
            f"the record holds only {turns:.1f} time constants of the slowest latent state, "
            "too few for the latent test"
        )
    rough = [n for n, p in (facts.portmanteau or {}).items() if p < DOUBTFUL / len(names)]
    if rough:
        return f"the residuals of {', '.join(rough)} are not white under the latent model"
    count = p.size - p.shape[0] * len(names)
    p[:, np.arange(len(names)), np.arange(len(names))] = 1.0
    if p.min() < DOUBTFUL / count:
        step, m, n = np.unravel_index(int(p.argmin()), p.shape)
        return (
            f"something of {names[n]}'s arrives at {names[m]} {lags + int(step) + 1} steps "
            "later, which the latent model does not know of"
        )
    if lags > 1 and facts.noise_from_lags:
        return (
            f"the clients' own estimate of their measurement noise does not agree with how "
            f"their states go from step to step, and with {lags} lags the data give no other "
            "(lags = 'auto' or 1 do)"
        )
    if lags > 1 or is_noise_possible:
        return ""
    return "no white measurement noise fits the first two lags (a control loop may be why)"


def _latent_residuals(
    source: StateSource, found: EdgeInference, lags: int
) -> Float[np.ndarray, "time state"]:
    """s⁺ − Â x, at the rows that are complete."""
    out = large_zeros((source.num_steps, source.total_dim))
    for pairs in lagged_pairs(source, lags, np.array(found.facts.mean)):
        out[pairs.step + 1] = residuals(source, pairs, found.transition)[0]
    return out


def audit_doubt(audited: Audit) -> str:
    """Why copies speak against the latent test, or cannot speak for it."""
    rate, error = audited.rate()
    copies = len(audited.p_values)
    if not np.isfinite(rate):
        return (
            "there is no copy on which the latent test can be checked: every client seems to be "
            "driven by others, and there are too many clients for copies that keep what drives each"
        )
    if audited.refused > copies * MOST_REFUSED:
        return f"the latent test cannot be made on {audited.refused} of {copies} shifted copies"
    return (
        "with shifted clocks, where no link is true, the latent test finds "
        f"{rate:.3f}({error:.3f}) of the edges at 5 %"
    )
