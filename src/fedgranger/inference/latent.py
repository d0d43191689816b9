"""Test of the latent influence: the debiased estimate of the states' dynamics and its checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from fedgranger.config import RunConfig
from fedgranger.errors import InferenceError
from fedgranger.inference.calibrate import Calibrated, Formula
from fedgranger.inference.copy_audit import PairTests
from fedgranger.inference.covariance import BlockCovariance, block_covariance, homoskedastic
from fedgranger.inference.diagnostics import diagnose
from fedgranger.inference.edge_tables import (
    EdgeInference,
    common_facts,
    detectable_strengths,
    edge_tables,
)
from fedgranger.inference.estimate import Estimate, estimate, estimate_from, select_lags
from fedgranger.inference.noise_correction import joint_noise_floor, limit_errors
from fedgranger.inference.positive_control import latent_controls
from fedgranger.inference.state_moments import moments_without_blocks
from fedgranger.inference.states import StateSource, complete_rows
from fedgranger.inference.wald import wald_tests
from fedgranger.linalg.blocks import diagonal_blocks
from fedgranger.tested_facts import InferenceFacts

NULL = "the cause's past does not help to predict the effect, given all clients' pasts"


class LatentFit(NamedTuple):
    """A debiased estimate with the covariance of its blocks.

    Attributes:
        source: the states, with as much measurement error as the joint spectrum allows.
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

    Noise that clients added to their states is taken out with `noise_correction = false` too.

    Raises:
        InferenceError: the data do not allow the estimate, with the reason and a remedy.
    """
    source = source._replace(weighting=config.weighting, weighting_span=config.weighting_span)
    if not config.noise_correction:
        source = source._replace(error_covs=tuple(np.zeros_like(E) for E in source.error_covs))
    try:
        return _fit(source, config)
    except InferenceError as error:
        # Moments over pairs of clients need not fit together when samples are missing; those
        # over complete time steps do, from fewer data.
        complete = complete_rows(source)
        if complete is source:
            raise
        try:
            found = _fit(complete, config)
        except InferenceError:
            raise error from None
        note = f"only time steps at which no client is missing were used; with the others: {error}"
        return found._replace(notes=(note,))


def refit(
    found: LatentFit,
    states: StateSource,
    config: RunConfig,
    wanted: Bool[np.ndarray, "effect cause"] | None = None,
) -> PairTests:
    """The same test of other states, a copy with shifted clocks, at the same lags and noise.

    NaN where a pair is not `wanted`: nearly all of the work is in the pairs' covariances.
    """
    weights = {"weighting": config.weighting, "weighting_span": config.weighting_span}
    fit, covariance = refit_blocks(found, states._replace(**weights), config, wanted)
    return pair_tests(found._replace(fit=fit, covariance=covariance))


def refit_blocks(
    found: LatentFit,
    states: StateSource,
    config: RunConfig,
    wanted: Bool[np.ndarray, "effect cause"] | None = None,
) -> tuple[Estimate, BlockCovariance]:
    """Estimate and covariance of other states, at the same lags and noise.

    Raises:
        InferenceError: these states do not allow it.
    """
    source = states._replace(error_covs=found.source.error_covs)
    fit = estimate(source, found.fit.lags)
    return fit, _covariance(source, fit, config, wanted)


def latent_without_blocks(found: LatentFit, num_blocks: int) -> Iterator[np.ndarray | None]:
    """Â without each of so many stretches of time; None where what is left does not allow it."""
    source, lags, mean = found.source, found.fit.lags, found.fit.moments.mean
    for moments in moments_without_blocks(source, lags, num_blocks, mean):
        try:
            yield estimate_from(source, moments, lags).transition
        except InferenceError:
            yield None


def pair_tests(found: LatentFit) -> PairTests:
    """Statistic and p-value by formula of every pair."""
    tests = wald_tests(found.fit.transition, found.covariance)
    return PairTests(tests.statistic / tests.df, tests.df, tests.p_value)


def latent_formula(covariance: BlockCovariance) -> Formula:
    """The law of W/k by formula, as `wald.wald_tests` compares it."""
    rest = covariance.test_df
    factor = covariance.df / np.maximum(rest, 1.0)
    return Formula(factor if covariance.is_estimated else np.ones_like(factor), rest)


def latent_tables(
    found: LatentFit, config: RunConfig, calibrated: Calibrated | None = None
) -> EdgeInference:
    """Edges, entries and facts; p-values by formula unless calibrated ones are given."""
    source, fit, covariance = found.source, found.fit, found.covariance
    names = source.names
    tables = edge_tables(names, fit.transition, covariance, config, calibrated)
    if calibrated is not None:  # how much larger than the formula's the critical value is
        critical = covariance.size * calibrated.law.critical(config.alpha)
        widening = critical / covariance.critical_values(1 - config.alpha)
        covariance = covariance._replace(cov=covariance.cov * widening[..., None, None])
    innovations = dict(zip(names, diagonal_blocks(fit.process_cov, source.dims), strict=True))
    facts, control = _facts(found, config), (innovations, covariance, config.alpha)
    facts.reasons = tables.facts.reasons
    facts.detectable_strength = detectable_strengths(tables.edges, names, *control[1:])
    facts.positive_control = latent_controls(tables.edges, *control)
    facts.innovation_cov = {name: cov.tolist() for name, cov in innovations.items()}
    return tables._replace(facts=facts)


def _fit(source: StateSource, config: RunConfig) -> LatentFit:
    """Estimate with the share of E that the joint spectrum allows.

    A share below 1 within sampling error is not used unless the estimate needs it.
    """
    floor = joint_noise_floor(source)
    refusals: list[InferenceError] = []
    for share in dict.fromkeys((floor.share, floor.largest)):
        limited = limit_errors(source, share)
        try:
            lags, criterion = config.lags, {}
            if lags == "auto":
                lags, criterion = select_lags(limited, config.max_lags)
            fit = estimate(limited, lags)
        except InferenceError as error:
            refusals.append(error)
        else:
            return LatentFit(limited, fit, _covariance(limited, fit, config), share, criterion)
    raise refusals[0]


def _covariance(
    source: StateSource,
    fit: Estimate,
    config: RunConfig,
    wanted: Bool[np.ndarray, "effect cause"] | None = None,
) -> BlockCovariance:
    if config.covariance == "homoskedastic":
        if not fit.moments.is_complete:
            raise InferenceError(
                "covariance='homoskedastic' needs data without missing samples; use 'sandwich'"
            )
        return homoskedastic(fit, source.dims)
    return block_covariance(source, fit, config.hac, wanted)


def _facts(found: LatentFit, config: RunConfig) -> InferenceFacts:
    source, fit, covariance = found.source, found.fit, found.covariance
    checks = diagnose(source, fit)
    notes = list(checks.warnings)
    if not config.noise_correction:
        notes.append(
            "measurement noise was not taken out of the states (noise_correction is false): "
            "clients that merely share a signal can come out as edges"
        )
    if config.covariance == "homoskedastic" and source.error_cov.any():
        kind = "added noise" if not source.sensor_cov.any() else "measurement noise"
        notes.append(f"the homoskedastic covariance ignores {kind}; use 'sandwich'")
    M = len(source.dims)
    tested = ~np.eye(M, dtype=np.bool_) if M > 1 else np.ones((1, 1), dtype=np.bool_)
    facts = common_facts("debiased", NULL, fit.lags, config)
    facts.covariance, facts.hac, facts.hac_lag = config.covariance, config.hac, covariance.hac_lag
    facts.df_denominator = float(np.median(covariance.test_df[tested]))
    facts.num_pairs, facts.mean = fit.moments.num_pairs, fit.moments.mean.tolist()
    facts.effective_pairs = checks.effective_pairs
    facts.effective_samples = checks.effective_samples
    facts.spectral_radius, facts.condition = fit.spectral_radius, fit.condition
    facts.portmanteau, facts.unit_root = checks.portmanteau, checks.unit_root
    facts.noise_share, facts.lag_criterion = found.noise_share, found.lag_criterion
    facts.warnings = [*notes, *found.notes]
    return facts
