"""How far the tests can be trusted: p-values, residuals, power, and the audit on shifted clocks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.edge_test_kinds import EDGE_TESTS
from fedgranger.inference.audit_words import (
    TITLE,
    audit_sentences,
    control_sentences,
    controls,
    quantile_sentence,
    share,
    verdict,
)
from fedgranger.inference.record_traits import traits_in_words
from fedgranger.report.charts import p_histogram, p_quantiles
from fedgranger.report.pairs import has_test, numbers
from fedgranger.report.view import Column, Section, Table, section_of
from fedgranger.text import format_digits, format_number

COLUMNS = {
    "portmanteau": "residuals uncorrelated, p",
    "unit_root": "unit root, p",
    "effective_samples": "effective samples",
}
FLAT_FROM = 0.5
MOST_CONTROLS = 30


def checks_view(
    pairs: pd.DataFrame, entries: pd.DataFrame | None, manifest: Mapping[str, Any]
) -> Section | None:
    """Distribution of the p-values, what it means, and diagnostics per client; None without any."""
    inference = section_of(manifest, "inference")
    if not has_test(pairs):
        return None
    p = numbers(pairs, "p_value")
    charts = [p_histogram("p-pairs", p, "pairs")]
    if entries is not None and "p_value" in entries:
        charts.append(p_histogram("p-entries", numbers(entries, "p_value"), "entries"))
    sentences = [_null_share(p), _power(inference), _lags(inference)]
    return {
        "charts": tuple(chart for chart in charts if chart),
        "words": " ".join(filter(None, sentences)),
        "clients": _client_checks(inference),
    }


def _null_share(p: np.ndarray) -> str:
    """Storey's estimate of the number of absent edges, from the flat part."""
    known = p[np.isfinite(p)]
    if len(known) < 12:
        return ""
    absent = min(len(known), (known > FLAT_FROM).sum() / (1 - FLAT_FROM))
    return f"By their flat part, about {absent:.0f} of {len(known)} pairs have no influence."


def _power(inference: Mapping[str, Any]) -> str:
    strengths = list(section_of(inference, "detectable_strength").values())
    if not strengths:
        return ""
    return (
        f"An influence of strength {format_number(float(np.median(strengths)))} is found with "
        f"80 % probability in the median pair ({format_number(float(max(strengths)))} in the "
        "least favourable one)."
    )


def _lags(inference: Mapping[str, Any]) -> str:
    radius = inference.get("spectral_radius")
    if radius is None:
        return ""
    return (
        f"The model has {inference.get('lags')} lag(s) and a largest root of {radius:.3f} (1 would "
        "be a random walk)."
    )


def _client_checks(inference: Mapping[str, Any]) -> Table | None:
    found = {key: values for key in COLUMNS if (values := section_of(inference, key))}
    if not found:
        return None

    def cell(key: str, value: float | None) -> str:
        is_count = key == "effective_samples" and value is not None
        return f"{value:.0f}" if is_count else format_number(value)

    clients = dict.fromkeys(name for values in found.values() for name in values)
    columns = [Column("client"), *(Column(COLUMNS[key], is_number=True) for key in found)]
    rows = [
        [name, *(cell(key, values.get(name)) for key, values in found.items())] for name in clients
    ]
    return Table("Checks per client", columns, rows)


def audit_view(manifest: Mapping[str, Any]) -> Section | None:
    """The audit of the run's own test and of the other one, if made; None without tests."""
    facts = section_of(manifest, "inference")
    if "reason" in facts or facts.get("test") in (None, "none"):
        return None
    own, beside = _test_audit("audit", facts, verdict(facts)), section_of(facts, "beside")
    if not beside:
        return {"title": TITLE, "own": own, "other": None}
    conclusion = verdict(beside) if "audit" in beside else ""
    return {"title": TITLE, "own": own, "other": _test_audit("audit-beside", beside, conclusion)}


def _test_audit(key: str, facts: Mapping[str, Any], conclusion: str) -> Section:
    """How far the p-values of one test can be trusted, and what it could have found."""
    found, sentences = section_of(facts, "audit"), audit_sentences(facts)
    words = [*sentences, quantile_sentence(found)] if sentences else []
    control, kind = control_sentences(facts), str(facts.get("test"))
    return {
        "name": EDGE_TESTS[kind].title if kind in EDGE_TESTS else "other test",
        "verdict": conclusion,
        "sentences": tuple(filter(None, words)),
        "chart": p_quantiles(key, section_of(found, "quantiles")) if sentences else None,
        "clients": _audited_clients(found) if sentences else None,
        "control": " ".join(control),
        "controls": _controls(facts) if control else None,
        "more_controls": len(controls(facts)) - MOST_CONTROLS,
    }


def _audited_clients(found: Mapping[str, Any]) -> Table:
    traits = section_of(found, "clients")
    columns = [Column("client"), Column("as effect", True), Column("as cause", True)]
    columns += [Column("its record")] if traits else []
    rows = []
    for client, effect in section_of(found, "by_effect").items():
        cause = section_of(found, "by_cause").get(client, (None, None))
        row = [client, share(effect), share(cause)]
        rows.append([*row, traits_in_words(traits.get(client, {})) or "–"] if traits else row)
    return Table("Share of the copies' p-values below 0.05, worst first", columns, rows)


def _controls(facts: Mapping[str, Any]) -> Table:
    found = controls(facts)
    has_units = any(one.units for one in found)
    columns = [Column("pair"), Column("smallest influence found", True)]
    columns += [Column("which moves, in its own unit")] if has_units else []
    rows = [
        [one.edge, format_digits(one.size), *([one.units or "–"] if has_units else [])]
        for one in found[:MOST_CONTROLS]
    ]
    return Table("Found with 80 % probability, hardest first", columns, rows)
