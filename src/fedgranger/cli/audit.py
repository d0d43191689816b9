"""`fedgranger audit`: can these p-values be trusted on this data?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fedgranger.cli.console import Json, Run, friendly, out
from fedgranger.errors import RunError

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
    from fedgranger.inference.answer import nothing_tested
    from fedgranger.inference.audit_words import TITLE, verdict
    from fedgranger.results import Result

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
    from fedgranger.inference.audit_words import (
        audit_sentences,
        control_sentences,
        quantile_sentence,
    )

    sentences = [*audit_sentences(part), quantile_sentence(part["audit"])]
    for line in filter(None, sentences):
        out.print(escape(line), soft_wrap=True)
    out.print(_by_client(part["audit"]))
    for line in control_sentences(part):
        out.print(escape(line), soft_wrap=True)
    if part.get("positive_control") and top:
        out.print(_by_pair(part, top))
    out.print("")


def _by_client(found: dict[str, Any]) -> Table:
    from fedgranger.inference.audit_words import share
    from fedgranger.inference.record_traits import traits_in_words

    table = Table(box=None, header_style="bold")
    for name in ("client", "as effect", "as cause"):
        table.add_column(name, justify="left" if name == "client" else "right")
    traits = found.get("clients", {})
    if traits:
        table.add_column("its record", justify="left")
    for client, effect in found["by_effect"].items():
        cause = found["by_cause"].get(client, [None, None])
        cells = [share(effect), share(cause)]
        if traits:
            cells.append(escape(traits_in_words(traits.get(client, {})) or "–"))
        table.add_row(escape(client), *cells)
    return table


def _by_pair(part: Mapping[str, Any], top: int) -> Table:
    from fedgranger.inference.audit_words import controls

    shown = controls(part)[:top]
    table = Table(box=None, header_style="bold")
    table.add_column("pair")
    table.add_column("smallest influence found", justify="right")
    if any(one.units for one in shown):
        table.add_column("which moves, in its own unit")
    for one in shown:
        units = [escape(one.units)] if len(table.columns) > 2 else []
        table.add_row(escape(one.edge), f"{one.size:.3g}", *units)
    return table
