"""What the federation's commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedgranger.cli.console import err

__all__ = ["Kit", "federation", "say"]

federation = typer.Typer(
    no_args_is_help=True,
    help="Run between parties that keep their data: init, start, check, run, status.",
)
Kit = Annotated[Path, typer.Argument(help="A start-up kit made by 'federation init'.")]


def say(sentence: str) -> None:
    """Tell the user something beside the result."""
    err.print(escape(sentence), soft_wrap=True)
