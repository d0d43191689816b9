"""Numbers and dates as plants write them: what a cell is, and in which way it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from fedgranger.data.file_format import FileFormat
from fedgranger.data.reading_options import SIGNS

NUMBER_LIKE = re.compile(r"\s*[+-]?(\d[\d., '\u00a0\u202f]*|[.,]\d+)([eE][+-]?\d+)?\s*")
SMALL_DATE = re.compile(r"\s*(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})(?!\d)")
LARGE_DATE = re.compile(r"\s*(\d{4})([./-])(\d{1,2})\2(\d{1,2})(?!\d)")
HALF_DAY = re.compile(r"[ap]\.?m", re.IGNORECASE)
MOST_WORDS = 5
"""More different texts in a column are no codes for missing samples."""
CLOCKS = ("%H:%M:%S", "%H:%M", "%H:%M:%S.%f")
HALF_DAY_CLOCKS = ("%I:%M:%S %p", "%I:%M %p", "%I:%M:%S.%f %p")


def is_number_like(cell: str) -> bool:
    """Whether a cell is a number in some way of writing."""
    return NUMBER_LIKE.fullmatch(cell) is not None


def is_time_like(cell: str) -> bool:
    """Whether a cell begins with a date or a time of day."""
    found = SMALL_DATE.match(cell) or LARGE_DATE.match(cell)
    return found is not None or re.match(r"\s*\d{1,2}:\d\d", cell) is not None


def is_date_only(cells: Sequence[str]) -> bool:
    """Whether cells are dates without a time of day."""
    whole = (re.compile(kind.pattern + r"( 00:00:00)?\s*") for kind in (SMALL_DATE, LARGE_DATE))
    return any(all(kind.fullmatch(cell) for cell in cells) for kind in whole)


def is_clock_only(cells: Sequence[str]) -> bool:
    """Whether cells are times of day without a date."""
    return all(re.fullmatch(r"\s*\d{1,2}:\d\d(:\d\d.*)?(\s*[apAP][mM])?\s*", one) for one in cells)


def to_number(cell: str, written: FileFormat) -> float | None:
    """Read a number; None when it is none in this way of writing.

    Digits must be grouped by threes where they are grouped: "1.5" is no number when the point
    groups thousands.
    """
    text = cell.strip()
    if written.thousands:
        group, point = re.escape(written.thousands), re.escape(written.decimal)
        space = "[ \u00a0\u202f]" if written.thousands == " " else group
        if re.fullmatch(rf"[+-]?\d{{1,3}}({space}\d{{3}})+({point}\d*)?", text):
            text = re.sub(space, "", text)
    if written.decimal != ".":
        if "." in text:
            return None
        text = text.replace(written.decimal, ".")
    try:
        value = float(text)
    except ValueError:
        return None
    return None if "_" in text else value  # Python reads 1_000, no other program does


def propose_numbers(cells: Sequence[str], written: FileFormat) -> dict[str, str]:
    """Options with which a column's cells are numbers; {} when no way of writing fits all.

    A few texts among them may stand for missing samples. Cells such as 1,234 alone do not tell
    thousands from decimals: a second sign must.
    """
    all_cells, cells = cells, [cell for cell in cells if is_number_like(cell)]
    words = {cell.strip() for cell in all_cells if not is_number_like(cell)}
    if len(words) > MOST_WORDS or 2 * len(cells) <= len(all_cells):
        return {}
    if all(to_number(cell, written) is not None for cell in cells):
        return {}
    for decimal, thousands in (
        (",", ""),
        (".", ","),
        (",", "."),
        (".", " "),
        (",", " "),
        (".", "'"),
    ):
        other = written._replace(decimal=decimal, thousands=thousands)
        if all(to_number(cell, other) is not None for cell in cells):
            wanted = {"decimal": decimal, "thousands": thousands}
            now = {"decimal": written.decimal, "thousands": written.thousands}
            return {name: sign_word(sign) for name, sign in wanted.items() if sign != now[name]}
    return {}


def is_undecided(cells: Iterable[str], proposal: Mapping[str, str]) -> bool:
    """Whether a comma could as well group thousands: every cell with one is like 1,234."""
    with_comma = [cell.strip() for cell in cells if "," in cell]
    grouped = all(re.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}", cell) for cell in with_comma)
    return proposal.get("decimal") == "comma" and bool(with_comma) and grouped


def grouped_by_point(cells: Iterable[str]) -> str:
    """The first cell like 1.234, when no other cell has a point that must be a decimal one."""
    with_point = [cell.strip() for cell in cells if "." in cell and is_number_like(cell)]
    grouped = all(re.fullmatch(r"[+-]?[1-9]\d{0,2}\.\d{3}", cell) for cell in with_point)
    return with_point[0] if with_point and grouped else ""


def propose_words(cells: Sequence[str], written: FileFormat) -> list[str]:
    """Texts among the numbers of a column that may stand for missing samples; [] for others."""
    odd = [cell for cell in cells if to_number(cell, written) is None]
    words = sorted({cell.strip() for cell in odd})
    if len(odd) * 2 > len(cells) or len(words) > MOST_WORDS:
        return []
    is_word = all(not is_number_like(word) and not is_time_like(word) for word in words)
    return words if is_word and not any("," in word for word in words) else []


def date_orders(cells: Sequence[str]) -> list[str]:
    """Every way of writing dates, such as dd.mm.yyyy, in which all cells are dates."""
    first = next(iter(cells), "")
    match = LARGE_DATE.match(first)
    if match:
        sign, year = match[2], "yyyy"
        orders = [sign.join((year, "mm", "dd"))] if sign != "-" else []
    else:
        match = SMALL_DATE.match(first)
        if match is None:
            return []
        sign, year = match[2], "yyyy" if len(match[4]) == 4 else "yy"
        parts = (("dd", "mm"),) if sign == "." else (("dd", "mm"), ("mm", "dd"))
        orders = [sign.join((*both, year)) for both in parts]  # nobody writes mm.dd.yyyy
    return [order for order in orders if not parse_dates(cells, order).isna().any()]


def parse_dates(cells: Sequence[str], date_format: str) -> pd.DatetimeIndex:
    """Read time stamps in one way of writing; NaT where a cell is none.

    After the date comes a time of day, with seconds or without, of 12 or 24 hours, or none, and
    perhaps a zone, in which case the stamps are in UTC. A pattern with % is used as it is.
    """
    texts = pd.Series(list(cells), dtype=object).str.strip()
    has_zone = bool(texts.str.contains(r":\d\d.*(?:Z|[+-]\d\d:?\d\d)$", regex=True).any())
    if "%" in date_format:
        patterns = [date_format]
    else:
        date = date_format
        for word, sign in (("yyyy", "%Y"), ("yy", "%y"), ("mm", "%m"), ("dd", "%d")):
            date = date.replace(word, sign)
        has_half = bool(len(texts)) and HALF_DAY.search(texts.iloc[0]) is not None
        clocks = HALF_DAY_CLOCKS if has_half else CLOCKS
        glue = "T" if len(texts) and re.match(r"\S+T\d", texts.iloc[0]) else " "
        patterns = [f"{date}{glue}{clock}" for clock in clocks]
        patterns = [f"{one}%z" for one in patterns] if has_zone else [*patterns, date]
    out = pd.Series(
        pd.NaT, index=texts.index, dtype="datetime64[ns, UTC]" if has_zone else "M8[ns]"
    )
    for pattern in patterns:
        left = out.isna()
        if not left.any():
            break
        found = pd.to_datetime(texts[left], format=pattern, errors="coerce", utc=has_zone)
        out.loc[left] = found.astype(out.dtype)
    return pd.DatetimeIndex(out)


def is_known_date_format(date_format: str) -> bool:
    """Whether `parse_dates` understands it, or it is "iso"."""
    if date_format == "iso" or "%" in date_format:
        return True
    match = re.fullmatch(r"(yyyy|yy|mm|dd)([./-])(mm|dd)\2(yyyy|yy|mm|dd)", date_format)
    return match is not None and {match[1][:1], match[3][:1], match[4][:1]} == {"d", "m", "y"}


def sign_word(sign: str) -> str:
    """A sign as options write it, in words that need no quotes."""
    words = {sign: word for word, sign in SIGNS.items()} | {" ": "space", "": "none"}
    return words[sign]
