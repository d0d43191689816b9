"""`fedgranger demo`: from simulated plants to a causal graph in one command."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from fedgranger.cli.console import friendly, out, print_line
from fedgranger.cli.fit import print_answer, run_fit
from fedgranger.cli.options import DataOptions
from fedgranger.cli.simulate import check_target, write_simulation
from fedgranger.cli.tables import bytes_table, score_table
from fedgranger.config import RunConfig
from fedgranger.data.synthetic import simulate
from fedgranger.errors import RunError
from fedgranger.evaluation.metrics import evaluate

CLIENTS = ("boiler", "compressor", "cooling", "reactor", "separator", "turbine")
NUM_STEPS = 5000
NUM_EDGES = 9
SEED = 0


@friendly
def demo(
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder for data, run and report.")
    ] = Path("fedgranger-demo"),
    open_report: Annotated[bool, typer.Option("--open", help="Open the report.")] = False,
) -> None:
    """Simulate six plants, learn who drives whom, compare with the truth, write a report."""
    data, run = out_folder / "data", out_folder / "run"
    if out_folder.exists() and any(out_folder.iterdir()) and not (data / "truth.json").exists():
        raise RunError(f"{out_folder}: is not empty and not an earlier demo; give --out another")
    check_target(data, overwrite=True)
    panel, truth = simulate(clients=CLIENTS, num_steps=NUM_STEPS, edges=NUM_EDGES, seed=SEED)
    write_simulation(data, panel, truth)
    print_line(
        f"Six plants with 8 sensors each, {NUM_STEPS} time steps, {NUM_EDGES} of 30 possible "
        "influences are real.\nNo plant shows its sensors to anyone: only states of two numbers "
        "travel."
    )
    result = run_fit(data, run, DataOptions(), RunConfig())
    out.print("")
    print_answer(result, NUM_EDGES + 3)
    out.print("\nAgainst the truth:")
    out.print(score_table(evaluate(result, truth)))
    out.print("\nWhat left each plant:")
    out.print(bytes_table(result.manifest["bytes"]))
    report = run / "report.html"
    print_line(f"\nOpen {report} to look at the graph.")
    if open_report:
        webbrowser.open(report.resolve().as_uri())
