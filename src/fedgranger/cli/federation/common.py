"""What the federation's commands share."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from fedgranger.cli.console import err
from fedgranger.runtime.flare.certificates import check_certificates

__all__ = ["AuthorityFolder", "AuthorityKey", "Kit", "check_kit", "federation", "say"]

federation = typer.Typer(
    no_args_is_help=True,
    help="Run between parties that keep their data: init, request, start, check, run, status.",
)
Kit = Annotated[Path, typer.Argument(help="A start-up kit made by 'federation init'.")]
AuthorityFolder = Annotated[Path, typer.Argument(help="The folder 'authority' of the organiser.")]
AuthorityKey = Annotated[
    Path | None, typer.Option("--key", help="The authority's rootCA.key, if it lies elsewhere.")
]


def say(sentence: str) -> None:
    """Tell the user something beside the result."""
    err.print(escape(sentence), soft_wrap=True)


def check_kit(kit: Path) -> None:
    """Refuse a kit whose certificate cannot work; say when it soon will not."""
    for sentence in check_certificates(kit, datetime.now(UTC)):
        say(sentence)
