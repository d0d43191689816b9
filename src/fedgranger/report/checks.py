"""How far the tests can be trusted: p-values, residuals, power, and the audit on shifted clocks."""

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
from fedgranger.report.view import Column, Section, Table
from fedgranger.tested_facts import AuditFacts, InferenceFacts
from fedgranger.text import format_digits, format_number

COLUMNS = {
    "portmanteau": "residuals uncorrelated, p",
    "unit_root": "unit root, p",
    "effective_samples": "effective samples",
}
FLAT_FROM = 0.5
MOST_CONTROLS = 30


def checks_view(
    pairs: pd.DataFrame, entries: pd.DataFrame | None, inference: InferenceFacts
) -> Section | None:
    """Distribution of the p-values, what it means, and diagnostics per client; None without any."""
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


def _power(inference: InferenceFacts) -> str:
    strengths = list(inference.detectable_strength.values())
    if not strengths:
        return ""
    return (
        f"An influence of strength {format_number(float(np.median(strengths)))} is found with "
        f"80 % probability in the median pair ({format_number(float(max(strengths)))} in the "
        "least favourable one)."
    )


def _lags(inference: InferenceFacts) -> str:
    radius = inference.spectral_radius
    if radius is None:
        return ""
    return (
        f"The model has {inference.lags} lag(s) and a largest root of {radius:.3f} (1 would "
        "be a random walk)."
    )


def _client_checks(inference: InferenceFacts) -> Table | None:
    found = {key: values for key in COLUMNS if (values := inference.get(key))}
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


def audit_view(facts: InferenceFacts) -> Section | None:
    """The audit of the run's own test and of the other one, if made; None without tests."""
    if facts.reason is not None or facts.test in ("", "none"):
        return None
    own, beside = _test_audit("audit", facts, verdict(facts)), facts.beside
    if not beside:
        return {"title": TITLE, "own": own, "other": None}
    conclusion = "" if beside.audit is None else verdict(beside)
    return {"title": TITLE, "own": own, "other": _test_audit("audit-beside", beside, conclusion)}


def _test_audit(key: str, facts: InferenceFacts, conclusion: str) -> Section:
    """How far the p-values of one test can be trusted, and what it could have found."""
    control, kind = control_sentences(facts), facts.test
    sentences = audit_sentences(facts)
    found = facts.audit if sentences else None
    words = sentences if found is None else [*sentences, quantile_sentence(found)]
    return {
        "name": EDGE_TESTS[kind].title if kind in EDGE_TESTS else "other test",
        "verdict": conclusion,
        "sentences": tuple(filter(None, words)),
        "chart": None if found is None else p_quantiles(key, found.quantiles),
        "clients": None if found is None else _audited_clients(found),
        "control": " ".join(control),
        "controls": _controls(facts) if control else None,
        "more_controls": len(controls(facts)) - MOST_CONTROLS,
    }


def _audited_clients(found: AuditFacts) -> Table:
    traits = found.clients or {}
    columns = [Column("client"), Column("as effect", True), Column("as cause", True)]
    columns += [Column("its record")] if traits else []
    rows = []
    for client, effect in found.by_effect.items():
        cause = found.by_cause.get(client, (None, None))
        row = [client, share(effect), share(cause)]
        rows.append([*row, traits_in_words(traits.get(client)) or "–"] if traits else row)
    return Table("Share of the copies' p-values below 0.05, worst first", columns, rows)


def _controls(facts: InferenceFacts) -> Table:
    found = controls(facts)
    has_units = any(one.units for one in found)
    columns = [Column("pair"), Column("smallest influence found", True)]
    columns += [Column("which moves, in its own unit")] if has_units else []
    rows = [
        [one.edge, format_digits(one.size), *([one.units or "–"] if has_units else [])]
        for one in found[:MOST_CONTROLS]
    ]
    return Table("Found with 80 % probability, hardest first", columns, rows)
