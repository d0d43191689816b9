"""`fedgranger check`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import typer

from fedgranger.cli.command_line import examples
from fedgranger.cli.console import Data, Json, busy, print_json, print_line, progress_report
from fedgranger.cli.options import with_options
from fedgranger.data.reading_options import PanelOptions
from fedgranger.data.reading_progress import followed


@examples(
    "fedgranger check plant/",
    "fedgranger check historian.csv --partition clients.toml",
    "fedgranger check plant/ --json | jq .command",
)
@with_options(PanelOptions)
def check(
    data: Data,
    json_output: Json = False,
    *,
    given: dict[str, Any],
) -> None:
    """Look at data before any fit: period, gaps, odd sensors, the exact command to fit.

    Exit status 0: the command on the last line works; 2: something that no option mends.
    """
    options = PanelOptions.from_mapping(given)
    with busy(f"reading {data}"):
        from fedgranger.runtime.check_result import screen_lines
        from fedgranger.runtime.data_check import check_data

    with progress_report() as report, followed(report, data):
        found = check_data(data, **asdict(options))
    if json_output:
        print_json(found.to_mapping())
    else:
        for line in screen_lines(found):
            print_line(line)
    if found.stopped:
        raise typer.Exit(2)
