"""Section on the audit: shifted clocks, quantile plot, worst clients and the positive control."""

from collections.abc import Mapping
from typing import Any

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
from fedgranger.report.charts import p_quantiles
from fedgranger.report.facts import section_of
from fedgranger.report.view import Audit, Column, Table, TestAudit
from fedgranger.text import format_digits

MOST_CONTROLS = 30


def audit_view(manifest: Mapping[str, Any]) -> Audit | None:
    """The audit of the run's own test and of the other one; None without tests."""
    facts = section_of(manifest, "inference")
    if "reason" in facts or facts.get("test") in (None, "none"):
        return None
    beside = section_of(facts, "beside")
    own = _test_audit("audit", facts, verdict(facts))
    if not beside:
        return Audit(TITLE, own, None)
    conclusion = verdict(beside) if "audit" in beside else ""
    return Audit(TITLE, own, _test_audit("audit-beside", beside, conclusion))


def _test_audit(key: str, facts: Mapping[str, Any], conclusion: str) -> TestAudit:
    found, sentences = section_of(facts, "audit"), audit_sentences(facts)
    words = [*sentences, quantile_sentence(found)] if sentences else []
    control, kind = control_sentences(facts), str(facts.get("test"))
    return TestAudit(
        name=EDGE_TESTS[kind].title if kind in EDGE_TESTS else "other test",
        verdict=conclusion,
        sentences=tuple(filter(None, words)),
        chart=p_quantiles(key, section_of(found, "quantiles")) if sentences else None,
        clients=_clients(found) if sentences else None,
        control=" ".join(control),
        controls=_controls(facts) if control else None,
        more_controls=len(controls(facts)) - MOST_CONTROLS,
    )


def _clients(found: Mapping[str, Any]) -> Table:
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
