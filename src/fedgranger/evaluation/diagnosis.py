"""May the tests of a run be trusted, and what could they have found: the checks as plain values."""

from __future__ import annotations

from math import inf
from numbers import Real
from typing import Any

from fedgranger.errors import ConfigError, RunError
from fedgranger.inference.answer import nothing_tested
from fedgranger.inference.audit_words import audit_sentences, control_sentences
from fedgranger.inference.followed_edges import change_sentences
from fedgranger.inference.strength import power_at
from fedgranger.results import Result
from fedgranger.tested_facts import InferenceFacts

LEVELS = (0.001, 0.01, 0.05, 0.1, 0.2)


def diagnosis(result: Result, strength: float | None = None) -> dict[str, Any]:
    """All checks of the run's own test, and its power for a strength.

    Raises:
        RunError: nothing was tested.
    """
    facts = result.manifest.inference
    if result.inference is None:
        raise RunError(f"nothing was tested: {nothing_tested(facts)}")
    is_number = isinstance(strength, Real) and not isinstance(strength, bool)
    if strength is not None and not (is_number and 0 <= strength < inf):
        raise ConfigError(f"strength is {strength!r}; it must be a finite number of at least 0")
    return {
        "sentences": [line.strip() for line in check_sentences(facts)],
        "data_notes": result.manifest.data.notes,
        "edges_at_levels": {f"{level:g}": sorted(edges_at(result, level)) for level in LEVELS},
        "power": {} if strength is None else powers(result, facts, strength),
        "checks": facts,
    }


def check_sentences(facts: InferenceFacts) -> list[str]:
    """The lags, what the copies say of the test, and what it could have found."""
    return [*_lag_lines(facts), *audit_sentences(facts), *control_sentences(facts)]


def powers(result: Result, facts: InferenceFacts, strength: float) -> dict[str, float]:
    """Chance that the test of a pair finds an influence of this strength, where it is known."""
    level, sizes = result.config.alpha, dict(zip(result.clients, result.state_dims, strict=True))
    found: dict[str, float] = {}
    if facts.df_denominator is None:
        return found
    for edge, detectable in facts.detectable_strength.items():
        cause, effect = edge.split(" -> ")
        k = sizes[cause] * sizes[effect] * facts.lags
        found[edge] = power_at(strength, detectable, k, facts.df_denominator, level)
    return found


def edges_at(result: Result, alpha: float) -> set[str]:
    """The edges at another level."""
    table = result.edges(alpha=alpha)
    chosen = table[table["is_edge"].fillna(False).astype(bool)]
    pairs = zip(chosen["cause"], chosen["effect"], strict=True)
    return {f"{cause} -> {effect}" for cause, effect in pairs}


def _lag_lines(facts: InferenceFacts) -> list[str]:
    """The lag criterion's table, what arrives later, what changes, and what gaps cost."""
    lines = []
    if scores := facts.lag_criterion:
        listed = ", ".join(f"{order}: {score:.3f}" for order, score in scores.items())
        lines.append(f"\nlag criterion (BIC, the smallest is taken): {listed}")
    lines += [
        f"arrives late: something of {one.cause}'s at {one.effect} {one.steps} steps "
        f"later (p = {one.p_value:.2g})"
        for one in facts.late_arrivals or ()
    ]
    lines += [f"changes over the record: {sentence}" for sentence in change_sentences(facts)]
    if gaps := facts.gaps:
        lines.append(
            f"gaps of more than {gaps.longest_gap} rows: {gaps.rows_left_out} of "
            f"{gaps.rows} rows left out for all clients"
        )
    return lines
