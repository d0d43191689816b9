"""How one client's file is written, as the options say it, for all clients or for each; cells."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from fedgranger.data.reading_options import PER_CLIENT, SIGNS, FileOptions
from fedgranger.errors import ConfigError

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet", ".xlsx")


NEVER_EQUAL = ("delimiter", "decimal", "thousands", "skip_rows", "unit_rows", "encoding")
"""Options in whose values "=" can only follow a client."""


class FileFormat(NamedTuple):
    """The options of `FileOptions` that concern cells, for one client, with signs for words.

    A delimiter of "" is that of the file's kind: a tab in .tsv files, else a comma. The point is
    sure to separate decimals when an option says so.
    """

    time_column: str = "auto"
    delimiter: str = ""
    decimal: str = "."
    thousands: str = ""
    encoding: str = "utf-8"
    skip_rows: int = 0
    unit_rows: int = 0
    sheet: str = ""
    tag_column: str = ""
    value_column: str = "value"
    date_format: str = "iso"
    time_zone: str = ""
    missing_text: tuple[str, ...] = ()
    is_point_sure: bool = True


class Cells(NamedTuple):
    """What stands in a text file or a sheet.

    Attributes:
        headers: cells of the header.
        columns: by their places.
        num_rows: of data.
        unit_rows: cells of the rows between header and data.
        notes: on lines that hold no data.
    """

    headers: Sequence[str]
    columns: dict[int, pa.ChunkedArray]
    num_rows: int
    unit_rows: Sequence[Sequence[str]]
    notes: tuple[str, ...] = ()


def client_formats(options: FileOptions, clients: Sequence[str]) -> dict[str, FileFormat]:
    """The format of every client.

    Raises:
        ConfigError: an option has a value that is no format.
    """
    chosen = {name: per_client(getattr(options, name), clients) for name in PER_CLIENT}
    for name in NEVER_EQUAL:
        unknown = re.search("([^,=]+)=", ",".join(chosen[name].values()))
        if unknown is not None:
            raise ConfigError(
                f"{name} names client '{unknown[1].strip()}', which is unknown (clients: "
                f"{', '.join(clients)}); name one of them"
            )
    words = tuple(word.strip() for word in options.missing_text.split(",") if word.strip())
    defaults = FileOptions()
    out = {}
    for client in clients:
        own = {
            name: str(values.get(client, getattr(defaults, name)))
            for name, values in chosen.items()
        }
        out[client] = _format(own)._replace(missing_text=words)
    return out


def per_client(value: str, clients: Sequence[str]) -> dict[str, str]:
    """Read "boiler=a,turbine=b"; a value that names no client first is everybody's.

    Example:
        >>> per_client("boiler=;,turbine=,", ["boiler", "turbine"])
        {'boiler': ';', 'turbine': ','}
        >>> per_client(";", ["boiler", "turbine"])
        {'boiler': ';', 'turbine': ';'}
    """
    names = "|".join(re.escape(name) for name in sorted(clients, key=len, reverse=True))
    starts = list(re.finditer(rf"(?:^|,)\s*({names})=", value)) if clients else []
    if not starts or value[: starts[0].start()].strip():
        return dict.fromkeys(clients, value)
    ends = [*(match.start() for match in starts[1:]), len(value)]
    return {
        match[1]: value[match.end() : end].strip(" ") or " "
        for match, end in zip(starts, ends, strict=True)
    }


def _format(own: Mapping[str, Any]) -> FileFormat:
    delimiter = _sign("delimiter", own["delimiter"], {"auto": "", "space": " "}, ",;\t| ")
    decimal = _sign("decimal", own["decimal"], {"auto": "."}, ".,")
    thousands = _sign("thousands", own["thousands"], {"none": "", "space": " "}, ",.' ")
    if decimal == thousands:
        raise ConfigError(
            f"decimal and thousands are both '{decimal}'; a sign can have one meaning only"
        )
    parsed = {
        "delimiter": delimiter,
        "decimal": decimal,
        "thousands": thousands,
        "skip_rows": _count("skip_rows", own["skip_rows"]),
        "unit_rows": _count("unit_rows", own["unit_rows"]),
        "time_zone": "" if own["time_zone"] == "none" else own["time_zone"],
    }
    is_sure = own["decimal"] != "auto" or bool(thousands)
    return FileFormat(**{**own, **parsed}, is_point_sure=is_sure)


def _sign(option: str, value: str, words: Mapping[str, str], allowed: str) -> str:
    known = {**{word: sign for word, sign in SIGNS.items() if sign in allowed}, **words}
    if value in known:
        return known[value]
    if len(value) != 1 or value not in allowed:
        raise ConfigError(f"{option} is {value!r}; choose one of {', '.join(known)}")
    return value


def _count(option: str, value: str) -> int:
    if not value.isdigit():
        raise ConfigError(f"{option} is {value!r}; it must be a whole number of at least 0")
    return int(value)


def table_suffix(file_name: str) -> str:
    """The ending that says of which kind a file is; "" when it is none that is read."""
    lower = file_name.lower()
    return max((end for end in SUFFIXES if lower.endswith(end)), key=len, default="")


def delimiter_of(path: Path, written: FileFormat) -> str:
    """What separates the cells of a text file."""
    return written.delimiter or ("\t" if ".tsv" in table_suffix(path.name) else ",")
