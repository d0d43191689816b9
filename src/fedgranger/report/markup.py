"""Text, numbers, tables and lists of the report.

Everything that comes from outside (client names, notes, commands) passes through `escape`, and
`table` and `definition_list` call it themselves: their callers hand over plain text.
"""

import html
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fedgranger.text import printable

__all__ = [
    "Column",
    "definition_list",
    "escape",
    "table",
]


class Column(NamedTuple):
    """Heading of one table column; numbers are set right-aligned."""

    heading: str
    is_number: bool = False


def escape(text: object) -> str:
    """Make any value safe as HTML or SVG text and as an attribute value."""
    return html.escape(printable(text), quote=True)


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
