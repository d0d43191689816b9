"""`fedgranger fit`; `demo` and a run between parties use parts of it."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgranger.cli.console import (
    INTERRUPTED,
    NOTHING_TESTED,
    err,
    friendly,
    out,
    print_line,
    print_note,
    progress_report,
)
from fedgranger.cli.options import DataOptions, FitOptions, merge, with_options
from fedgranger.cli.tables import bytes_table, edge_table, headline, ledger_table, untested_lines
from fedgranger.client.params import read_models
from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.errors import RunError
from fedgranger.federation.agreed_options import FederationOptions
from fedgranger.flare.simulation import fit_simulated
from fedgranger.inference.response_words import response_sentences
from fedgranger.option_fields import check_choice
from fedgranger.privacy.coverage import privacy_sentence
from fedgranger.report.html import write_run_report
from fedgranger.results import Result
from fedgranger.runtime import checkpoint, progress
from fedgranger.runtime.fitting import fit_panel
from fedgranger.runtime.setup import check_names


@friendly
@with_options(FitOptions)
def fit(
    data: Annotated[Path, typer.Argument(help="Folder with one file per client, or one table.")],
    out_folder: Annotated[Path, typer.Option("--out", help="Run folder to write.")],
    config: Annotated[Path | None, typer.Option(help="TOML file with options.")] = None,
    resume: Annotated[bool, typer.Option(help="Continue an interrupted run.")] = False,
    overwrite: Annotated[bool, typer.Option(help="Replace what the run folder holds.")] = False,
    runtime: Annotated[
        str, typer.Option(help="inprocess, or flare: NVIDIA FLARE's simulator, same numbers.")
    ] = "inprocess",
    checkpoint_every: Annotated[
        float | None, typer.Option(help="Seconds between checkpoints; default 10.", min=0.0)
    ] = None,
    *,
    given: dict[str, Any],
) -> None:
    """Learn which client drives which; all parties are simulated on this machine.

    Exit status 0; 2: refused; 3: the run is written but nothing could be tested; 130: interrupted.
    """
    check_choice("runtime", runtime, ("inprocess", "flare"))
    check_folder(out_folder, resume=resume, overwrite=overwrite)
    if runtime == "flare" and resume:
        raise RunError("a simulated FLARE run cannot be resumed; leave --resume out")
    if runtime == "flare" and checkpoint_every is not None:
        raise RunError("a simulated FLARE run has no checkpoints; leave --checkpoint-every out")
    data_options, run_config = merge(config, given)
    result = run_fit(
        data,
        out_folder,
        data_options,
        run_config,
        resume=resume,
        checkpoint_seconds=10.0 if checkpoint_every is None else checkpoint_every,
        runtime=runtime,
    )
    training = result.manifest["training"]
    print_answer(result, 10)
    print_line(f"\n{training['status']}")
    if "step_size_reason" in training:
        print_line(f"step sizes: {training['step_size_reason']}")
    print_privacy(result)
    out.print("\nwhat left each client:")
    sent = result.manifest["bytes"]
    out.print(ledger_table(sent) if runtime == "flare" else bytes_table(sent))
    print_line(f"\nwritten to {out_folder} (open report.html)")
    leave_if_untested(result)


def check_folder(folder: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse to write over something before any work is done."""
    if resume and overwrite:
        raise RunError("--resume and --overwrite contradict each other; give one of them")
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RunError(f"{folder}: is a file; give --out a folder")
    log = progress.read_log(folder)
    if progress.is_going_on(log):
        raise RunError(
            f"{folder}: a fit is writing there right now (process {log[0].get('process')}); look "
            "at it with 'fedgranger watch', or give another --out; if it was killed, try again "
            f"{progress.SILENT_SECONDS:g} s later"
        )
    kept = ("manifest.json", checkpoint.FILE_NAME, progress.FILE_NAME)
    if any((folder / name).exists() for name in kept) and (resume or overwrite):
        return
    if (folder / "manifest.json").exists():
        raise RunError(f"{folder}: holds a finished run; use --overwrite or another --out")
    if (folder / checkpoint.FILE_NAME).exists():
        raise RunError(
            f"{folder}: holds an interrupted run; use --resume to continue it, --overwrite to "
            "start again, or another --out"
        )
    if (folder / progress.FILE_NAME).exists():
        raise RunError(
            f"{folder}: holds a run that was killed before its first checkpoint; use --overwrite "
            "to start again, or another --out"
        )
    if any(folder.iterdir()):
        raise RunError(f"{folder}: is not empty and not a run; give --out another folder")


def print_answer(result: Result, limit: int | None) -> None:
    """The headline, the edges (when any pair was tested) and what was not tested."""
    print_line(headline(result))
    if result.inference is None:
        return
    edges = result.edges(sort=True)
    out.print(edge_table(edges, limit))
    facts = result.test_facts()
    words = response_sentences(facts, result.manifest["data"]).values()
    for line in (*words, *untested_lines(edges, facts)):
        print_line(line)


def print_privacy(result: Result) -> None:
    """What the noise of a private run is worth."""
    facts = result.manifest.get("privacy")
    if facts is not None:
        print_line(f"privacy: {privacy_sentence(facts)}")
        if result.manifest["runtime"] == "inprocess":
            print_note(
                "all parties were in one process: the run folder also holds what only clients "
                "know (θ, notes on sensors, what is normal), without noise"
            )


def leave_if_untested(result: Result) -> None:
    """Leave with exit status 3 when a test was wanted and none could be made."""
    if result.inference is None and result.config.test != "none":
        raise typer.Exit(NOTHING_TESTED)


def run_fit(
    source: Path,
    folder: Path,
    data: DataOptions,
    config: RunConfig,
    *,
    resume: bool = False,
    checkpoint_seconds: float = 10.0,
    runtime: str = "inprocess",
) -> Result:
    """Read the data, fit, write the run folder and its report; Ctrl-C leaves a checkpoint."""
    models = None if data.models is None else read_models(Path(data.models))
    reading = {name: value for name, value in asdict(data).items() if name != "models"}
    panel = Panel.read(source, **reading)
    for note in panel.notes:
        print_note(note)
    check_names(panel, config, models or {})
    try:
        with progress_report() as report:
            result = (
                fit_simulated(panel, FederationOptions(config), models)
                if runtime == "flare"
                else fit_panel(
                    panel,
                    config,
                    models=models,
                    checkpoint_folder=folder,
                    checkpoint_seconds=checkpoint_seconds,
                    resume=resume,
                    report=report,
                )
            )
    except KeyboardInterrupt:
        hint = (
            "add --resume to the same command to continue"
            if (folder / checkpoint.FILE_NAME).exists()
            else "nothing was written yet"
        )
        err.print(f"[yellow]interrupted:[/] {hint}", soft_wrap=True)
        sys.exit(INTERRUPTED)
    result.manifest["command"] = shlex.join(["fedgranger", *sys.argv[1:]])
    for old in ("manifest.json", "evaluation.json"):  # from here on the old run is gone
        (folder / old).unlink(missing_ok=True)
    result.save(folder)
    write_run_report(folder / "report.html", result)
    for name in (checkpoint.FILE_NAME, progress.FILE_NAME):
        (folder / name).unlink(missing_ok=True)
    for name, facts in result.manifest["data"]["clients"].items():
        for note in facts["notes"]:
            print_note(f"client '{name}': {note}")
    return result
