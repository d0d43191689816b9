r"""Mean and covariance of (θ, Â) of one row, round by round.

The mean moves by itself; the covariance is \(\Sigma^+ = \mathcal L(\Sigma) + \mathcal N\) with
\(\mathcal L\) from `spread` and \(\mathcal N\) (`added`) from the means alone. So a stretch of
rounds is a short scan over the means, all \(\mathcal N\) at once, and a scan of \(\mathcal L\)
(`propagate`); `step` is one round of the same.

Exact for Gaussian measurement noise and any prior with finite variance, for every window length
(docs/theory/propagation.md; checked against quadrature and against a Monte Carlo ensemble).
"""

from __future__ import annotations

from jaxtyping import Array

from fedgranger.uncertainty.added import Added, added
from fedgranger.uncertainty.carry import carried_cov
from fedgranger.uncertainty.inputs import RowParams, RowWindow
from fedgranger.uncertainty.means import RowMean, mean_step
from fedgranger.uncertainty.spread import factors_of, written
from fedgranger.uncertainty.terms import RowCov, add_terms

__all__ = ["cov_step", "parameter_cov", "step"]


def parameter_cov(params: RowParams, mean: RowMean, cov: RowCov, noise: Array) -> RowCov:
    """Covariance of (θ, Â) from that of (θ', Â) which `step` carries.

    They differ by the noise of the measurement the next round begins with, which θ already
    holds; `noise` is its covariance.
    """
    carried = carried_cov(params, mean.carry, noise)
    return RowCov(cov.augmentation + carried, cov.cross, cov.granger)


def step(
    params: RowParams, mean: RowMean, cov: RowCov, window: RowWindow
) -> tuple[RowMean, RowCov]:
    """Advance mean and covariance by one round."""
    terms = added(params, mean, window)
    return mean_step(params, mean, window), cov_step(cov, window, terms)


def cov_step(cov: RowCov, window: RowWindow, more: Added) -> RowCov:
    """Advance a covariance by one round, given what the round adds."""
    terms = add_terms(factors_of(more.gain, window, cov), more.terms)
    return written(more.gain, window, cov, terms, more.rest)
