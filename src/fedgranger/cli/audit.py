"""`fedgranger audit`: can these p-values be trusted on this data?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fedgranger.cli.console import friendly, out
from fedgranger.errors import RunError

__all__ = ["audit", "audit_lines"]

NAMES = {"debiased": "latent test", "readings": "readings' test"}


@friendly
def audit(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON instead.")] = False,
) -> None:
    """Show how often the tests find edges where none can be: with every client's clock shifted."""
    from fedgranger.results import Result

    facts = Result.load(run).manifest["inference"]
    found = [part for part in (facts, facts.get("beside")) if part and "audit" in part]
    if not found:
        raise RunError(f"{run}: no copies with shifted clocks; fit with test='auto' or 'readings'")
    if json_output:
        typer.echo(json.dumps([part["audit"] for part in found], indent=1))
        return
    for part in found:
        for line in audit_lines(part):
            out.print(escape(line), soft_wrap=True)
        out.print(_by_client(part["audit"]))
        out.print("")


def audit_lines(facts: dict[str, Any]) -> list[str]:
    """What shifted clocks say of a test, in sentences; nothing when it was not tried."""
    found = facts.get("audit")
    if found is None or found["rate"][0] is None:
        return []
    (rate, error), (strict, strict_error) = found["rate"], found["rate_01"]
    low, high = found["band"]
    lines = [
        f"{NAMES[found['test']]}: in {found['copies']} copies with shifted clocks, where no edge "
        f"can be true, its own p-values are below 0.05 in {_share(rate, error)} and below 0.01 in "
        f"{_share(strict, strict_error)} of the pairs (believed between {low:g} and {high:g})"
    ]
    if found["refused"]:
        lines.append(f"{found['refused']} of the copies could not be tested")
    if facts["test"] == "readings":
        lines.append("the p-values of the edges come from these copies, not from a formula")
        beyond = facts.get("extrapolated", [])
        if beyond:
            lines.append(
                f"{len(beyond)} statistics lie beyond every copy; their p-values extrapolate the "
                f"tail below {1 / (found['copies'] + 1):.3f}: {', '.join(beyond[:5])}"
                + (" and others" if len(beyond) > 5 else "")
            )
    return lines


def _share(rate: float, error: float) -> str:
    return f"{rate:.3f} ± {error:.3f}"


def _by_client(found: dict[str, Any]) -> Table:
    table = Table(box=None, header_style="bold")
    for name in ("client", "as effect", "as cause"):
        table.add_column(name, justify="left" if name == "client" else "right")
    for client, effect in found["by_effect"].items():
        cause = found["by_cause"].get(client, [None, None])
        cells = ("–" if pair[0] is None else _share(*pair) for pair in (effect, cause))
        table.add_row(escape(client), *cells)
    return table
