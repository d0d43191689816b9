"""What the first lines of a text file look like: encoding, delimiter, preamble, header, units.

Where a table is, is only looked for when it cannot be read as the options say, and proposed.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from fedgranger.data.cell_text import is_number_like, is_time_like
from fedgranger.text import unit_of

NUM_LINES = 200
DELIMITERS = (";", "\t", "|", ",")
"""In this order: a comma may be a decimal sign, the others hardly are anything else."""
STEADY = 0.9
"""Share of lines that must have equally many cells."""

STORAGE = frozenset(
    ("real", "float", "double", "int", "dint", "bool", "string", "text", "number", "avg", "smp")
)
"""Words in such a line that say how a column is stored or made."""


class Structure(NamedTuple):
    """Where the table is in a text file, and what separates its cells ("" when nothing does)."""

    delimiter: str
    skip_rows: int
    unit_rows: int


def find_encoding(path: Path) -> str | None:
    """An encoding in which the beginning of the file can be read; None of a damaged file."""
    try:
        with _opened(path) as file:
            head = file.read(1 << 16)
    except (OSError, EOFError, zlib.error):
        return None
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    try:
        head[: head.rfind(b"\n") + 1].decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


def find_structure(path: Path, encoding: str) -> Structure | None:
    """Look at the first lines; None when they hold no table of two or more columns."""
    lines = first_lines(path, encoding, NUM_LINES)
    for delimiter in (*DELIMITERS, " "):
        rows = cells_of(lines, delimiter)
        tail = [len(row) for row in rows[len(rows) // 3 :] if row]
        width, count = Counter(tail).most_common(1)[0] if tail else (0, 0)
        if width > 1 and count >= STEADY * len(tail):
            return place_table(rows, delimiter, width)
    return None


def first_lines(path: Path, encoding: str, count: int) -> list[str]:
    """The first lines of a text file, without their ends."""
    with _opened(path) as file:
        text = io.TextIOWrapper(file, encoding, errors="replace", newline="")
        lines = [line.rstrip("\r\n") for line in islice(text, count)]
    return [lines[0].removeprefix("\ufeff"), *lines[1:]] if lines else []


def cells_of(lines: list[str], delimiter: str) -> list[list[str]]:
    """The cells of each line; none where the signs around them do not fit."""
    if delimiter == " ":
        return [line.split() for line in lines]
    try:
        return list(csv.reader(lines, delimiter=delimiter))
    except csv.Error:
        return []


def place_table(rows: list[list[str]], delimiter: str, width: int) -> Structure | None:
    """Find the header: above the first row of numbers, the first of the rows with most names."""
    is_data = [len(row) == width and _is_data(row) for row in rows]
    if not any(is_data):
        return None
    first = is_data.index(True)
    names = [_num_names(row) if len(row) == width else 0 for row in rows[:first]]
    if max(names, default=0) < width - 1:
        return None
    header = names.index(max(names))
    return Structure(delimiter, header, first - header - 1)


def _num_names(row: list[str]) -> int:
    return sum(bool(cell.strip()) for cell in row)


def _is_data(row: list[str]) -> bool:
    """Whether numbers and times fill half of the cells that are not empty."""
    known = [cell for cell in row if cell.strip()]
    good = sum(is_number_like(cell) or is_time_like(cell) for cell in known)
    return bool(known) and 2 * good >= len(known)


def _opened(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb")


def units_in(names: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, str]:
    """Units of columns, from the first line in which most of the cells can be units.

    Example:
        >>> units_in(["time", "P", "T"], [["Zeit", "Druck vor Ventil", "x y"], ["", "[bar]", "°C"]])
        {'P': 'bar', 'T': '°C'}
    """
    for row in rows:
        cells = {name: _bare(cell) for name, cell in zip(names, row, strict=False)}
        filled = {name: cell for name, cell in cells.items() if cell}
        units = {name: cell for name, cell in filled.items() if _is_unit(cell)}
        if 2 * len(units) > len(filled):
            return units
    return {}


def _bare(cell: str) -> str:
    """A cell without the brackets around it, but with those inside, as of bar(g)."""
    bare = cell.strip(" []()")
    return bare + ")" * (bare.count("(") - bare.count(")"))


def _is_unit(cell: str) -> bool:
    is_short = unit_of(f"[{cell}]") == cell and not set(cell) & set(" \t")
    has_letter = any(letter.isalpha() or letter in "%‰°" for letter in cell)
    return is_short and has_letter and cell.lower() not in STORAGE and not is_number_like(cell)
