"""How measurements are read, the same for a folder of clients and for one client at its site.

Nothing here is guessed: the defaults are one plain kind of file, and what a file needs instead is
proposed in the sentence that refuses it (`fedgranger.data.trial_reading`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedgranger.errors import ConfigError
from fedgranger.option_fields import choice, special, text
from fedgranger.option_sets import Options
from fedgranger.periods import read_duration

SIGNS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|", "point": ".", "apostrophe": "'"}
"""Words for signs that a shell or an eye may lose."""
PER_CLIENT = (
    "time_column",
    "delimiter",
    "decimal",
    "thousands",
    "encoding",
    "skip_rows",
    "unit_rows",
    "sheet",
    "tag_column",
    "value_column",
    "date_format",
    "time_zone",
)
"""Options that may differ: boiler=value,turbine=value; clients that are not named keep theirs."""


def _lines(name: str, value: Any) -> str:
    """A number of lines, as text, because it may be given per client."""
    written = str(value)
    if isinstance(value, bool) or not (written.isdigit() or "=" in written):
        raise ConfigError(f"{name} is {value!r}; it must be a whole number of at least 0")
    return written


def _duration(word: str) -> Any:
    def check(name: str, value: Any) -> str:
        if isinstance(value, str) and value == word:
            return value
        found = read_duration(value)
        if found is None:
            raise ConfigError(
                f"{name} is {value!r}; give a duration such as 10s or 1min (ms, s, min, h, "
                f"d, w), or '{word}'"
            )
        return "".join(found)

    return check


@dataclass(frozen=True, kw_only=True)
class FileOptions(Options):
    """How a client's files are written; new data of the same client are written alike."""

    subject = "data"
    time_column: str = text(
        "auto",
        'name of the time column, "auto" or "none"; Date+Time for two columns; per client: '
        "boiler=Zeit,turbine=Time",
        everyday=True,
    )
    delimiter: str = text(
        "auto",
        'what separates cells: "auto" for commas (tabs in .tsv files), or a sign or its name: '
        "comma, semicolon, tab, bar, space",
    )
    decimal: str = text(
        "auto",
        'what separates decimals: "auto" for a point where it cannot group thousands, point or '
        "comma",
    )
    thousands: str = text(
        "none", "what groups the digits of large numbers: none, comma, point, space, apostrophe"
    )
    encoding: str = text("utf-8", "how text files are encoded, such as utf-8, cp1252 or utf-16")
    skip_rows: str = special("0", "lines above the header that are not read", _lines, str)
    unit_rows: str = special(
        "0",
        "lines between header and data (units, descriptions) that are not data; units are shown "
        "with the sensors",
        _lines,
        str,
    )
    missing_text: str = text(
        "", "texts that stand for a missing sample, with commas: Bad Input,No Data", is_list=True
    )
    sheet: str = text("", "sheet of an Excel workbook; without it the only one")
    tag_column: str = text(
        "", "of a table with one row per sample: the column with the sensors' names"
    )
    value_column: str = text("value", "of the same table: the column with the values")
    date_format: str = text(
        "iso",
        'how dates are written: "iso" (2026-01-31), dd.mm.yyyy, mm/dd/yyyy, dd/mm/yyyy and the '
        "like, or a pattern with % (%d.%m.%Y %H:%M)",
    )
    time_zone: str = text(
        "none",
        "zone of time stamps that name none, such as Europe/Berlin, +01:00 or UTC; none: taken as "
        "UTC where no client's stamps have a zone, else refused",
    )
    unordered: str = choice(
        "error", ("error", "sort"), '"error", or "sort" to put rows in the order of their times'
    )
    repeated: str = choice(
        "error",
        ("error", "first", "last", "mean"),
        '"error", or which of several rows with one time is used: "first", "last" or their "mean"',
    )
    leave_out: str = text(
        "",
        "columns that are not read, with commas: client.sensor, or sensor for every client that "
        "has it; * stands for any letters (also --drop)",
        also="drop",
        is_list=True,
    )
    align_tolerance: str = special(
        "auto",
        "how far a time stamp may lie from a full step (of 1 min: a full minute) and is moved "
        'there, such as 5s; "auto": none is moved, and a tenth of a step is tolerated',
        _duration("auto"),
        str,
    )
    resample: str = special(
        "none",
        "interval to which every client brings its own rows, such as 1min",
        _duration("none"),
        str,
    )
    resample_rule: str = choice(
        "mean", ("mean", "last"), "what a resampled step holds of the rows since the one before"
    )


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(FileOptions):
    """How to read the data; a site names its sensors without the client."""

    subject = "data"
    missing: str = choice(
        "error",
        ("error", "mask"),
        '"error", or "mask" to treat empty cells and codes such as -9999 as missing samples; '
        "the client's other sensors of that row are used all the same",
        everyday=True,
    )
    constant: str = choice(
        "error",
        ("error", "drop", "keep"),
        '"error", "drop" to leave out sensors that never change, or "keep"',
    )
    difference: str = text(
        "auto",
        'sensors whose change per row is used: "auto" for those that count or wander, "none", or '
        'client.sensor,client.sensor (at a site sensor,sensor); "auto,client.sensor" for both',
        is_list=True,
    )
    suspect: str = choice(
        "error",
        ("error", "keep"),
        '"error" refuses clocks, row numbers and codes for missing samples; "keep" uses them as '
        "measured",
    )


@dataclass(frozen=True, kw_only=True)
class PanelOptions(ReadingOptions):
    """How to read the data of all clients."""

    subject = "data"
    partition: str | None = text(
        None, "file that maps each client to its columns, when DATA is one table", everyday=True
    )
    map: str = text(
        "",
        "assigns columns to clients by patterns of their names: P1_*=boiler,P2_*=turbine",
        is_list=True,
    )


AS_MEASURED: dict[str, Any] = {
    "missing": "mask",
    "constant": "keep",
    "difference": "none",
    "suspect": "keep",
}
"""Of new data, which are not judged: a run's monitors treat them like its training data."""


def kept_options(options: FileOptions, of: str, **more: Any) -> dict[str, Any]:
    """What new data of the same kind are read with: all that is not the default.

    A partition is left out: it is a file, which may be another one by then.
    """
    names = (*FileOptions.names(), "map")
    defaults = PanelOptions()
    chosen = {name: getattr(options, name, "") for name in names}
    return {"of": of, **more} | {k: v for k, v in chosen.items() if v != getattr(defaults, k)}


def as_measured(files: FileOptions | None = None) -> ReadingOptions:
    """How new data of these files are read."""
    return ReadingOptions(**(files or FileOptions()).values_of(FileOptions), **AS_MEASURED)
