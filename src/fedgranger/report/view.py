"""What the sections of the page are made of: text and numbers that templates turn into markup.

A section is a mapping that its template reads, or None where a run has nothing for it; the page
then leaves it out. Every text is unescaped: the template engine escapes it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Section = dict[str, Any]
Terms = tuple[tuple[str, str], ...]
"""A list of terms with their values."""


class Column(NamedTuple):
    """Heading of one table column; numbers are set right-aligned."""

    heading: str
    is_number: bool = False


class Table(NamedTuple):
    """Cells of a table; the caption is its name."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]


class Chart(NamedTuple):
    """A chart that the page's script draws.

    Attributes:
        key: its name in the page.
        title: what it shows.
        words: what is seen in it, for those who do not see it.
        data: what the script needs; `kind` says how it is drawn.
        headings: of the table that readers without scripts see.
        rows: its numbers.
    """

    key: str
    title: str
    words: str
    data: Mapping[str, Any]
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def charts_of(part: Any) -> Iterator[Chart]:
    """All charts of a page, or of any part of it."""
    if isinstance(part, Chart):
        yield part
    elif isinstance(part, dict | tuple):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from charts_of(inner)
