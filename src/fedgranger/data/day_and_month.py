"""Is 03/04/2026 in March or in April? In the wrong order of day and month the rows jump by weeks.

Every midnight moves such a date by a month. A pattern with % is not questioned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedgranger.data.cell_text import parse_dates
from fedgranger.errors import ReadingError

JUMP = np.timedelta64(14, "D")
"""The wrong order jumps by four weeks, a plant seldom stands still for two."""
USUAL_STEPS = 10
"""A jump is longer than this many of the file's usual steps: rows once a month do not jump."""


class Jump(NamedTuple):
    """The first place where rows do not follow each other; rows are counted from 0."""

    row: int
    days: int


def decided_order(texts: Sequence[str], orders: Sequence[str]) -> tuple[str, str]:
    """The one of two orders in which the rows follow each other, and why; "" when both may be."""
    jumps = {order: _first_jump(_stamps(texts, order)) for order in orders}
    for order, other in (orders, orders[::-1]):
        jump = jumps[other]
        if jumps[order] is None and jump is not None:
            return order, _reason(order, other, jump)
    return "", ""


def refuse_swapped(place: str, texts: Sequence[str], stamps: np.ndarray, date_format: str) -> None:
    """Refuse an order of day and month in which rows jump, while in the other they do not.

    Raises:
        ReadingError: the other order is proposed.
    """
    jump = None if date_format == "iso" or "%" in date_format else _first_jump(stamps)
    if jump is None:
        return
    other = date_format.replace("dd", "*").replace("mm", "dd").replace("*", "mm")
    swapped = _stamps(texts, other)
    if np.isnat(swapped).any() or _first_jump(swapped) is not None:
        return
    raise ReadingError(
        f"{place} {jump.row + 1}: the time is '{texts[jump.row]}', and "
        f"{_reason(other, date_format, jump)}; pass --date-format {other} (a pattern "
        "with % is taken as it is)",
        {"date_format": other},
    )


def _reason(order: str, other: str, jump: Jump) -> str:
    return (
        f"read as {other} the rows jump by {jump.days} days at data row {jump.row + 1}, as {order} "
        "they follow each other"
    )


def _stamps(texts: Sequence[str], date_format: str) -> np.ndarray:
    stamps = parse_dates(texts, date_format)
    return (stamps if stamps.tz is None else stamps.tz_convert(None)).to_numpy()


def _first_jump(stamps: np.ndarray) -> Jump | None:
    """The first jump of the times in their order; rows may be out of order or repeat a time."""
    times = np.unique(stamps)
    steps = np.diff(times)
    if not len(steps):
        return None
    is_jump = steps > max(JUMP, USUAL_STEPS * np.median(steps))
    if not is_jump.any():
        return None
    place = int(np.argmax(is_jump))
    row = int(np.argmax(stamps == times[place + 1]))
    return Jump(row, int(steps[place] / np.timedelta64(1, "D")))
