"""`fedgranger reproduce`: the paper's figures and tables, with their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from fedgranger.cli.command_line import CommandGroup
from fedgranger.cli.console import leave_interrupted, out, progress_report
from fedgranger.errors import ConfigError
from fedgranger_research.reproduction.catalogue import FIGURES, TABLES
from fedgranger_research.reproduction.causal_discovery import NUM_SEEDS, causal_discovery_item
from fedgranger_research.reproduction.hai_stress import hai_stress_item
from fedgranger_research.reproduction.nonlinear_figure import nonlinear_item
from fedgranger_research.reproduction.root_cause_table import root_cause_item
from fedgranger_research.reproduction.runner import Item
from fedgranger_research.reproduction.runner import reproduce as compute

reproduce = CommandGroup(no_args_is_help=True, help="The paper's figures and tables, made again.")

Name = Annotated[str, typer.Argument(help="Name of one, or 'all'; leave it out to list the names.")]
Output = Annotated[Path, typer.Option("--output", help="Folder for pictures, numbers and text.")]
Quick = Annotated[
    bool, typer.Option("--quick", help="Few settings and rounds, to see that everything works.")
]
Listing = Annotated[bool, typer.Option("--list", help="Show the names, compute nothing.")]


@reproduce.callback()
def main() -> None:
    """The paper's figures and tables on synthetic data: NAME.png, .svg, .csv and .md each."""


@reproduce.command()
def figure(
    name: Name = "",
    output: Output = Path("reproduced"),
    quick: Quick = False,
    show_list: Listing = False,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Folder with public data sets, for hai-stress and nonlinear."),
    ] = None,
) -> None:
    """Make a figure of the paper again and list its numbers.

    Single settings are kept: the same command continues where it was interrupted. hai-stress needs
    --data: a folder with a subfolder hai; nonlinear also uses it when it is given.
    """
    figures = {**FIGURES, "nonlinear": nonlinear_item(data)}
    items = _with_data(figures, "hai-stress", hai_stress_item, name, data, "hai")
    _make(
        "figure", items, name, output, quick=quick, show_list=show_list, with_data=("hai-stress",)
    )


@reproduce.command()
def table(
    name: Name = "",
    output: Output = Path("reproduced"),
    quick: Quick = False,
    show_list: Listing = False,
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder with public data sets, for root-cause.")
    ] = None,
    data_sets: Annotated[
        int, typer.Option(help="Simulated data sets, for causal-discovery.", min=2)
    ] = NUM_SEEDS,
    jobs: Annotated[int, typer.Option(help="Processes.", min=1)] = 1,
) -> None:
    """Make a table of the paper again.

    Single settings are kept: the same command continues where it was interrupted. root-cause needs
    --data: a folder with a subfolder per public data set (tep, smd, batadal, hai).
    """
    subfolders = "tep, smd, batadal or hai"
    items = _with_data(TABLES, "root-cause", root_cause_item, name, data, subfolders)
    items["causal-discovery"] = causal_discovery_item(data_sets)
    _make(
        "table",
        items,
        name,
        output,
        quick=quick,
        show_list=show_list,
        jobs=jobs,
        with_data=("root-cause",),
    )


def _with_data(
    items: Mapping[str, Item],
    extra: str,
    make_item: Callable[[Path], Item],
    name: str,
    data: Path | None,
    subfolders: str,
) -> dict[str, Item]:
    """Add the item that needs public data, when they are given."""
    if data is not None:
        return {**items, extra: make_item(data)}
    if name == extra:
        raise ConfigError(
            f"{extra} needs --data, a folder with the subfolder {subfolders}; "
            "'fedgranger datasets info NAME' says where to get it"
        )
    return dict(items)


def _make(
    kind: str,
    items: Mapping[str, Item],
    name: str,
    output: Path,
    *,
    quick: bool,
    show_list: bool,
    jobs: int = 1,
    with_data: Sequence[str] = (),
) -> None:
    if show_list or not name:
        out.print(_names(items))
        return
    if name != "all" and name not in items:
        known = [*items, *(f"{one} (with --data)" for one in with_data if one not in items)]
        raise ConfigError(f"no {kind} '{name}'; choose one of {', '.join(known)} or all")
    missing: ConfigError | None = None
    try:
        for item in items.values() if name == "all" else [items[name]]:
            missing = _one(item, output, quick=quick, jobs=jobs) or missing
    except KeyboardInterrupt:
        leave_interrupted("repeat the command to continue")
    if missing is not None:
        raise ConfigError(f"numbers are in {output}, pictures are not: {missing}")


def _one(item: Item, output: Path, *, quick: bool, jobs: int = 1) -> ConfigError | None:
    """Compute, draw and print; returns what kept it from drawing."""
    with progress_report() as report:
        numbers = compute(item, output, quick=quick, jobs=jobs, report=report)
    missing = None
    try:
        if item.draw is not None:
            item.draw(output, numbers)
    except ConfigError as error:
        missing = error
    out.print(f"[bold]{item.name}[/]: {escape(item.title)}", soft_wrap=True)
    out.print(escape(item.markdown(numbers)), soft_wrap=True)
    endings = ".csv and .md" if missing or item.draw is None else ".png, .svg, .csv and .md"
    out.print(f"written: {escape(str(output / item.name))}{endings}\n", soft_wrap=True)
    return missing


def _names(items: Mapping[str, Item]) -> Table:
    listing = Table(box=None, show_header=False)
    listing.add_column(no_wrap=True, style="bold")
    listing.add_column()
    for item in items.values():
        listing.add_row(item.name, escape(item.title))
    if "scalability" in items and "root-cause" not in items:
        listing.add_row("root-cause", "needs --data: accuracy on public data sets")
    if "qq" in items and "hai-stress" not in items:
        listing.add_row("hai-stress", "needs --data: traces and errors on HAI's normal operation")
    listing.add_row("all", "one after the other")
    return listing
