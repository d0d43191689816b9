"""`fedgranger simulate`."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.markup import escape

from fedgranger.cli.console import friendly, out
from fedgranger.client.params import known_models, write_models
from fedgranger.config import check_choice
from fedgranger.data.panel import Panel
from fedgranger.data.scenarios import DECLARED_NOISE, SCENARIOS
from fedgranger.data.synthetic import simulate as simulate_panel
from fedgranger.data.truth import Truth
from fedgranger.errors import ConfigError, RunError

__all__ = ["check_target", "simulate", "write_simulation"]

Number = TypeVar("Number", int, float)


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
    spectral_radius: Annotated[float, typer.Option(help="Of the whole transition.")] = 0.9,
    process_var: Annotated[float, typer.Option(help="Variance of the process noise.")] = 1.0,
    process_correlation: Annotated[
        float, typer.Option(help="Correlation of process noises, also across clients.")
    ] = 0.0,
    measurement_var: Annotated[
        str, typer.Option(help="Per sensor: 0.1, or one per client.")
    ] = "0.1",
    measurement_correlation: Annotated[
        float, typer.Option(help="Correlation of measurement noises, also across clients.")
    ] = 0.0,
    student_df: Annotated[
        float | None, typer.Option(help="Student-t noise with these degrees of freedom.")
    ] = None,
    mean_shifts: Annotated[int, typer.Option(help="Number of level jumps.")] = 0,
    shift_size: Annotated[float, typer.Option(help="Their size in standard deviations.")] = 3.0,
    missing_share: Annotated[float, typer.Option(help="Share of missing time steps.")] = 0.0,
    outage_share: Annotated[
        float, typer.Option(help="Share of the steps, in one block, that one client is off.")
    ] = 0.0,
    outage_client: Annotated[str | None, typer.Option(help="Which client. [a random one]")] = None,
    outage_steps: Annotated[
        int | None, typer.Option(help="Length of a block, when there are to be several.")
    ] = None,
    reading_feedback: Annotated[
        float, typer.Option(help="Share of every influence that acts through sensor readings.")
    ] = 0.0,
    dead_time: Annotated[int, typer.Option(help="Further steps that an edge takes.")] = 0,
    unit_factor: Annotated[
        float, typer.Option(help="Factor of the first client's first sensor.")
    ] = 1.0,
    counter: Annotated[bool, typer.Option(help="Add a counter to the first client.")] = False,
    cycle_size: Annotated[
        float, typer.Option(help="Amplitude of a common cycle, in standard deviations.")
    ] = 0.0,
    cycle_period: Annotated[float, typer.Option(help="Its period in time steps.")] = 24.0,
    declared_noise: Annotated[
        float | None, typer.Option(help="R in models.json as a multiple of the true one. [1]")
    ] = None,
    scenario: Annotated[
        str | None,
        typer.Option(help=f"Sets the options that make up one of {', '.join(SCENARIOS)}."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of system and noise.")] = 0,
    format: Annotated[str, typer.Option(help="csv or parquet.")] = "csv",
    overwrite: Annotated[bool, typer.Option(help="Replace an earlier simulation.")] = False,
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
        spectral_radius=spectral_radius,
        process_cov=process_var,
        process_correlation=process_correlation,
        measurement_var=_numbers("measurement-var", measurement_var, float),
        measurement_correlation=measurement_correlation,
        student_df=student_df,
        mean_shifts=mean_shifts,
        shift_size=shift_size,
        missing_share=missing_share,
        outage_share=outage_share,
        outage_client=outage_client,
        outage_steps=outage_steps,
        reading_feedback=reading_feedback,
        dead_time=dead_time,
        unit_factor=unit_factor,
        counter=counter,
        cycle_size=cycle_size,
        cycle_period=cycle_period,
        seed=seed,
        scenario=scenario,
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
