"""`fedgranger simulate`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgranger.cli.command_line import examples
from fedgranger.cli.console import busy, print_line
from fedgranger.cli.options import with_options
from fedgranger.data.simulation_options import DECLARED_NOISE, SimulationOptions
from fedgranger.errors import ConfigError, RunError
from fedgranger.option_fields import check_choice
from fedgranger.text import counted


@examples(
    "fedgranger simulate data --clients 4 --steps 2000 --seed 7",
    "fedgranger simulate data --edges 'client1->client2,client2->client3'",
)
@with_options(SimulationOptions)
def simulate(
    out_folder: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write.")],
    declared_noise: Annotated[
        float | None, typer.Option(help="R in models.json as a multiple of the true one. [1]")
    ] = None,
    format: Annotated[str, typer.Option(help="csv or parquet.")] = "csv",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier simulation.")
    ] = False,
    *,
    given: dict[str, Any],
) -> None:
    """Write simulated data, one file per client, and the truth behind them."""
    check_choice("format", format, ("csv", "parquet"))
    check_target(out_folder, overwrite=overwrite)
    usual = DECLARED_NOISE.get(given.get("scenario", ""), 1.0)
    factor = usual if declared_noise is None else declared_noise
    if not (factor > 0 and math.isfinite(factor)):
        raise ConfigError(f"--declared-noise is {factor}; it must be a positive number")
    with busy("simulating"):
        from fedgranger.cli.simulation_files import write_simulation
        from fedgranger.data.synthetic import simulate as simulate_panel

        panel, truth = simulate_panel(**given)
        write_simulation(out_folder, panel, truth, format, factor)
    print_line(
        f"{len(panel)} clients, {panel.num_steps} steps, "
        f"{counted(len(truth.edges), 'true edge')} written to {out_folder}"
    )


def check_target(folder: Path, *, overwrite: bool) -> None:
    """Refuse to mix a new simulation with other files."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise RunError(f"{folder}: is a file; give a folder")
    if not any(folder.iterdir()) or (overwrite and (folder / "truth.json").exists()):
        return
    remedy = "use --overwrite or " if (folder / "truth.json").exists() else ""
    raise RunError(f"{folder}: is not empty; {remedy}give another folder")
