"""Units of sensors from the lines between header and data; those in names are `text.unit_of`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedgranger.data.cell_text import is_number_like
from fedgranger.text import unit_of

STORAGE = frozenset(
    ("real", "float", "double", "int", "dint", "bool", "string", "text", "number", "avg", "smp")
)
"""Words in such a line that say how a column is stored or made."""


def with_unit(sensor: str, units: Mapping[str, str]) -> str:
    """A sensor's name with its unit in brackets, where one is known and not there already."""
    unit = units.get(sensor, "")
    return f"{sensor} [{unit}]" if unit and not unit_of(sensor) else sensor


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
