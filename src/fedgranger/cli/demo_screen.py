"""What `fedgranger demo` does."""

from __future__ import annotations

import webbrowser
from pathlib import Path

from fedgranger.cli.console import out, print_line
from fedgranger.cli.fit_screen import print_answer, run_fit
from fedgranger.cli.options import DataOptions
from fedgranger.cli.simulate import check_target
from fedgranger.cli.simulation_files import write_simulation
from fedgranger.cli.tables import bytes_table, score_table
from fedgranger.config import RunConfig
from fedgranger.data.synthetic import simulate
from fedgranger.data.truth import Truth
from fedgranger.evaluation.metrics import evaluate

CLIENTS = ("boiler", "compressor", "cooling", "reactor", "separator", "turbine")
NUM_STEPS = 5000
NUM_EDGES = 9
SEED = 0


def write_plants(data: Path) -> Truth:
    """Simulate the plants and write their data; an earlier demo is replaced."""
    check_target(data, overwrite=True)
    panel, truth = simulate(clients=CLIENTS, num_steps=NUM_STEPS, edges=NUM_EDGES, seed=SEED)
    write_simulation(data, panel, truth)
    return truth


def run_demo(folder: Path, truth: Truth, *, open_report: bool) -> None:
    """Learn, compare with the truth, write the report."""
    run = folder / "run"
    print_line(
        f"Six plants with 8 sensors each, {NUM_STEPS} time steps, {NUM_EDGES} of 30 possible "
        "influences are real.\nNo plant shows its sensors to anyone: only states of two numbers "
        "travel."
    )
    result = run_fit(folder / "data", run, DataOptions(), RunConfig())
    out.print("")
    print_answer(result, NUM_EDGES + 3)
    out.print("\nAgainst the truth:")
    out.print(score_table(evaluate(result, truth)))
    out.print("\nWhat left each plant:")
    out.print(bytes_table(result.manifest.bytes))
    report = run / "report.html"
    print_line(f"\nOpen {report} to look at the graph.")
    if open_report:
        webbrowser.open(report.resolve().as_uri())
