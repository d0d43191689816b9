"""`fedgranger audit`: can these p-values be trusted on this data?"""

from __future__ import annotations

from typing import Annotated

import typer

from fedgranger.cli.command_line import examples
from fedgranger.cli.console import Json, Run, busy


@examples("fedgranger audit run", "fedgranger audit run --json > audit.json")
def audit(
    run: Run,
    top: Annotated[
        int, typer.Option(help="Pairs shown with their smallest influence, hardest first.", min=0)
    ] = 10,
    json_output: Json = False,
) -> None:
    """Show how often the tests find edges where none can be, where and why, and what they miss."""
    with busy(f"reading {run}"):
        from fedgranger.cli.audit_screen import show_audit
        from fedgranger.results import Result

        result = Result.load(run)
    show_audit(result, run, top, json_output=json_output)
