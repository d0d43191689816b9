"""`fedgranger demo`: from simulated plants to a causal graph in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedgranger.cli.command_line import examples
from fedgranger.cli.console import busy
from fedgranger.errors import RunError


@examples("fedgranger demo --open")
def demo(
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder for data, run and report.")
    ] = Path("fedgranger-demo"),
    open_report: Annotated[bool, typer.Option("--open", help="Open the report.")] = False,
) -> None:
    """Simulate six plants, learn who drives whom, compare with the truth, write a report."""
    is_earlier = (out_folder / "data" / "truth.json").exists()
    if out_folder.exists() and any(out_folder.iterdir()) and not is_earlier:
        raise RunError(f"{out_folder}: is not empty and not an earlier demo; give --out another")
    with busy("simulating six plants"):
        from fedgranger.cli.demo_screen import run_demo, write_plants

        truth = write_plants(out_folder / "data")
    run_demo(out_folder, truth, open_report=open_report)
