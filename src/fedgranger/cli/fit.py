"""`fedgranger fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedgranger.cli.console import friendly, out
from fedgranger.cli.options import merge, with_options
from fedgranger.cli.run_fit import check_folder, leave_if_untested, print_answer, run_fit
from fedgranger.cli.tables import bytes_table, ledger_table
from fedgranger.errors import RunError
from fedgranger.option_fields import check_choice


@friendly
@with_options
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
    if runtime == "flare" and data_options.models is not None:
        raise RunError(
            f"{data_options.models}: the parties of a FLARE run identify their own models; leave "
            "--models out or use --runtime inprocess"
        )
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
    out.print(f"\n{escape(training['status'])}", soft_wrap=True)
    if "step_size_reason" in training:
        out.print(f"step sizes: {escape(training['step_size_reason'])}", soft_wrap=True)
    out.print("\nwhat left each client:")
    sent = result.manifest["bytes"]
    out.print(ledger_table(sent) if runtime == "flare" else bytes_table(sent))
    out.print(f"\nwritten to {escape(str(out_folder))} (open report.html)", soft_wrap=True)
    leave_if_untested(result)
