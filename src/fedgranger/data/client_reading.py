"""From a file to one client's table: which columns, in which order of rows, with which remedies."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fedgranger.data import input_checks
from fedgranger.data.cell_text import (
    is_clock_only,
    is_date_only,
    is_time_like,
    is_undecided,
    propose_numbers,
    propose_words,
    sign_word,
)
from fedgranger.data.client_tables import Table, is_text, load_table
from fedgranger.data.clock_steps import move_to_full_steps
from fedgranger.data.excel_tables import sheet_rows
from fedgranger.data.file_format import FileFormat, table_suffix
from fedgranger.data.left_out import LeftOut
from fedgranger.data.long_tables import looks_long, spread
from fedgranger.data.reading_options import PER_CLIENT, FileOptions
from fedgranger.data.text_structure import Structure, find_encoding, find_structure, place_table
from fedgranger.data.time_stamps import check_order, order_rows, to_times
from fedgranger.data.treatment import ClientTable
from fedgranger.errors import DataError, ReadingError

SIGN_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}


class Source(NamedTuple):
    """A file and who it belongs to; `key` is the client in options, None when one table has all."""

    where: str
    key: str | None
    path: Path
    written: FileFormat

    def proposed(self, **values: str) -> dict[str, str | dict[str, str]]:
        """Options that concern this file, as a proposal."""
        return {k: v if self.key is None else {self.key: v} for k, v in values.items()}


class ReadTable(NamedTuple):
    """The columns of a file as numbers."""

    names: tuple[str, ...]
    values: np.ndarray
    time: np.ndarray | None
    has_zone: bool
    notes: tuple[str, ...]


def read_client_table(
    source: Source, client: str, options: FileOptions, left_out: LeftOut
) -> tuple[ClientTable, list[str]]:
    """Read one client's own file, and notes on it.

    Raises:
        ReadingError: other options may read it; they are proposed.
    """
    with explained(source):
        table = load_table(source.where, source.path, source.written)
        dropped = left_out.of_client(client, [n for n in table.names if n != table.time_name])
        read = read_columns(source, table, options, dropped=dropped)
    notes = list(read.notes)
    if dropped:
        listed = ", ".join(f"'{name}'" for name in sorted(dropped))
        notes.append(f"{source.where}: left out as asked for: {listed}")
    return ClientTable(client, read.names, read.values, read.time, read.has_zone), notes


def read_columns(
    source: Source,
    table: Table,
    options: FileOptions,
    *,
    dropped: Collection[str] = (),
    owners: Mapping[str, str] | None = None,
) -> ReadTable:
    """Convert the columns of a loaded table, all but the `dropped`, or those that have `owners`.

    The owner of a column is named in messages about it.
    """
    where, written = source.where, source.written
    used = [n for n in table.names if n not in dropped and (owners is None or n in owners)]
    for name in used:
        if name in table.unnamed or (name == "__index_level_0__"):
            raise ReadingError(
                f"{where}: column {table.names.index(name) + 1} has no name; name it, or leave it "
                f"out if it is a row index (--leave-out {quote(name)}; pandas writes none with "
                "index=False)",
                {"leave_out": name},
            )
    if written.tag_column:
        return _read_long(source, table, options)
    time, has_zone = None, False
    raw_time = None
    if table.time_name is not None:
        raw_time = table.take(where, table.time_name)
    sensors = [name for name in used if name != table.time_name]
    if not sensors:
        raise DataError(f"{where}: there is no sensor column beside the time; add one")
    values = _numbers(source, table, sensors, raw_time, owners or {})
    notes = list(table.notes)
    if raw_time is not None and table.time_name is not None:
        time, has_zone = to_times(where, table.time_name, raw_time, written)
        time, values, more = order_rows(where, time, values, options.unordered, options.repeated)
        notes += more
        check_order(where, table.time_name, time, has_zone=has_zone)
        time, more = move_to_full_steps(where, time, options.align_tolerance)
        notes += more
    return ReadTable(tuple(sensors), values, time, has_zone, tuple(notes))


def _read_long(source: Source, table: Table, options: FileOptions) -> ReadTable:
    """A table with one row per sample."""
    where, written = source.where, source.written
    for option, name in (("tag", written.tag_column), ("value", written.value_column)):
        if name not in table.names:
            raise DataError(
                f"{where}: there is no column '{name}'"
                f"{input_checks.nearest(name, table.names)} with the samples' {option}s; pass "
                f"--{option}-column"
            )
    if table.time_name is None:
        raise DataError(
            f"{where}: a table with one row per sample needs a time column; pass --time-column"
        )
    column = table.take(where, table.time_name)
    tags = table.take(where, written.tag_column).to_pylist()
    values = _numbers(source, table, [written.value_column], None, {})[:, 0]
    time, has_zone = to_times(where, table.time_name, column, written)
    names, time, wide, notes = spread(where, tags, time, values, options.repeated)
    time, more = move_to_full_steps(where, time, options.align_tolerance)
    return ReadTable(names, wide, time, has_zone, (*table.notes, *notes, *more))


def _numbers(
    source: Source,
    table: Table,
    sensors: Sequence[str],
    raw_time: pa.ChunkedArray | None,
    owners: Mapping[str, str],
) -> np.ndarray:
    """All sensors as numbers; the columns that are none are all looked at before one is named."""
    values = np.empty((table.num_rows, len(sensors)))
    found: list[DataError] = []
    for position, name in enumerate(sensors):
        column, where = table.take(source.where, name), owners.get(name, source.where)
        try:
            values[:, position] = input_checks.to_numbers(where, name, column, source.written)
        except input_checks.TextCellError as error:
            if raw_time is not None and looks_long(column, raw_time, table.names):
                raise _long_format(source, table, name, error.fact) from error
            both = _date_and_clock(source, table, name, error.cells, raw_time)
            if both:
                raise ReadingError(
                    f"{error.fact}; date and time of day seem to be in two columns (--time-column "
                    f"{quote(both)})",
                    source.proposed(time_column=both),
                ) from error
            found.append(_text_column(source, table, name, error))
    pa.default_memory_pool().release_unused()
    if found:  # how numbers are written comes first: the rest may follow from it
        writing = [
            error
            for error in found
            if isinstance(error, ReadingError) and {"decimal", "thousands"} & set(error.proposal)
        ]
        raise joined(writing or found)
    return values


def refuse_long(source: Source, table: Table) -> None:
    """Refuse a table with one row per sample when the options do not say that it is one."""
    if table.time_name is None:
        return
    for name in table.names:
        column = table.columns.get(name)
        time = table.columns.get(table.time_name)
        if column is not None and time is not None and looks_long(column, time, table.names):
            raise _long_format(source, table, name, f"{source.where}: column '{name}' is text")


def _long_format(source: Source, table: Table, name: str, fact: str) -> ReadingError:
    others = [n for n in table.names if n not in (name, table.time_name)]
    value = "value" if "value" in others else next(iter(others), "value")
    proposal = {"tag_column": name} | ({"value_column": value} if value != "value" else {})
    flags = " ".join(f"--{k.replace('_', '-')} {quote(v)}" for k, v in proposal.items())
    return ReadingError(
        f"{fact}; it looks like a table with one row per sample, in which it names the sensor; "
        f"pass {flags}",
        source.proposed(**proposal),
    )


def _text_column(
    source: Source, table: Table, name: str, error: input_checks.TextCellError
) -> DataError:
    """The error for a column that is not numbers, with what it seems to be."""
    cells, label = error.cells, name if source.key is None else f"{source.key}.{name}"
    writing = propose_numbers(cells, source.written)
    if writing:
        if is_undecided(cells, writing):
            return DataError(
                f"{error.fact}: a comma in column '{name}' can group thousands or separate "
                "decimals; pass the right one of --thousands comma and --decimal comma"
            )
        flags = " ".join(f"--{option} {word}" for option, word in writing.items())
        return ReadingError(
            f"{error.fact} as the options say; pass {flags}", source.proposed(**writing)
        )
    if all(is_time_like(cell) for cell in cells):
        if table.time_name is None and source.written.time_column == "auto":
            flag = f"--time-column {quote(name)}"
            return ReadingError(
                f"{error.fact}; column '{name}' looks like the time ({flag})",
                source.proposed(time_column=name),
            )
        return ReadingError(
            f"{error.fact}; column '{name}' holds times; leave it out (--leave-out {quote(label)})",
            {"leave_out": label},
        )
    words = propose_words(cells, source.written)
    if words:
        listed = ",".join(words)
        return ReadingError(
            f"{error.fact}; correct it, or treat such texts as missing samples with --missing mask "
            f"--missing-text {quote(listed)}",
            {"missing": "mask", "missing_text": listed},
        )
    if sum(input_checks.to_number(cell, source.written) is None for cell in cells) * 2 > len(cells):
        return ReadingError(
            f"{error.fact}; leave the column out (--leave-out {quote(label)}) if it is a status "
            "or a remark",
            {"leave_out": label},
        )
    return error


def _date_and_clock(
    source: Source,
    table: Table,
    name: str,
    cells: Sequence[str],
    raw_time: pa.ChunkedArray | None,
) -> str:
    """Name both columns when one has the date of each row and another the time of day."""
    if source.written.time_column != "auto":
        return ""
    if raw_time is not None and table.time_name is not None:
        other = {table.time_name: raw_time}
    else:
        other = {key: column for key, column in table.columns.items() if key != name}
    for key, column in other.items():
        texts = [str(cell) for cell in column.slice(0, len(cells)).to_pylist() if cell is not None]
        if texts and is_date_only(texts) and is_clock_only(cells):
            return f"{key}+{name}"
        if texts and is_clock_only(texts) and is_date_only(cells):
            return f"{name}+{key}"
    return ""


def joined(found: Sequence[DataError]) -> DataError:
    """One error of several: the first sentence, and what all of them propose."""
    proposals = [error.proposal for error in found if isinstance(error, ReadingError)]
    if not proposals:
        return found[0]
    merged: dict[str, str | dict[str, str]] = {}
    for proposal in proposals:
        for option, value in proposal.items():
            before = merged.get(option)
            if isinstance(value, str):
                lists = isinstance(before, str) and option in ("leave_out", "missing_text")
                known = before.split(",") if lists and isinstance(before, str) else []
                extra = [part for part in value.split(",") if part not in known]
                merged[option] = ",".join([*known, *extra])
            else:
                merged[option] = {**(before if isinstance(before, dict) else {}), **value}
    first = next((e for e in found if isinstance(e, ReadingError)), found[0])
    return ReadingError(str(first), merged)


@contextmanager
def explained(source: Source) -> Iterator[None]:
    """Look at the file's first lines when it cannot be read, for where its table is."""
    try:
        yield
    except DataError as error:
        explain(source, error)
        if not isinstance(error, ReadingError):
            raise
        own = {
            option: value if option not in PER_CLIENT or not isinstance(value, str)
            else source.proposed(**{option: value})[option]
            for option, value in error.proposal.items()
        }  # fmt: skip
        raise ReadingError(str(error), own) from error


def explain(source: Source, error: DataError) -> None:
    """Raise the reason behind an error when the table is not where the options say."""
    path, written = source.path, source.written
    if is_text(path):
        encoding = find_encoding(path) if written.encoding == "utf-8" else written.encoding
        found = None if encoding is None else find_structure(path, encoding)
    elif table_suffix(path.name) == ".xlsx":
        found = _sheet_structure(source)
    else:
        return
    if found is None:
        return
    default = "\t" if ".tsv" in table_suffix(path.name) else ","
    parts, proposal = [], {}
    if found.delimiter and found.delimiter != (written.delimiter or default):
        parts.append(f"cells are separated by {SIGN_NAMES[found.delimiter]}")
        proposal["delimiter"] = sign_word(found.delimiter)
    if found.skip_rows > written.skip_rows:
        parts.append(f"the header is line {found.skip_rows + 1}")
        proposal["skip_rows"] = str(found.skip_rows)
    if found.unit_rows and found.unit_rows != written.unit_rows:
        lines = "1 line" if found.unit_rows == 1 else f"{found.unit_rows} lines"
        parts.append(f"{lines} between header and data (units?) hold no numbers")
        proposal["unit_rows"] = str(found.unit_rows)
    if not parts:
        return
    flags = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in proposal.items())
    raise ReadingError(
        f"{source.where}: '{path.name}' looks like a table in which {' and '.join(parts)}; pass "
        f"{flags}",
        source.proposed(**proposal),
    ) from error


def _sheet_structure(source: Source) -> Structure | None:
    try:
        cells = sheet_rows(source.where, source.path, source.written.sheet)[:200]
    except DataError:
        return None
    width = max(len(row) for row in cells)
    rows = [["" if cell is None else str(cell) for cell in row] for row in cells]
    return place_table(rows, "", width)
