"""The `fedgranger` command."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated

import typer

from fedgranger._version import __version__
from fedgranger.cli.command_line import CommandGroup
from fedgranger.cli.lazy import lazy_group

_SENTENCES = {
    "demo": "Simulate six plants, learn who drives whom, compare with the truth, write a report.",
    "simulate": "Write simulated data, one file per client, and the truth behind them.",
    "check": "Look at data before any fit: period, gaps, odd sensors, the exact command to fit.",
    "fit": "Learn which client drives which; all parties are simulated on this machine.",
    "edges": "List the edges of a run, most certain first.",
    "diagnose": (
        "Show residual checks, stationarity, conditioning, detectable strengths and other levels."
    ),
    "audit": (
        "Show how often the tests find edges where none can be, where and why, and what they miss."
    ),
    "evaluate": "Compare a run with what is known to be true; also written to RUN/evaluation.json.",
    "report": "Write the report of a run again: one page that needs no network.",
    "privacy": "Show what a run reveals about single measurements, or plan one.",
    "rca": "Rank the clients by how likely they started an anomaly, with the evidence.",
    "watch": "Follow a running fit until it ends; Ctrl-C leaves it alone.",
    "compare": (
        "Say which edges appeared, disappeared or stayed between two runs, or against a graph."
    ),
    "export": "Write the graph of a run for another tool.",
    "federation": "Run between parties that keep their data.",
}
COMMANDS = {name: (f"fedgranger.cli.{name}", text) for name, text in _SENTENCES.items()}
"""By name, the module that defines the command and a sentence; other packages add theirs."""
for _entry in entry_points(group="fedgranger.commands"):
    COMMANDS |= _entry.load()

app = CommandGroup(
    cls=lazy_group(COMMANDS),
    no_args_is_help=True,
    add_completion=True,
    help="Federated Granger causality: which party drives which, without sharing raw data.",
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"fedgranger {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Options before the command."""
