"""`fedgranger fit`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from fedgranger.cli.command_line import examples
from fedgranger.cli.console import RUNTIMES, Config, Data, Json, OutRun, Overwrite, busy
from fedgranger.cli.options import FitOptions, merge, with_options
from fedgranger.errors import RunError
from fedgranger.option_fields import check_choice
from fedgranger.unused_options import refuse_unused

RARE = "Interrupted runs and simulated parties"


@examples(
    "fedgranger check plant/                        # first: what do the data need?",
    "fedgranger fit plant/ --out run",
    "fedgranger fit historian.csv --partition clients.toml --missing mask --out run",
    "fedgranger fit plant/ --out run --config run.toml --alpha 0.01",
)
@with_options(FitOptions)
def fit(
    data: Data,
    out_folder: OutRun,
    config: Config = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an interrupted run.", rich_help_panel=RARE)
    ] = False,
    overwrite: Overwrite = False,
    runtime: Annotated[
        str,
        typer.Option(
            help="inprocess, or flare: NVIDIA FLARE's simulator, same numbers.",
            rich_help_panel=RARE,
        ),
    ] = "inprocess",
    checkpoint_every: Annotated[
        float | None,
        typer.Option(
            help="Seconds between checkpoints; default 10.", min=0.0, rich_help_panel=RARE
        ),
    ] = None,
    json_output: Json = False,
    *,
    given: dict[str, Any],
) -> None:
    """Learn which client drives which; all parties are simulated on this machine.

    Exit status 0; 2: refused; 3: the run is written but nothing could be tested; 130: interrupted.
    """
    check_choice("runtime", runtime, RUNTIMES)
    if runtime == "flare" and resume:
        raise RunError("a simulated FLARE run cannot be resumed; leave --resume out")
    if runtime == "flare" and checkpoint_every is not None:
        raise RunError("a simulated FLARE run has no checkpoints; leave --checkpoint-every out")
    data_options, run_config = merge(config, given)
    refuse_unused(run_config)
    with busy(f"reading {data}"):
        from fedgranger.cli.fit_screen import check_folder, leave_if_untested, run_fit, show_fit

        check_folder(out_folder, resume=resume, overwrite=overwrite)
    result = run_fit(
        data,
        out_folder,
        data_options,
        run_config,
        resume=resume,
        checkpoint_seconds=10.0 if checkpoint_every is None else checkpoint_every,
        runtime=runtime,
    )
    show_fit(result, out_folder, json_output=json_output)
    leave_if_untested(result)
