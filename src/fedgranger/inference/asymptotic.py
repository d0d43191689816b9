r"""The paper's test (Section 8): FedGC's own estimate against its steady-state covariance.

\(T = \hat A / \sigma\) with σ from the covariance of the estimate over data sets
(`uncertainty.steady_state`), compared with Student's t. It asks whether \(\hat A^*\), to which
FedGC converges, is zero; \(\hat A^*\) is not the influence and is not zero for clients that are
merely correlated, so this test does not control false edges (docs/theory/inference.md). Needs all
data in one place, as a simulation has them.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fedgranger.config import RunConfig
from fedgranger.inference.covariance import BlockCovariance
from fedgranger.inference.edge_tables import (
    EdgeInference,
    common_facts,
    detectable_strengths,
    edge_tables,
)
from fedgranger.tested_facts import StabilityFacts
from fedgranger.uncertainty.inputs import Row
from fedgranger.uncertainty.steady_state import SteadyState

NULL = "FedGC's own limit Â* is zero (this is not the absence of an influence)"
IS_PAPERS = (
    "test='asymptotic' is the paper's test of FedGC's own estimate: clients that are merely "
    "correlated can come out as edges; use test='debiased' for edges that hold their error rate"
)


def infer_asymptotic(
    names: tuple[str, ...],
    state_dims: tuple[int, ...],
    num_pairs: int,
    config: RunConfig,
    granger: Float[np.ndarray, "P P"],
    steady: list[tuple[Row, SteadyState]],
) -> EdgeInference:
    """Test every edge and entry of the trained estimate.

    `num_pairs` are training steps per pass; `steady` are every client's row and its steady state
    after the passes made.
    """
    covariance = _block_covariance(state_dims, steady)
    found = edge_tables(names, granger, covariance, config)
    across = ~np.eye(len(names), dtype=np.bool_)
    facts = common_facts("asymptotic", NULL, 1, config)
    facts.covariance, facts.hac, facts.hac_lag = "steady-state", "flat-top", covariance.hac_lag
    facts.df_denominator, facts.num_pairs = float(np.median(covariance.df[across])), num_pairs
    facts.stability = {
        name: StabilityFacts(
            **{key: float(value) for key, value in own.stability._asdict().items()}
        )
        for name, (_, own) in zip(names, steady, strict=True)
    }
    facts.detectable_strength = detectable_strengths(found.edges, names, covariance, config.alpha)
    facts.reasons, facts.warnings = found.facts.reasons, [IS_PAPERS]
    return found._replace(facts=facts)


def _block_covariance(
    dims: tuple[int, ...], steady: list[tuple[Row, SteadyState]]
) -> BlockCovariance:
    """Covariances of the blocks [effect, cause] of the trained estimate."""
    M, p = len(dims), max(dims)
    cov = np.zeros((M, M, p * p, p * p))
    df = np.ones((M, M))
    for m, (row, own) in enumerate(steady):
        p_m, q = dims[m], len(row.causes)
        full = own.granger_cov(trained=True).reshape(p_m, q, p_m, q)
        pairs = int((np.asarray(row.windows.observed_weights) > 0).sum())
        df[m] = max(pairs - own.moments.shape[1] - q, 1)
        for n in np.unique(row.causes):
            columns = np.flatnonzero(row.causes == n)
            block = full[:, columns][:, :, :, columns]
            target = cov[m, n].reshape(p, p, p, p)
            target[:p_m, : dims[n], :p_m, : dims[n]] = block
    lag, no_block = max(own.hac_lag for _, own in steady), np.zeros((M, M), dtype=np.bool_)
    return BlockCovariance(cov, df, dims, 1, lag, no_block, is_estimated=False)
