"""`fedgranger audit`: can these p-values be trusted on this data?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fedgranger.cli.console import Json, Run, friendly, make_table, out, print_line
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

CONTROL_FACTS = ("positive_control", "innovation_sensor")


@friendly
def audit(
    run: Run,
    top: Annotated[
        int, typer.Option(help="Pairs shown with their smallest influence, hardest first.", min=0)
    ] = 10,
    json_output: Json = False,
) -> None:
    """Show how often the tests find edges where none can be, where and why, and what they miss."""
    result = Result.load(run)
    facts = result.manifest["inference"]
    if result.inference is None:
        raise RunError(f"{run}: nothing was tested: {nothing_tested(facts)}")
    found = [part for part in (facts, facts.get("beside")) if part and "audit" in part]
    if not found:
        raise RunError(f"{run}: no copies with shifted clocks; fit with test='auto' or 'readings'")
    if json_output:
        typer.echo(json.dumps([_plain(part) for part in found], indent=1))
        return
    out.print(f"[bold]{TITLE}[/] {escape(verdict(facts))}\n", soft_wrap=True)
    for part in found:
        _print_part(part, top)


def _plain(part: Mapping[str, Any]) -> dict[str, Any]:
    """The audit of one test with its positive control."""
    return part["audit"] | {key: part[key] for key in CONTROL_FACTS if key in part}


def _print_part(part: Mapping[str, Any], top: int) -> None:
    for line in filter(None, [*audit_sentences(part), quantile_sentence(part["audit"])]):
        print_line(line)
    out.print(_by_client(part["audit"]))
    for line in control_sentences(part):
        print_line(line)
    if part.get("positive_control") and top:
        out.print(_by_pair(part, top))
    out.print("")


def _by_client(found: dict[str, Any]) -> Table:
    traits = found.get("clients", {})
    columns = ("client", "as effect", "as cause", *(["its record"] if traits else []))
    rows = []
    for client, effect in found["by_effect"].items():
        cause = found["by_cause"].get(client, [None, None])
        words = [escape(traits_in_words(traits.get(client, {})) or "–")] if traits else []
        rows.append((escape(client), share(effect), share(cause), *words))
    return make_table(columns, rows, left=("client", "its record"))


def _by_pair(part: Mapping[str, Any], top: int) -> Table:
    shown = controls(part)[:top]
    with_units = any(one.units for one in shown)
    unit = "which moves, in its own unit"
    rows = (
        (escape(one.edge), f"{one.size:.3g}", *([escape(one.units)] if with_units else []))
        for one in shown
    )
    columns = ("pair", "smallest influence found", *([unit] if with_units else []))
    return make_table(columns, rows, left=("pair", unit))
