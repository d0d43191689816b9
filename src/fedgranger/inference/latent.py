"""Test of the latent influence: the debiased estimate of the states' dynamics and its checks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedgranger.config import RunConfig
from fedgranger.errors import InferenceError
from fedgranger.inference.calibrate import Calibrated, Formula
from fedgranger.inference.copy_audit import PairTests
from fedgranger.inference.covariance import BlockCovariance, block_covariance
from fedgranger.inference.diagnostics import diagnose
from fedgranger.inference.edge_tables import EdgeInference, edge_tables
from fedgranger.inference.estimate import Estimate, estimate, select_lags
from fedgranger.inference.noise_correction import joint_noise_floor, limit_errors
from fedgranger.inference.positive_control import innovation_covs, latent_controls
from fedgranger.inference.states import StateSource, complete_rows
from fedgranger.inference.wald import denominator_df, homoskedastic, wald_tests
from fedgranger.linalg.noise_floor import NoiseFloor

NULL = "the cause's past does not help to predict the effect, given all clients' pasts"


class LatentFit(NamedTuple):
    """A debiased estimate with the covariance of its blocks.

    Attributes:
        source: the states, with as much measurement error as the joint spectrum allows.
        fit: the estimate.
        covariance: of its blocks.
        noise_share: of the clients' measurement error that is taken out.
        lag_criterion: of every lag order that was tried; empty where it was given.
        notes: what to know about it.
    """

    source: StateSource
    fit: Estimate
    covariance: BlockCovariance
    noise_share: float
    lag_criterion: dict[str, float]
    notes: tuple[str, ...] = ()


def fit_latent(source: StateSource, config: RunConfig) -> LatentFit:
    """Estimate with measurement error taken out of the states' moments.

    Raises:
        InferenceError: the data do not allow the estimate, with the reason and a remedy.
    """
    source = _with_correction(source, config)
    try:
        return _fit(source, config)
    except InferenceError as error:
        # Moments over pairs of clients need not fit together when samples are missing; those
        # over complete time steps do, from fewer data.
        if all(chunk.observed.all() for chunk in source.chunks()):
            raise
        try:
            found = _fit(complete_rows(source), config)
        except InferenceError:
            raise error from None
        note = f"only time steps at which no client is missing were used; with the others: {error}"
        return found._replace(notes=(note,))


def refit(found: LatentFit, states: StateSource, config: RunConfig) -> PairTests:
    """The same test of other states, a copy with shifted clocks, at the same lags and noise."""
    source = states._replace(error_covs=found.source.error_covs)
    fit = estimate(source, found.fit.lags, config.weighting, config.weighting_span)
    return pair_tests(found._replace(fit=fit, covariance=_covariance(source, fit, config)))


def pair_tests(found: LatentFit) -> PairTests:
    """Statistic and p-value by formula of every pair."""
    tests = wald_tests(found.fit, found.covariance, found.source.dims)
    return PairTests(tests.statistic / tests.df, tests.df, tests.p_value)


def latent_formula(covariance: BlockCovariance) -> Formula:
    """The law of W/k by formula, as `wald.wald_tests` compares it."""
    rest = denominator_df(covariance)
    factor = covariance.df / np.maximum(rest, 1.0)
    return Formula(factor if covariance.is_estimated else np.ones_like(factor), rest)


def latent_tables(
    found: LatentFit, config: RunConfig, calibrated: Calibrated | None = None
) -> EdgeInference:
    """Edges, entries and facts; p-values by formula unless calibrated ones are given."""
    source, fit, covariance = found.source, found.fit, found.covariance
    tables = edge_tables(source.names, source.dims, fit, covariance, config, calibrated)
    tested = tables.edges.loc[tables.edges["p_value"].notna()]
    widened = covariance._replace(cov=covariance.cov * tables.widening[..., None, None])
    innovations = innovation_covs(fit.process_cov, source.dims)
    facts = _facts(found, config) | {
        "reasons": tables.reasons,
        "detectable_strength": tables.detectable,
        "positive_control": latent_controls(
            source.names, source.dims, fit, widened, tested, config.alpha
        ),
        "innovation_cov": {
            name: cov.tolist() for name, cov in zip(source.names, innovations, strict=True)
        },
    }
    return EdgeInference(
        fit.transition, tables.std_error, tables.p_value, tables.edges, tables.entries, facts
    )


def _with_correction(source: StateSource, config: RunConfig) -> StateSource:
    if config.noise_correction:
        return source
    nothing = tuple(np.zeros_like(error_cov) for error_cov in source.error_covs)
    return source._replace(error_covs=nothing)


def _fit(source: StateSource, config: RunConfig) -> LatentFit:
    floor = joint_noise_floor(source, config.weighting, config.weighting_span)
    source, fit, share, criterion = _estimate_limited(source, floor, config)
    return LatentFit(source, fit, _covariance(source, fit, config), share, criterion)


def _covariance(source: StateSource, fit: Estimate, config: RunConfig) -> BlockCovariance:
    if config.covariance == "homoskedastic":
        if not fit.moments.is_complete:
            raise InferenceError(
                "covariance='homoskedastic' needs data without missing samples; use 'sandwich'"
            )
        return homoskedastic(fit, source.dims)
    return block_covariance(
        source, fit, rule=config.hac, weighting=config.weighting, span=config.weighting_span
    )


def _estimate_limited(
    source: StateSource, floor: NoiseFloor, config: RunConfig
) -> tuple[StateSource, Estimate, float, dict[str, float]]:
    """Estimate with the share of E that the joint spectrum allows.

    A share below 1 within sampling error is not used unless the estimate needs it.
    """
    weights = (config.weighting, config.weighting_span)
    refusals: list[InferenceError] = []
    for share in dict.fromkeys((floor.share, floor.largest)):
        limited = limit_errors(source, share)
        try:
            lags, scores = config.lags, {}
            if lags == "auto":
                lags, scores = select_lags(limited, config.max_lags, *weights)
            criterion = {str(order): score for order, score in scores.items()}
            return limited, estimate(limited, lags, *weights), share, criterion
        except InferenceError as error:
            refusals.append(error)
    raise refusals[0]


def _facts(found: LatentFit, config: RunConfig) -> dict[str, Any]:
    source, fit, covariance = found.source, found.fit, found.covariance
    checks = diagnose(source, fit)
    notes = list(checks.warnings)
    if not config.noise_correction:
        notes.append(
            "measurement noise was not taken out of the states (noise_correction is false): "
            "clients that merely share a signal can come out as edges"
        )
    if config.covariance == "homoskedastic" and source.error_cov.any():
        notes.append("the homoskedastic covariance ignores measurement noise; use 'sandwich'")
    M = len(source.dims)
    tested = ~np.eye(M, dtype=np.bool_) if M > 1 else np.ones((1, 1), dtype=np.bool_)
    return {
        "test": "debiased",
        "null": NULL,
        "alpha": config.alpha,
        "correction": config.correction,
        "confidence": config.confidence,
        "lags": fit.lags,
        "covariance": config.covariance,
        "hac": config.hac,
        "hac_lag": covariance.hac_lag,
        "df_denominator": float(np.median(denominator_df(covariance)[tested])),
        "num_pairs": fit.moments.num_pairs,
        "mean": fit.moments.mean.tolist(),
        "effective_pairs": checks.effective_pairs,
        "effective_samples": checks.effective_samples,
        "spectral_radius": fit.spectral_radius,
        "condition": fit.condition,
        "portmanteau": checks.portmanteau,
        "unit_root": checks.unit_root,
        "noise_share": found.noise_share,
        "lag_criterion": found.lag_criterion,
        "warnings": [*notes, *found.notes],
    }
