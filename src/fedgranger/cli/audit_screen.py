"""What `fedgranger audit` shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.markup import escape

from fedgranger.cli.console import out, print_json, print_line
from fedgranger.cli.narrow_tables import NarrowTable
from fedgranger.errors import RunError
from fedgranger.inference.answer import nothing_tested
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
from fedgranger.results import Result
from fedgranger.tested_facts import AuditFacts, InferenceFacts

CONTROL_FACTS = ("positive_control", "innovation_sensor")


def show_audit(result: Result, run: Path, top: int, *, json_output: bool) -> None:
    """Both tests' audits, where there are two, in sentences and tables or as JSON."""
    facts = result.manifest.inference
    if result.inference is None:
        raise RunError(f"{run}: nothing was tested: {nothing_tested(facts)}")
    tests = (facts,) if facts.beside is None else (facts, facts.beside)
    found = [(part, part.audit) for part in tests if part.audit is not None]
    if not found:
        raise RunError(
            f"{run}: no copies with shifted clocks; fit with test='auto', 'readings' or 'nonlinear'"
        )
    if json_output:
        print_json([_plain(*one) for one in found])
        return
    print_line(f"{verdict(facts)}\n", f"[bold]{TITLE}[/] ")
    for part, audit in found:
        _print_part(part, audit, top)


def _plain(part: InferenceFacts, audit: AuditFacts) -> dict[str, Any]:
    """The audit of one test with its positive control."""
    return audit | {key: part[key] for key in CONTROL_FACTS if key in part}


def _print_part(part: InferenceFacts, audit: AuditFacts, top: int) -> None:
    for line in filter(None, [*audit_sentences(part), quantile_sentence(audit)]):
        print_line(line)
    out.print(_by_client(audit))
    for line in control_sentences(part):
        print_line(line)
    if part.positive_control and top:
        out.print(_by_pair(part, top))
    out.print("")


def _by_client(found: AuditFacts) -> NarrowTable:
    traits = found.clients or {}
    columns = ("client", "as effect", "as cause", *(["its record"] if traits else []))
    rows = []
    for client, effect in found.by_effect.items():
        cause = found.by_cause.get(client, [None, None])
        words = [escape(traits_in_words(traits.get(client)) or "–")] if traits else []
        rows.append((escape(client), share(effect), share(cause), *words))
    return NarrowTable(columns, rows, left=("client", "its record"))


def _by_pair(part: InferenceFacts, top: int) -> NarrowTable:
    shown = controls(part)[:top]
    with_units = any(one.units for one in shown)
    unit = "which moves, in its own unit"
    rows = (
        (escape(one.edge), f"{one.size:.3g}", *([escape(one.units)] if with_units else []))
        for one in shown
    )
    columns = ("pair", "smallest influence found", *([unit] if with_units else []))
    return NarrowTable(columns, rows, left=("pair", unit))
