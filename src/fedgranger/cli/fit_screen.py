"""What `fedgranger fit` does and shows; `demo` and a run between parties use parts of it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import typer

from fedgranger.cli.console import (
    NOTHING_TESTED,
    Amount,
    leave_interrupted,
    out,
    print_json,
    print_line,
    print_note,
    progress_report,
)
from fedgranger.cli.options import DataOptions
from fedgranger.cli.tables import bytes_table, edge_table, headline, ledger_table, untested_lines
from fedgranger.client.params import read_models
from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.data.reading_options import PanelOptions
from fedgranger.errors import RunError
from fedgranger.federation.agreed_options import FederationOptions
from fedgranger.flare.simulation import fit_simulated
from fedgranger.inference.response_words import edge_sentences
from fedgranger.privacy.coverage import privacy_sentence
from fedgranger.report.html import write_run_report
from fedgranger.results import Result
from fedgranger.run_folder import CHECKPOINT, FORMER
from fedgranger.runtime import progress
from fedgranger.runtime.checkpoint import refuse_former
from fedgranger.runtime.fitting import COPIES_FILE, fit_panel
from fedgranger.runtime.setup import check_names
from fedgranger.text import counted

SHOWN_EDGES = 10


def show_fit(result: Result, folder: Path, *, json_output: bool) -> None:
    """The answer, how training went, what each client sends; with --quiet the answer alone."""
    if json_output:
        print_json(plain_answer(result, folder))
        return
    print_answer(result, None if Amount.is_verbose else SHOWN_EDGES)
    training, sent = result.manifest.training, result.manifest.bytes
    if Amount.is_quiet:
        return
    print_line(f"\n{training.status}")
    if training.step_size_reason is not None:
        print_line(f"step sizes: {training.step_size_reason}")
    print_privacy(result)
    is_local = result.manifest.runtime == "inprocess"
    rounds = "" if result.config.solver == "none" else ", FedGC's rounds included"
    out.print(f"\nwhat each client {'would send' if is_local else 'sent'}{rounds}:")
    out.print(bytes_table(sent) if is_local else ledger_table(sent))
    if Amount.is_verbose:
        for name, seconds in result.manifest.timings.items():
            print_line(f"{name}: {seconds:.3g}")
    print_line(f"\nwritten to {folder} (open report.html)")


def plain_answer(result: Result, folder: Path) -> dict[str, Any]:
    """The answer of a run for JSON: sentence, edges, doubts, and what left the clients."""
    return {
        "run": folder,
        "headline": headline(result),
        "edges": result.edges(sort=True).to_dict("records"),
        "warnings": result.manifest.inference.warnings,
        "notes": result.manifest.data.notes,
        "training": result.manifest.training.status,
        "bytes": result.manifest.bytes,
        "privacy": result.manifest.privacy,
    }


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
    if not overwrite:
        refuse_former(folder)
    kept = ("manifest.json", CHECKPOINT, FORMER, progress.FILE_NAME)
    if any((folder / name).exists() for name in kept) and (resume or overwrite):
        return
    if (folder / "manifest.json").exists():
        raise RunError(f"{folder}: holds a finished run; use --overwrite or another --out")
    if (folder / CHECKPOINT).exists():
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
    hidden = edges.iloc[len(edges) if limit is None else limit :]
    if len(hidden):
        more = counted(len(hidden), "more pair")
        among = counted(int(hidden["is_edge"].fillna(False).sum()), "edge")
        print_line(f"and {more} ({among} among them): 'fedgranger edges RUN' lists all")
    facts = result.test_facts()
    words = edge_sentences(facts, result.manifest.data).values()
    for line in (*words, *untested_lines(edges, facts)):
        print_line(line)


def print_privacy(result: Result) -> None:
    """What the noise of a private run is worth."""
    facts = result.manifest.privacy
    if facts is not None:
        print_line(f"privacy: {privacy_sentence(facts)}")
        if result.manifest.data.findings is not None:  # which a site keeps to itself
            print_note(
                "all parties were on one machine: the run folder also holds what only clients "
                "know (θ, notes on sensors, what is normal), without noise"
            )


def leave_if_untested(result: Result) -> None:
    """Leave with exit status 3 when a test was wanted and none could be made."""
    if result.inference is None and result.config.test != "none":
        raise typer.Exit(NOTHING_TESTED)


def read_data(source: Path, data: DataOptions) -> Panel:
    """Read the clients' files, with a bar where that takes longer than a moment."""
    with progress_report() as report:
        return Panel.read(source, report=report, **data.values_of(PanelOptions))


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
    panel = read_data(source, data)
    for note in panel.notes:
        print_note(note)
    check_names(panel, config, models or {})
    try:
        with progress_report() as report:
            if runtime == "flare":
                result = fit_simulated(panel, FederationOptions(config), models)
            else:
                result = fit_panel(
                    panel,
                    config,
                    models=models,
                    checkpoint_folder=folder,
                    checkpoint_seconds=checkpoint_seconds,
                    resume=resume,
                    report=report,
                )
    except KeyboardInterrupt:
        is_kept = (folder / CHECKPOINT).exists()
        again = "add --resume to the same command to continue"
        leave_interrupted(again if is_kept else "nothing was written yet")
    result.manifest.command = shlex.join(["fedgranger", *sys.argv[1:]])
    for old in ("manifest.json", "evaluation.json"):  # from here on the old run is gone
        (folder / old).unlink(missing_ok=True)
    result.save(folder)
    write_run_report(folder / "report.html", result)
    torn = f"{CHECKPOINT}.new"  # of a process that was killed
    for name in (CHECKPOINT, torn, FORMER, COPIES_FILE, progress.FILE_NAME):
        (folder / name).unlink(missing_ok=True)
    for name, facts in result.manifest.data.clients.items():
        for note in facts.notes:
            print_note(f"client '{name}': {note}")
    return result
