"""What the federation's commands share."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from fedgranger.cli.command_line import CommandGroup
from fedgranger.cli.console import print_beside
from fedgranger.cli.lazy import lazy_group
from fedgranger.errors import RunError
from fedgranger.flare.certificate_checks import check_certificates
from fedgranger.flare.identity import role_of

HEAVY_COMMANDS = {
    "check": (
        "fedgranger.cli.federation.runs",
        "Test connection, certificates, versions, clocks and common time, without a run.",
    ),
    "run": (
        "fedgranger.cli.federation.runs",
        "Learn which client drives which; resumes after faults, and when the command is repeated.",
    ),
    "watch": (
        "fedgranger.cli.federation.runs",
        "Let every site watch its own new data; rank who started an anomaly, and tell the sites.",
    ),
}
"""Commands that need numerical libraries; the others register themselves."""

federation = CommandGroup(
    cls=lazy_group(HEAVY_COMMANDS),
    no_args_is_help=True,
    help="Run between parties that keep their data.",
)
Kit = Annotated[Path, typer.Argument(help="A start-up kit made by 'federation init'.")]
AuthorityFolder = Annotated[Path, typer.Argument(help="The folder 'authority' of the organiser.")]
AuthorityKey = Annotated[
    Path | None, typer.Option("--key", help="The authority's rootCA.key, if it lies elsewhere.")
]


def check_kit(kit: Path) -> None:
    """Refuse a kit whose certificate cannot work; say when it soon will not."""
    for sentence in check_certificates(kit, datetime.now(UTC)):
        print_beside(sentence)


def client_of(kit: Path) -> str:
    """The client's name; refuses a kit that is not a client's."""
    role, name = role_of(kit)
    if role != "client":
        raise RunError(f"{kit}: is not a client's kit; pass a folder 'client-…'")
    return name
