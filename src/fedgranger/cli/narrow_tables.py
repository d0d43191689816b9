r"""Tables that never cut a name: where it is narrow other columns go first, then names fold.

A table without lines is \(\sum_k (w_k + 2)\) columns wide, with w the widths of its columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

PADDING = 2
LEAST_NAME = 4


class NarrowTable:
    """Rows under a header, laid out when it is known how wide the terminal is.

    Attributes:
        columns: names of the columns; those in `left` are of words, the others of numbers, on the
            right.
        rows: cells, with markup.
        left: columns that are never left out.
        drop: which others are left out first; then those to the right. The last one stays.
        styles: of every row.
    """

    def __init__(
        self,
        columns: Iterable[str],
        rows: Iterable[Iterable[str]],
        left: Collection[str] = ("client",),
        drop: Sequence[str] = (),
        styles: Sequence[str | None] = (),
    ) -> None:
        self.columns, self.rows = list(columns), [list(row) for row in rows]
        self.left, self.drop, self.styles = left, drop, styles

    def __rich_console__(self, _: Any, options: Any) -> Iterator[Table]:
        whole, folded = (
            {name: self._width(k, name, is_folded=is_folded) for k, name in enumerate(self.columns)}
            for is_folded in (False, True)
        )
        natural = whole if _total(whole) <= options.max_width else folded
        shown = self._fitting(natural, options.max_width)
        widths = self._folded({name: natural[name] for name in shown}, options.max_width)
        table = Table(box=None, header_style="bold", caption_justify="left")
        for name in shown:
            side = "left" if name in self.left else "right"
            table.add_column(name, justify=side, overflow="fold", width=widths[name])
        places = [self.columns.index(name) for name in shown]
        for k, row in enumerate(self.rows):
            style = self.styles[k] if self.styles else None
            table.add_row(*(row[place] for place in places), style=style)
        if len(shown) < len(self.columns):
            hidden = ", ".join(name for name in self.columns if name not in shown)
            table.caption = Text(f"not shown in {options.max_width} columns: {hidden}")
        yield table

    def _width(self, place: int, name: str, *, is_folded: bool) -> int:
        """Widest cell of a column; the header of numbers can be folded between its words."""
        words = name.split() if is_folded and name not in self.left else [name]
        cells = [Text.from_markup(row[place]) for row in self.rows]
        return max([Text(word).cell_len for word in words] + [cell.cell_len for cell in cells])

    def _fitting(self, natural: dict[str, int], width: int) -> list[str]:
        shown = list(self.columns)
        others = [name for name in reversed(shown) if name not in (*self.left, *self.drop)]
        leaving = [*(name for name in self.drop if name in shown), *others]
        while len(leaving) > 1 and _total({name: natural[name] for name in shown}) > width:
            shown.remove(leaving.pop(0))
        return shown

    def _folded(self, natural: dict[str, int], width: int) -> dict[str, int]:
        """Take from the widest column of words until all fit."""
        widths = dict(natural)
        words = [name for name in widths if name in self.left] or list(widths)
        while _total(widths) > width:
            widest = max(words, key=widths.__getitem__)
            if widths[widest] <= LEAST_NAME:
                break
            widths[widest] -= 1
        return widths


def _total(widths: dict[str, int]) -> int:
    return sum(width + PADDING for width in widths.values())
