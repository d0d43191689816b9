"""`fedgranger check`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgranger.cli.console import Json, friendly, print_line
from fedgranger.cli.options import with_options
from fedgranger.data.reading_options import PanelOptions
from fedgranger.runtime.data_check import check_data, screen_lines


@friendly
@with_options(PanelOptions)
def check(
    data: Annotated[Path, typer.Argument(help="Folder with one file per client, or one table.")],
    json_output: Json = False,
    *,
    given: dict[str, Any],
) -> None:
    """Look at data before any fit: period, gaps, odd sensors, the exact command to fit.

    Exit status 0: the command on the last line works; 2: something that no option mends.
    """
    found = check_data(data, **asdict(PanelOptions.from_mapping(given)))
    if json_output:
        typer.echo(json.dumps(found.to_mapping(), indent=1, ensure_ascii=False))
    else:
        for line in screen_lines(found):
            print_line(line)
    if found.stopped:
        raise typer.Exit(2)
