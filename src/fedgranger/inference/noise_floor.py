r"""How much of the clients' measurement error the joint spectrum of their states leaves room for.

Each client has limited its own E to what its own spectrum allows. Together the states may be more
predictable than each client's alone, so once more the largest common share c with
\(S(\omega) - c\,\mathrm{blockdiag}(E_1, \dots, E_M) \succeq 0\) is used, unless sampling error
explains it (`linalg.noise_floor`). The corrected moments are then those of a process, and the
estimate of order one has no root outside the unit circle.
"""

from __future__ import annotations

from fedgranger.inference.moments import accumulate
from fedgranger.inference.states import StateSource, complete_rows
from fedgranger.linalg.noise_floor import LagMoments, NoiseFloor, noise_floor, order_for

__all__ = ["joint_noise_floor", "limit_errors"]


def joint_noise_floor(
    source: StateSource, weighting: str = "none", span: int | float = 0
) -> NoiseFloor:
    """Share of all clients' E that the spectrum of all states allows.

    Only unbroken stretches at which no client is missing count; where there are too few of them,
    or the states are collinear, nothing contradicts E and the share is 1.
    """
    if not source.error_cov.any():
        return NoiseFloor(1.0, 1.0, 1.0)
    if not all(chunk.observed.all() for chunk in source.chunks()):
        source = complete_rows(source)
    lags = order_for(source.num_steps, source.total_dim)
    while lags > 0:
        found = accumulate(source, lags, weighting, span)
        if order_for(found.effective_pairs, source.total_dim) >= lags:
            moments = LagMoments(
                found.before_cov, found.lag_cov, found.after_cov, found.effective_pairs
            )
            return noise_floor(moments, source.error_cov)
        lags -= 1
    return NoiseFloor(1.0, 1.0, 1.0)


def limit_errors(source: StateSource, share: float) -> StateSource:
    """Multiply E by the share, except where the user declared it."""
    if share >= 1:
        return source
    covs = zip(source.names, source.error_covs, strict=True)
    limited = (E if name in source.declared else share * E for name, E in covs)
    return source._replace(error_covs=tuple(limited))
