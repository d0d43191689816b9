"""What the federation's commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedgranger.cli.console import err
from fedgranger.cli.lazy import lazy_group

__all__ = ["HEAVY_COMMANDS", "Kit", "federation", "say"]

HEAVY_COMMANDS = {
    "check": (
        "fedgranger.cli.federation.runs",
        "Test connection, certificates, versions, clocks and common time, without a run.",
    ),
    "run": (
        "fedgranger.cli.federation.runs",
        "Learn which client drives which; goes on by itself after faults, and when given again.",
    ),
}
"""Commands that need numerical libraries; the others register themselves."""

federation = typer.Typer(
    cls=lazy_group(HEAVY_COMMANDS),
    no_args_is_help=True,
    help="Run between parties that keep their data.",
)
Kit = Annotated[Path, typer.Argument(help="A start-up kit made by 'federation init'.")]


def say(sentence: str) -> None:
    """Tell the user something beside the result."""
    err.print(escape(sentence), soft_wrap=True)
