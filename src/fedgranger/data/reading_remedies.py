"""What may be meant by a file or column that cannot be read: the sentence, and options to try."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import pyarrow as pa

from fedgranger.data.cell_text import (
    is_clock_only,
    is_date_only,
    is_time_like,
    is_undecided,
    propose_numbers,
    propose_words,
    sign_word,
    to_number,
)
from fedgranger.data.client_tables import Table
from fedgranger.data.excel_tables import sheet_rows
from fedgranger.data.file_format import TEXT_SUFFIXES, FileFormat, delimiter_of, table_suffix
from fedgranger.data.input_checks import TextCellError
from fedgranger.data.long_tables import looks_long
from fedgranger.data.reading_options import PER_CLIENT
from fedgranger.data.text_structure import Structure, find_encoding, find_structure, place_table
from fedgranger.errors import DataError, ReadingError
from fedgranger.text import as_flags, counted

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


def refuse_long(source: Source, table: Table) -> None:
    """Refuse a table with one row per sample when the options do not say that it is one."""
    if table.time_name is None:
        return
    for name in table.names:
        column = table.columns.get(name)
        time = table.columns.get(table.time_name)
        if column is not None and time is not None and looks_long(column, time, table.names):
            raise long_format_error(source, table, name, f"{source.where}: column '{name}' is text")


def long_format_error(source: Source, table: Table, name: str, fact: str) -> ReadingError:
    """The error for a column that names each row's sensor."""
    others = [n for n in table.names if n not in (name, table.time_name)]
    value = "value" if "value" in others else next(iter(others), "value")
    proposal = {"tag_column": name} | ({"value_column": value} if value != "value" else {})
    return ReadingError(
        f"{fact}; it looks like a table with one row per sample, in which it names the sensor; "
        f"pass {as_flags(proposal)}",
        source.proposed(**proposal),
    )


def text_column_error(source: Source, table: Table, name: str, error: TextCellError) -> DataError:
    """The error for a column that is not numbers, with what it seems to be."""
    cells, label = error.cells, name if source.key is None else f"{source.key}.{name}"
    writing = propose_numbers(cells, source.written)
    if writing:
        if is_undecided(cells, writing):
            return DataError(
                f"{error.fact}: a comma in column '{name}' can group thousands or separate "
                "decimals; pass the right one of --thousands comma and --decimal comma"
            )
        return ReadingError(
            f"{error.fact} as the options say; pass {as_flags(writing)}",
            source.proposed(**writing),
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
    if sum(to_number(cell, source.written) is None for cell in cells) * 2 > len(cells):
        return ReadingError(
            f"{error.fact}; leave the column out (--leave-out {quote(label)}) if it is a status "
            "or a remark",
            {"leave_out": label},
        )
    return error


def date_and_clock(
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
    path, written, suffix = source.path, source.written, table_suffix(source.path.name)
    if suffix in TEXT_SUFFIXES:
        encoding = find_encoding(path) if written.encoding == "utf-8" else written.encoding
        found = None if encoding is None else find_structure(path, encoding)
    elif suffix == ".xlsx":
        found = _sheet_structure(source)
    else:
        return
    if found is None:
        return
    parts, proposal = [], {}
    if found.delimiter and found.delimiter != delimiter_of(path, written):
        parts.append(f"cells are separated by {SIGN_NAMES[found.delimiter]}")
        proposal["delimiter"] = sign_word(found.delimiter)
    if found.skip_rows > written.skip_rows:
        parts.append(f"the header is line {found.skip_rows + 1}")
        proposal["skip_rows"] = str(found.skip_rows)
    if found.unit_rows and found.unit_rows != written.unit_rows:
        lines = counted(found.unit_rows, "line holds", "lines hold")
        parts.append(f"then {lines} no numbers (units?)")
        proposal["unit_rows"] = str(found.unit_rows)
    if not parts:
        return
    raise ReadingError(
        f"{source.where}: '{path.name}' looks like a table in which {', '.join(parts)}; pass "
        f"{as_flags(proposal)}",
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
