"""Text, numbers, tables and lists of the report.

Everything that comes from outside (client names, notes, commands) passes through `escape`, and
`table` and `definition_list` call it themselves: their callers hand over plain text.
"""

import html
import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = [
    "Column",
    "definition_list",
    "escape",
    "format_bytes",
    "format_number",
    "printable",
    "shorten",
    "table",
]

# Characters that XML 1.0 forbids, and lone surrogates, which UTF-8 cannot write.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Column(NamedTuple):
    """Heading of one table column; numbers are set right-aligned."""

    heading: str
    is_number: bool = False


def escape(text: object) -> str:
    """Make any value safe as HTML or SVG text and as an attribute value."""
    return html.escape(printable(text), quote=True)


def printable(text: object) -> str:
    """Replace characters that neither HTML nor UTF-8 can hold."""
    return _UNPRINTABLE.sub("\ufffd", str(text))


def shorten(name: str, max_chars: int = 30) -> str:
    """Cut a long name with an ellipsis, keeping its end: names often differ only there.

    Example:
        >>> shorten("north_wing_pump_house_pressure_sensor_07")
        'north_wing_pump_hou…_sensor_07'
    """
    name = " ".join(name.split())
    if len(name) <= max_chars:
        return name
    tail = max_chars // 3
    return f"{name[: max_chars - tail - 1]}…{name[len(name) - tail :]}"


def format_number(value: int | float | None) -> str:
    """Print a number with three decimals, or three digits where decimals would hide it.

    Example:
        >>> [format_number(x) for x in (0.1234, 0.00004567, 4.0, None)]
        ['0.123', '4.57e-05', '4.000', '–']
    """
    if value is None or not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.3f}"
    return f"{value:.2e}"


def format_bytes(count: int | float | None) -> str:
    """Print a number of bytes in B, kB, MB, GB or TB (powers of 1000)."""
    if count is None or not math.isfinite(count):
        return "–"
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 999.5:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"


def table(columns: Sequence[Column], rows: Iterable[Sequence[str]], *, caption: str) -> str:
    """Build a table from plain text cells; wide tables scroll inside their own frame."""
    head = "".join(f"<th scope='col'{_number_class(c)}>{escape(c.heading)}</th>" for c in columns)
    body = "\n".join(
        "<tr>"
        + "".join(
            f"<td{_number_class(column)}>{escape(cell)}</td>"
            for column, cell in zip(columns, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f"<p class='caption'>{escape(caption)}</p>\n"
        f"<div class='scroll' tabindex='0' role='region' aria-label='{escape(caption)}'>"
        f"<table aria-label='{escape(caption)}'>\n"
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def definition_list(pairs: Iterable[tuple[str, str]]) -> str:
    """Build a definition list from plain text pairs; an empty list gives an empty string."""
    items = "\n".join(
        f"<div><dt>{escape(term)}</dt><dd>{escape(value)}</dd></div>" for term, value in pairs
    )
    return f"<dl>\n{items}\n</dl>" if items else ""


def _number_class(column: Column) -> str:
    return " class='num'" if column.is_number else ""
