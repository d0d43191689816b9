"""`fedgranger simulate`."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.markup import escape

from fedgranger.cli.console import friendly, out
from fedgranger.cli.declared_options import with_options_of
from fedgranger.client.params import known_models, write_models
from fedgranger.config import check_choice
from fedgranger.data.panel import Panel
from fedgranger.data.scenarios import DECLARED_NOISE, SCENARIOS
from fedgranger.data.synthetic import simulate as simulate_panel
from fedgranger.data.truth import Truth
from fedgranger.errors import ConfigError, RunError

__all__ = ["check_target", "simulate", "write_simulation"]

Number = TypeVar("Number", int, float)
AS_GIVEN = (
    *("spectral_radius", "process_correlation", "measurement_correlation", "student_df"),
    *("mean_shifts", "shift_size", "missing_share", "outage_share", "outage_client"),
    *("outage_steps", "reading_feedback", "dead_time", "unit_factor", "counter", "cycle_size"),
    *("cycle_period", "seed"),
)
"""Parameters of `simulate` that are options of the command as they are."""


@with_options_of(simulate_panel, AS_GIVEN)
@friendly
def simulate(
    out_folder: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write.")],
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 6,
    steps: Annotated[int, typer.Option(help="Time steps.")] = 5000,
    state_dims: Annotated[str, typer.Option(help="States per client: 2, or 1,2,3.")] = "2",
    sensor_dims: Annotated[str, typer.Option(help="Sensors per client: 8, or 3,8,12.")] = "8",
    edges: Annotated[
        str | None,
        typer.Option(help="How many random edges, or client1->client2,... [30 % of all pairs]"),
    ] = None,
    process_var: Annotated[float, typer.Option(help="Variance of the process noise.")] = 1.0,
    measurement_var: Annotated[
        str, typer.Option(help="Per sensor: 0.1, or one per client.")
    ] = "0.1",
    declared_noise: Annotated[
        float | None, typer.Option(help="R in models.json as a multiple of the true one. [1]")
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(help=f"Sets the options that make up one of {', '.join(SCENARIOS)}."),
    ] = None,
    format: Annotated[str, typer.Option(help="csv or parquet.")] = "csv",
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier simulation.")] = False,
    **options: Any,
) -> None:
    """Write simulated data, one file per client, and the truth behind them."""
    check_choice("format", format, ("csv", "parquet"))
    check_target(out_folder, overwrite=overwrite)
    panel, truth = simulate_panel(
        clients,
        steps,
        state_dims=_numbers("state-dims", state_dims, int),
        sensor_dims=_numbers("sensor-dims", sensor_dims, int),
        edges=_edges(edges),
        process_cov=process_var,
        measurement_var=_numbers("measurement-var", measurement_var, float),
        scenario=scenario,
        **options,
    )
    factor = DECLARED_NOISE.get(scenario or "", 1.0) if declared_noise is None else declared_noise
    if not (factor > 0 and math.isfinite(factor)):
        raise ConfigError(f"--declared-noise is {factor}; it must be a positive number")
    write_simulation(out_folder, panel, truth, format, factor)
    out.print(
        f"{len(panel)} clients, {panel.num_steps} steps, {len(truth.edges)} edges written to "
        f"{escape(str(out_folder))}",
        soft_wrap=True,
    )


def write_simulation(
    folder: Path, panel: Panel, truth: Truth, format: str = "csv", noise_factor: float = 1.0
) -> None:
    """Write the data files, `truth.json` and the clients' local models, `models.json`.

    The files of an earlier simulation in the folder are removed first. The models are the true
    ones, with this multiple of R; a client with a counter has none, because no stationary model
    describes it.
    """
    if (folder / "truth.json").exists():
        for name in Truth.read(folder / "truth.json").clients:
            for suffix in (".csv", ".parquet"):
                (folder / f"{name}{suffix}").unlink(missing_ok=True)
    panel.write(folder, format=format)
    truth.write(folder / "truth.json")
    models = known_models(truth, noise_factor)
    described = {
        name: model
        for name, model in models.items()
        if panel[name].num_sensors == model.num_sensors
    }
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


def _numbers(name: str, text: str, kind: Callable[[str], Number]) -> Number | list[Number]:
    try:
        values = [kind(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(
            f"--{name} is '{text}'; give one number, or one per client separated by commas"
        ) from None
    return values[0] if len(values) == 1 else values


def _edges(text: str | None) -> int | list[tuple[str, str]] | None:
    if text is None:
        return None
    if text.strip().isdigit():
        return int(text)
    pairs = [tuple(side.strip() for side in part.split("->")) for part in text.split(",")]
    for pair in pairs:
        if len(pair) != 2:
            raise ConfigError(f"--edges is '{text}'; give a number or pairs like client1->client2")
    return [(pair[0], pair[1]) for pair in pairs]
