"""The readings' test as tables, in the same form as the latent one."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy import stats

from fedgranger.config import RunConfig
from fedgranger.inference.calibrate import Calibrated, extrapolated_pairs
from fedgranger.inference.edge_tables import (
    EDGE_COLUMNS,
    ENTRY_COLUMNS,
    EdgeInference,
    common_facts,
    decided_edges,
)
from fedgranger.inference.positive_control import smallest_influence
from fedgranger.inference.readings import Readings
from fedgranger.inference.states import StateSource
from fedgranger.inference.strength import detectable_strength, strength_intervals
from fedgranger.tested_facts import InferenceFacts

NULL = (
    "the cause's past states do not help to predict the effect beyond its own past and the others"
)
DEPENDENT = (
    "states of the cause are linear combinations of other clients' states (the same sensors "
    "twice?), so its influence cannot be separated from theirs; leave one of them out"
)
MUCH_HIDDEN = 0.4
"""Share of directions. With a third of them hidden, sizes held on data of the model."""
NOT_REGULAR = (
    "the covariance of this pair's coefficients is not regular; give more data or fewer states"
)


def readings_tables(
    source: StateSource,
    fit: Readings,
    found: Calibrated,
    config: RunConfig,
    facts: InferenceFacts,
    own_covs: tuple[np.ndarray, ...],
) -> EdgeInference:
    """Edges, entries and facts of the regressions, with p-values against the copies' law.

    The facts on how the test came about are completed here. `own_covs` are the covariances of what
    every client's own past leaves of its states.
    """
    rows, entries, reasons, detectable, control = [], [], {}, {}, {}
    names, pairs = source.names, sorted(fit.blocks)
    critical, needed = (found.law.critical(p) for p in (1 - config.confidence, config.alpha))
    for m, n in pairs:
        block, (ratio, k) = fit.blocks[m, n], fit.statistic(m, n)
        a, edge = block.coefficients.reshape(-1), f"{names[n]} -> {names[m]}"
        p = float(found.p_value[m, n])
        low = high = np.array(np.nan)
        if np.isfinite(p):
            low, high = strength_intervals(a, block.cov, np.array(k * critical[m, n]))
            rest = float(fit.num_rows[m] - fit.num_columns[m])
            widened = block.cov * needed[m, n] / stats.f.isf(config.alpha, k, rest)
            detectable[edge] = detectable_strength(widened, rest, config.alpha)
            covs, columns = (fit.residual_covs[m], own_covs[n]), (block.lag, block.state)
            control[edge] = smallest_influence(widened, columns, *covs, rest, config.alpha).size
        else:
            reasons[edge] = NOT_REGULAR
        if (m, n) in fit.dependent:
            reasons[edge] = DEPENDENT
        strength = float(np.linalg.norm(a))
        delay = fit.delay(m, n)
        rows.append((names[n], names[m], strength, float(low), float(high), ratio * k, k, p, delay))
        entries += _entries(names, fit, m, n, config.confidence, source.dims)
    table = decided_edges(pd.DataFrame(rows, columns=list(EDGE_COLUMNS[:9])), config, reasons)
    with np.errstate(invalid="ignore"):
        p_value = 2 * stats.norm.sf(np.abs(fit.transition) / fit.std_error)
    if fit.dependent:
        dependent = sorted({names[n] for _, n in fit.dependent})
        facts.warnings.append(
            f"states of {', '.join(dependent)} are linear combinations of other clients' states "
            "(the same sensors twice?): an edge that is found may belong to either of them"
        )
    if source.is_noise_added:
        _note_noise(names, fit, facts)
    facts.update(common_facts("readings", NULL, fit.lags, config))
    facts.covariance, facts.num_pairs = "hc3", int(fit.num_rows.max())
    facts.constant, facts.detectable_strength = fit.constant.tolist(), detectable
    facts.positive_control = {
        edge: size for edge, size in control.items() if np.isfinite(size) and edge not in reasons
    }
    covs = zip(names, fit.residual_covs, strict=True)
    facts.innovation_cov = {name: cov.tolist() for name, cov in covs}
    facts.extrapolated = extrapolated_pairs(names, found.is_extrapolated)
    facts.reasons = reasons
    single = pd.DataFrame(entries, columns=list(ENTRY_COLUMNS))
    return EdgeInference(fit.transition, fit.std_error, p_value, table, single, facts)


def _note_noise(names: tuple[str, ...], fit: Readings, facts: InferenceFacts) -> None:
    """How much of each effect's columns added noise hides, and a sentence where it is much."""
    shares = (fit.num_unresolved / np.maximum(fit.num_columns, 1)).round(3).tolist()
    facts.noise_hides = hidden = dict(zip(names, shares, strict=True))
    much = [name for name, share in hidden.items() if share > MUCH_HIDDEN]
    if much:
        facts.warnings.append(
            f"the noise that was added hides more than {100 * MUCH_HIDDEN:.0f} % of what the "
            f"equations of {', '.join(much)} could tell apart: links may be missed, and one "
            "through a third client may look direct; add less noise or give more data"
        )


def _entries(
    names: tuple[str, ...],
    fit: Readings,
    effect: int,
    cause: int,
    confidence: float,
    dims: tuple[int, ...],
) -> list[tuple]:
    block = fit.blocks[effect, cause]
    df = fit.num_rows[effect] - fit.num_columns[effect]
    size = np.sqrt(np.diag(block.cov)).reshape(block.coefficients.shape)
    half = stats.t.ppf(0.5 + confidence / 2, df) * size
    with np.errstate(divide="ignore", invalid="ignore"):
        p = 2 * stats.t.sf(np.abs(block.coefficients) / size, df)
    column = (block.lag - 1) * dims[cause] + block.state
    who = (names[cause], names[effect])
    return [
        (*who, i, int(column[j]), a, size[i, j], a - half[i, j], a + half[i, j], p[i, j])
        for (i, j), a in np.ndenumerate(block.coefficients)
    ]
