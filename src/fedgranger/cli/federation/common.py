"""What the federation's commands share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from fedgranger.cli.console import err
from fedgranger.cli.lazy import lazy_group
from fedgranger.errors import ConfigError, RunError
from fedgranger.flare.certificate_checks import check_certificates

if TYPE_CHECKING:
    from fedgranger.data.time_axis import LocalSeries
    from fedgranger.federation.policy import SitePolicy
    from fedgranger.flare.settings import ClientSettings

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
        "fedgranger.cli.federation.watch_sites",
        "Let every site watch its own new data; rank who started an anomaly, and tell the sites.",
    ),
}
"""Commands that need numerical libraries; the others register themselves."""

federation = typer.Typer(
    cls=lazy_group(HEAVY_COMMANDS),
    no_args_is_help=True,
    help="Run between parties that keep their data.",
)
Kit = Annotated[Path, typer.Argument(help="A start-up kit made by 'federation init'.")]
DataFile = Annotated[Path | None, typer.Option(help="The client's .csv or .parquet file.")]
Interval = Annotated[
    float | None, typer.Option(help="Sampling interval in seconds (or units of the column).")
]
AuthorityFolder = Annotated[Path, typer.Argument(help="The folder 'authority' of the organiser.")]
AuthorityKey = Annotated[
    Path | None, typer.Option("--key", help="The authority's rootCA.key, if it lies elsewhere.")
]


def print_sentence(sentence: str) -> None:
    """Tell the user something beside the result."""
    err.print(escape(sentence), soft_wrap=True)


def client_of(kit: Path) -> str:
    """The client's name.

    Raises:
        RunError: the kit is not a client's.
    """
    from fedgranger.flare.identity import role_of

    role, name = role_of(kit)
    if role != "client":
        raise RunError(f"{kit}: is not a client's kit; pass a folder 'client-…'")
    return name


def read_and_check(
    kit: Path, data: Path | None, interval: float | None, given: Mapping[str, Any]
) -> tuple[ClientSettings, SitePolicy, LocalSeries]:
    """Read a client's policy and data as its runs will, before anybody else is involved.

    `given` are further settings, see `ClientSettings`.
    """
    from fedgranger.federation.policy import POLICY_FILE, read_policy
    from fedgranger.flare.settings import ClientSettings, read_series

    name = client_of(kit)
    if data is None:
        raise ConfigError(f"client '{name}' needs its data: --data FILE")
    policy = read_policy(kit / POLICY_FILE)
    file = str(data.resolve())
    settings = ClientSettings(file, interval=interval, **given)
    series, notes = read_series(name, settings, policy)
    for note in notes:
        print_sentence(note)
    if interval is not None and series.time.dtype.kind == "M":  # kept in nanoseconds
        settings = replace(settings, interval=1e9 * interval)
        series = series._replace(interval=settings.interval)
    return settings, policy, series


def check_kit(kit: Path) -> None:
    """Refuse a kit whose certificate cannot work; say when it soon will not."""
    for sentence in check_certificates(kit, datetime.now(UTC)):
        print_sentence(sentence)
