"""Text files as columns: arrow does the reading, as the options say."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv

from fedgranger.data import input_checks
from fedgranger.data.cell_text import grouped_by_point
from fedgranger.data.file_format import Cells, FileFormat, delimiter_of
from fedgranger.data.reading_progress import add_bytes
from fedgranger.data.text_structure import NUM_LINES, cells_of, find_encoding, first_lines
from fedgranger.errors import DataError, ReadingError
from fedgranger.text import counted

BLOCK_BYTES = 1 << 22
UNNAMED = re.compile(r"\s*|__index_level_\d+__|Unnamed: \d+")
NULLS = ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
         "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null")  # fmt: skip
"""What arrow takes for an empty cell."""
RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
"""What arrow says of a row with too many or too few cells.

Arrow's threads are never given a function of Python to tell it, nor one that decodes: they would
still hold it while the interpreter ends, and letting go of it then aborts the process.
"""


def read_text(where: str, path: Path, written: FileFormat) -> Cells:
    """Read a text file as its options say."""
    if written.encoding == "utf-8" and _starts_as_utf16(path):
        raise not_utf8(where, "the file", "utf-16")
    delimiter = delimiter_of(path, written)
    try:
        if delimiter == " ":
            data, headers = _read_by_spaces(path, written)
        else:
            data, headers = _read_delimited(where, path, delimiter, written)
    except LookupError as error:
        raise DataError(
            f"{where}: encoding is '{written.encoding}', which Python does not know; pass utf-8, "
            "cp1252 or another one that it knows (--encoding)"
        ) from error
    if delimiter != "," and not written.is_point_sure:
        _refuse_undecided(where, path, delimiter, written)
    for k, name in enumerate(headers):
        if pa.types.is_binary(data.column(k).type):
            raise not_utf8(where, f"column '{name}'")
    num_rows = data.num_rows - _num_blank_at_end(path, headers)
    columns = {k: data.column(k).slice(0, num_rows) for k in range(len(headers))}
    above, below = _lines_around_header(path, written)
    notes = []
    if above or below:
        shown = "; ".join(repr(line[:60]) for line in (*above, *below)[:5])
        count = len(above) + len(below)
        lines = counted(count, "line next to the header holds", "lines next to the header hold")
        notes.append(f"{where}: {lines} no data: {shown}")
    return Cells(headers, columns, num_rows, cells_of(below, delimiter), tuple(notes))


def _lines_around_header(path: Path, written: FileFormat) -> tuple[list[str], list[str]]:
    """Lines above the header, and between it and the data.

    Only these may hold letters that are not UTF-8, where nothing else depends on the encoding.
    """
    count = written.skip_rows + 1 + written.unit_rows
    if count == 1:
        return [], []
    is_default = written.encoding == "utf-8"
    encoding = (find_encoding(path) if is_default else None) or written.encoding
    lines = first_lines(path, encoding, count)
    return lines[: written.skip_rows], lines[written.skip_rows + 1 :]


def name_columns(names: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Call columns without a name "column 3"; return all names, and those that were given."""
    given = {
        k: f"column {k + 1}"
        for k, name in enumerate(names)
        if UNNAMED.fullmatch(name) and f"column {k + 1}" not in names
    }
    return [given.get(k, name) for k, name in enumerate(names)], tuple(given.values())


def _refuse_undecided(where: str, path: Path, delimiter: str, written: FileFormat) -> None:
    """Refuse points that may group thousands, as they do where cells are separated otherwise."""
    lines = first_lines(path, written.encoding, NUM_LINES)
    rows = lines[written.skip_rows + written.unit_rows + 1 :]
    cell = grouped_by_point([part for row in rows for part in row.split(delimiter)])
    if cell:
        raise DataError(
            f"{where}: the point in '{cell}' can separate decimals or group thousands, as in every "
            "cell of the first rows; pass the right one of --decimal point and --decimal comma "
            "--thousands point"
        )


def _read_delimited(
    where: str, path: Path, delimiter: str, written: FileFormat
) -> tuple[pa.Table, list[str]]:
    read = arrow_csv.ReadOptions(
        use_threads=False,
        block_size=BLOCK_BYTES,
        skip_rows=written.skip_rows,
        skip_rows_after_names=written.unit_rows,
    )
    # A blank line is a missing sample in a file of one column, so arrow must not skip it.
    parse = arrow_csv.ParseOptions(
        delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=False
    )
    convert = {
        "strings_can_be_null": True,
        "null_values": [*NULLS, *written.missing_text],
        "decimal_point": written.decimal,
    }
    infer = arrow_csv.ConvertOptions(**convert)
    text = path if written.encoding == "utf-8" else _as_utf8(path, written.encoding)
    try:
        with arrow_csv.open_csv(text, read, parse, infer) as reader:
            schema = reader.schema
        names = schema.names
        named, _ = name_columns(names)
        input_checks.check_names(where, named)
        time_name = input_checks.find_time_column(where, named, written.time_column)
        kept = (time_name, written.tag_column, *input_checks.time_parts(named, str(time_name)))
        stamps = _zoned_stamps(schema, time_name)
        typed = (name for name in names if name not in kept)
        types = dict.fromkeys(typed, pa.float64()) | stamps
        infer = arrow_csv.ConvertOptions(column_types=stamps, **convert)
        fixed = arrow_csv.ConvertOptions(column_types=types, **convert)
        try:
            with arrow_csv.open_csv(text, read, parse, fixed) as reader:
                return _read_blocks(reader, path), names
        except pa.ArrowInvalid as error:
            if RAGGED.search(str(error)):
                raise
            # Some cell is no plain number (true, text, a stamp): reading with inferred types
            # takes more memory but keeps the cells, so that the checks can name the first one.
            return arrow_csv.read_csv(text, read, parse, infer), names
    except pa.ArrowInvalid as error:
        found = RAGGED.search(str(error))
        lines = first_lines(path, written.encoding, NUM_LINES)
        if found is None or any("\0" in line for line in lines):  # the latter is no text at all
            raise
        row, expected, actual = map(int, found.groups())
        raise DataError(
            f"{where}, data row {row - 1 - written.skip_rows - written.unit_rows}: expected "
            f"{expected} cells as in the header, found {actual}; give every row one cell per column"
        ) from error


def _as_utf8(path: Path, encoding: str) -> pa.Buffer:
    """A file in another encoding, in memory of arrow's own."""
    sink = pa.BufferOutputStream()
    with io.TextIOWrapper(pa.input_stream(path), encoding, newline="") as text:
        while part := text.read(BLOCK_BYTES):
            sink.write(part.encode(errors="replace"))
    return sink.getvalue()


def _zoned_stamps(schema: pa.Schema, time_name: str | None) -> dict[str, pa.DataType]:
    """The time column as text where it names a zone: as stamps arrow would keep UTC alone."""
    kind = schema.field(time_name).type if time_name in schema.names else pa.null()
    is_zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    return {str(time_name): pa.string()} if is_zoned else {}


def _read_blocks(reader: arrow_csv.CSVStreamingReader, path: Path) -> pa.Table:
    """All rows; whoever follows learns of every block."""
    blocks = []
    for block in reader:
        blocks.append(block)
        add_bytes(path, BLOCK_BYTES)
    return pa.Table.from_batches(blocks, reader.schema)


def _read_by_spaces(path: Path, written: FileFormat) -> tuple[pa.Table, list[str]]:
    """Columns that runs of spaces align; every cell stays text."""
    skipped = [*range(written.skip_rows)]
    skipped += [written.skip_rows + 1 + k for k in range(written.unit_rows)]
    frame = pd.read_csv(
        path,
        sep=r"\s+",
        dtype=str,
        header=None,
        skiprows=skipped,
        encoding=written.encoding,
        na_values=list(written.missing_text),
    )
    headers = [str(name) for name in frame.iloc[0]]
    cells = frame.iloc[1:]
    arrays = [pa.array(cells[k], pa.string(), from_pandas=True) for k in range(len(headers))]
    table = pa.Table.from_arrays(arrays, names=[str(k) for k in range(len(headers))])
    return table, headers


def _starts_as_utf16(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) in (b"\xff\xfe", b"\xfe\xff")


def _num_blank_at_end(path: Path, names: list[str]) -> int:
    """Count blank lines after the last row; in a file of one column they are missing samples."""
    if len(names) == 1 or path.suffix.lower() == ".gz":
        return 0
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - BLOCK_BYTES))
        tail = file.read().replace(b"\0", b"")  # of UTF-16, too
    return max(0, tail[len(tail.rstrip(b"\r\n")) :].count(b"\n") - 1)


def not_utf8(where: str, place: str, encoding: str = "cp1252") -> ReadingError:
    """The error for a file in another encoding."""
    message = f"{where}: {place} is not UTF-8 text; save the file with UTF-8 encoding"
    return ReadingError(f"{message}, or pass --encoding {encoding}", {"encoding": encoding})
