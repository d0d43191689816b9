r"""The paper's test (Section 8): FedGC's own estimate against its steady-state spread.

\(T = \hat A / \sigma\) with σ from the covariance of the estimate over data sets
(`uncertainty.steady_state`), compared with Student's t. It asks whether \(\hat A^*\), to which
FedGC converges, is zero; \(\hat A^*\) is not the influence and is not zero for clients that are
merely correlated, so this test does not control false edges (docs/theory/inference.md). Needs all
data in one place, as a simulation has them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedgranger.config import RunConfig
from fedgranger.errors import InferenceError, UnstableRecursionError
from fedgranger.inference.covariance import BlockCovariance
from fedgranger.inference.edge_tables import EdgeInference, edge_tables
from fedgranger.runtime.rows import Row, single_row
from fedgranger.runtime.setup import Setup
from fedgranger.uncertainty.steady_state import SteadyState, settle

__all__ = ["infer_asymptotic", "settle_rows"]


class _Trained(NamedTuple):
    transition: np.ndarray
    lags: int = 1


def infer_asymptotic(
    setup: Setup, config: RunConfig, granger: np.ndarray, passes: int
) -> EdgeInference:
    """Test every edge and entry of the trained estimate.

    Args:
        setup: the run.
        config: its options.
        granger: the trained estimate, P x P, clients in the order of the setup.
        passes: passes made over the data.

    Raises:
        InferenceError: the step sizes have no steady state.
    """
    try:
        settled = settle_rows(setup, config, passes)
    except UnstableRecursionError as error:
        raise InferenceError(str(error)) from None
    covariance = _block_covariance(setup, settled)
    fit = _Trained(granger)
    found = edge_tables(setup.names, setup.state_dims, fit, covariance, config)
    return EdgeInference(
        granger,
        found.std_error,
        found.p_value,
        found.edges,
        found.entries,
        _facts(setup, config, settled, covariance, found.reasons, found.detectable),
    )


def settle_rows(setup: Setup, config: RunConfig, passes: int = 1) -> list[tuple[Row, SteadyState]]:
    """Steady state of every row from the data as they were measured."""
    out = []
    for m, name in enumerate(setup.names):
        row = single_row(setup, config, m)
        out.append((row, settle(row.params, row.windows, client=name, passes=passes)))
    return out


def _block_covariance(setup: Setup, settled: list[tuple[Row, SteadyState]]) -> BlockCovariance:
    M, (p, _) = len(setup.streams), setup.padded_dims
    dims = setup.state_dims
    cov = np.zeros((M, M, p * p, p * p))
    df = np.ones((M, M))
    for m, (row, steady) in enumerate(settled):
        own, q = dims[m], len(row.causes)
        full = steady.granger_cov(trained=True).reshape(own, q, own, q)
        pairs = int((np.asarray(row.windows.observed_weights) > 0).sum())
        df[m] = max(pairs - steady.averages.shape[1] - q, 1)
        for n in np.unique(row.causes):
            columns = np.flatnonzero(row.causes == n)
            block = full[:, columns][:, :, :, columns]
            target = cov[m, n].reshape(p, p, p, p)
            target[:own, : dims[n], :own, : dims[n]] = block
    size = np.outer(dims, dims)
    lag = max(steady.hac_lag for _, steady in settled)
    return BlockCovariance(cov, df, size, lag, np.zeros((M, M), dtype=np.bool_), is_estimated=False)


def _facts(
    setup: Setup,
    config: RunConfig,
    settled: list[tuple[Row, SteadyState]],
    covariance: BlockCovariance,
    reasons: dict[str, str],
    detectable: dict[str, float],
) -> dict[str, Any]:
    across = ~np.eye(len(setup.names), dtype=np.bool_)
    return {
        "test": "asymptotic",
        "null": "FedGC's own limit Â* is zero (this is not the absence of an influence)",
        "alpha": config.alpha,
        "correction": config.correction,
        "confidence": config.confidence,
        "lags": 1,
        "covariance": "steady-state",
        "hac": "flat-top",
        "hac_lag": covariance.hac_lag,
        "df_denominator": float(np.median(covariance.df[across])),
        "num_pairs": setup.num_pairs,
        "stability": {
            name: {key: float(value) for key, value in steady.stability._asdict().items()}
            for name, (_, steady) in zip(setup.names, settled, strict=True)
        },
        "detectable_strength": detectable,
        "warnings": [
            "test='asymptotic' is the paper's test of FedGC's own estimate: clients that are "
            "merely correlated can come out as edges; use test='debiased' for edges that hold "
            "their error rate"
        ],
        "reasons": reasons,
    }
