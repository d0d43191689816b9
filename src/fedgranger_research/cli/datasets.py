"""`fedgranger datasets`: public data sets from their publishers' files to clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from fedgranger.cli.command_line import CommandGroup
from fedgranger.cli.console import err, out, progress_report
from fedgranger.errors import ConfigError
from fedgranger_research.datasets import NAMES, PreparedDataset, describe, iter_machines, load
from fedgranger_research.datasets.folder import (
    check_target,
    new_folder,
    write_machines_index,
    write_prepared,
)
from fedgranger_research.datasets.smd import machines

datasets = CommandGroup(
    no_args_is_help=True, help="Prepare public data sets; nothing is downloaded."
)


@datasets.command("list")
def list_datasets() -> None:
    """List the data sets that can be prepared."""
    table = Table(box=None, pad_edge=False)
    for column in ("name", "clients", "title"):
        table.add_column(column, no_wrap=column != "title")
    for name in NAMES:
        info = describe(name)
        table.add_row(name, info.clients.partition(":")[0], escape(info.title))
    out.print(table)
    out.print("\nfedgranger datasets info NAME: where to get it, licence, files, clients")


@datasets.command("info")
def show_info(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES)}.")],
) -> None:
    """Say where a data set is, what it allows, what is expected and how it is cut."""
    info = describe(name)
    out.print(f"[bold]{escape(info.title)}[/]\n")
    parts: tuple[tuple[str, str | tuple[str, ...]], ...] = (
        ("get it from", info.address),
        ("licence", info.licence),
        ("cite", info.citations),
        ("files expected in PATH", info.files),
        ("clients", info.clients),
        ("root cause", info.root_rule),
        ("mind", info.caveats),
    )
    for head, text in parts:
        out.print(f"[cyan]{head}[/]")
        for line in (text,) if isinstance(text, str) else text:
            out.print(f"  {escape(line)}", soft_wrap=True)
    choose = " --all" if "machine" in info.options else ""
    out.print(f"\nfedgranger datasets prepare {name} PATH --out FOLDER{choose}")


@datasets.command("prepare")
def prepare(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES)}.")],
    path: Annotated[Path, typer.Argument(help="Folder with the publisher's files.")],
    out_folder: Annotated[Path, typer.Option("--out", help="Folder to write.")],
    partition: Annotated[
        Path | None, typer.Option(help="JSON or TOML file: client -> columns. [our own]")
    ] = None,
    machine: Annotated[str | None, typer.Option(help="SMD: prepare this machine.")] = None,
    all_machines: Annotated[
        bool, typer.Option("--all", help="SMD: prepare every machine, one folder each.")
    ] = False,
    assign_p4: Annotated[
        bool, typer.Option("--assign-p4", help="HAI: P4_ST_* go to P2 and P4_HT_* to P3.")
    ] = False,
    attacks: Annotated[
        Path | None, typer.Option(help="HAI: csv of attacks: start, end, root_clients.")
    ] = None,
    accept_changed: Annotated[
        bool, typer.Option("--accept-changed", help="Read files with another hash, with a note.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier preparation.")
    ] = False,
) -> None:
    """Check a publisher's files and write them as clients, labels and root causes."""
    describe(name)
    check_target(out_folder, overwrite=overwrite)
    if all_machines and name != "smd":
        raise ConfigError(f"{name} has no machines; leave --all out")
    if all_machines and machine is not None:
        raise ConfigError("--all and --machine contradict each other; give one of them")
    options: dict[str, Any] = {
        "partition": partition,
        "machine": machine,
        "assign_p4": assign_p4,
        "attacks": attacks,
        "accept_changed": accept_changed,
    }
    if all_machines:
        _prepare_machines(path, out_folder, partition, accept_changed, overwrite=overwrite)
        return
    with progress_report() as report, new_folder(out_folder, overwrite=overwrite) as draft:
        dataset = load(name, path, report=report, **options)
        report("writing", 0, 1)
        write_prepared(dataset, draft)
        report("writing", 1, 1)
    for note in dataset.facts["notes"]:
        err.print(f"[dim]note:[/] {escape(note)}", soft_wrap=True)
    out.print(_summary(dataset), soft_wrap=True)
    _next_step(out_folder / "train")


def _prepare_machines(
    path: Path, folder: Path, partition: Path | None, accept_changed: bool, *, overwrite: bool
) -> None:
    names = machines(path)
    facts, instances = [], []
    with progress_report() as report, new_folder(folder, overwrite=overwrite) as draft:
        loaded = iter_machines(path, partition=partition, accept_changed=accept_changed)
        for done, dataset in enumerate(loaded):
            machine = str(dataset.facts["machine"])
            (draft / machine).mkdir()
            write_prepared(dataset, draft / machine)
            facts.append(dataset.facts)
            instances.append(dataset.instances)
            report("machines", done + 1, len(names))
        write_machines_index(draft, facts, instances)
    for entry in facts:
        dropped = sum(len(columns) for columns in entry["constant_columns"].values())
        if dropped:
            err.print(
                f"[dim]note:[/] {entry['machine']}: {dropped} columns are constant in the "
                "training data and were dropped (dataset.json names them)",
                soft_wrap=True,
            )
    count = sum(len(table) for table in instances)
    out.print(f"{len(facts)} machines, {count} anomalies with root causes", soft_wrap=True)
    _next_step(folder / names[0] / "train")


def _summary(dataset: PreparedDataset) -> str:
    counts = dataset.facts["counts"]
    sizes = ", ".join(f"{client} {count}" for client, count in counts["columns"].items())
    return (
        f"{escape(dataset.name)}: {counts['train_rows']} training rows, {counts['runs']} runs with "
        f"{counts['run_rows']} rows, {counts['instances']} anomalies "
        f"({counts['single_root_instances']} with one root client); columns: {escape(sizes)}"
    )


def _next_step(folder: Path) -> None:
    out.print(f"next: fedgranger fit {escape(str(folder))} --out RUN", soft_wrap=True)
