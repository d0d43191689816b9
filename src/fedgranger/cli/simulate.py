"""`fedgranger simulate`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgranger.cli.console import friendly, print_line
from fedgranger.cli.options import with_options
from fedgranger.client.params import known_models, write_models
from fedgranger.data.panel import Panel
from fedgranger.data.simulation_options import DECLARED_NOISE, SimulationOptions
from fedgranger.data.synthetic import simulate as simulate_panel
from fedgranger.data.truth import Truth
from fedgranger.errors import ConfigError, RunError
from fedgranger.option_fields import check_choice


@friendly
@with_options(SimulationOptions)
def simulate(
    out_folder: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write.")],
    declared_noise: Annotated[
        float | None, typer.Option(help="R in models.json as a multiple of the true one. [1]")
    ] = None,
    format: Annotated[str, typer.Option(help="csv or parquet.")] = "csv",
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier simulation.")] = False,
    *,
    given: dict[str, Any],
) -> None:
    """Write simulated data, one file per client, and the truth behind them."""
    check_choice("format", format, ("csv", "parquet"))
    check_target(out_folder, overwrite=overwrite)
    panel, truth = simulate_panel(**given)
    usual = DECLARED_NOISE.get(given.get("scenario", ""), 1.0)
    factor = usual if declared_noise is None else declared_noise
    if not (factor > 0 and math.isfinite(factor)):
        raise ConfigError(f"--declared-noise is {factor}; it must be a positive number")
    write_simulation(out_folder, panel, truth, format, factor)
    print_line(
        f"{len(panel)} clients, {panel.num_steps} steps, {len(truth.edges)} edges written to "
        f"{out_folder}"
    )


def write_simulation(
    folder: Path, panel: Panel, truth: Truth, format: str = "csv", noise_factor: float = 1.0
) -> None:
    """Write the data files, `truth.json` and the clients' local models, `models.json`.

    The files of an earlier simulation in the folder are removed first. The models are the true
    ones, with this multiple of R; a client with a counter has none, because no stationary model
    describes it, and a nonlinear system has none.
    """
    if (folder / "truth.json").exists():
        for name in Truth.read(folder / "truth.json").clients:
            for suffix in (".csv", ".parquet"):
                (folder / f"{name}{suffix}").unlink(missing_ok=True)
    panel.write(folder, format=format)
    truth.write(folder / "truth.json")
    models = {} if truth.process_cov is None else known_models(truth, noise_factor)
    described = {
        name: model
        for name, model in models.items()
        if panel[name].num_sensors == model.num_sensors
    }
    (folder / "models.json").unlink(missing_ok=True)
    if described:
        write_models(folder / "models.json", described)


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
