"""What is odd about the sensors of a client, as facts and as sentences.

`examine` only describes; what follows from it is decided in `fedgranger.data.sensor_preparation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from shlex import quote
from typing import NamedTuple

import numpy as np

from fedgranger.data.columns import (
    LEAST_ROWS,
    Code,
    Counter,
    clock_step,
    find_code,
    find_counter,
    longest_stand_still,
)
from fedgranger.data.unit_root import UnitRoot, unit_root_test

DIFFERENCED = ("counter", "integrated")
"""Kinds whose change per row is used unless the user chooses otherwise."""
FEW_TIME_CONSTANTS = 4.0
"""Fewer than this in a record: the sensor wanders. At 10 in truth, 1 sensor in 100 shows fewer."""
CLEAR_P, DOUBTFUL_P = 0.3, 0.05
MERE_NOISE = -0.4
"""Consecutive changes that are more negatively correlated are mostly measurement noise."""
LEAST_MOVING = 0.5
"""Share of rows in which a sensor must change to be tested for wandering."""
COSTLY = 0.05
"""A sensor is named when its client loses this share of its rows to missing samples."""
MOST_NAMES = 8


class Finding(NamedTuple):
    """One odd thing about one sensor.

    Attributes:
        kind: "code" (a number stands for a missing sample), "clock", "counter", "integrated"
            (wanders without coming back), "slow" (may wander), "stuck", "missing" (costs rows).
        client: whose sensor it is.
        sensor: the column.
        rows: rows concerned.
        first_row: the first of them, counted from 1.
        value: the code, the clock's step, the value it stands at, or its time constants in the
            record; NaN without one.
        share: rows concerned, of all.
        direction: of a counter, 1 or -1; else 0.
        label: how options name the sensor.
        sentence: what was found, to be read after "sensor 'x'".
        remedy: what to do about it.
    """

    kind: str
    client: str
    sensor: str
    rows: int
    first_row: int
    value: float
    share: float
    direction: int
    label: str
    sentence: str
    remedy: str


def examine(
    client: str,
    sensors: Sequence[str],
    values: np.ndarray,
    time: np.ndarray | None,
    label: Callable[[str], str],
) -> list[Finding]:
    """Examine every sensor of a client.

    Args:
        client: its name.
        sensors: names of the columns.
        values: shape (time, sensor), NaN where missing.
        time: the time axis, None when rows are it.
        label: how options name a sensor of this client.

    Returns:
        The findings in the order of the columns; at most one on each sensor's nature (code,
        clock, counter, integrated, slow) and one on its standing still.
    """
    if len(values) < LEAST_ROWS:
        return []
    with np.errstate(over="ignore", invalid="ignore"):  # differences of numbers near 1e308
        return [
            finding
            for sensor, column in zip(sensors, values.T, strict=True)
            for finding in _examine_one(client, sensor, column, time, label)
        ]


def _examine_one(
    client: str,
    sensor: str,
    original: np.ndarray,
    time: np.ndarray | None,
    label: Callable[[str], str],
) -> list[Finding]:
    found: list[Finding] = []
    column = np.ascontiguousarray(original)
    num_rows = len(column)
    make = _maker(client, sensor, num_rows, label(sensor))
    code = find_code(column)
    if code is not None:
        found.append(_code_finding(make, code, num_rows))
        column = np.where(column == code.value, np.nan, column)
    low, high = np.fmin.reduce(column), np.fmax.reduce(column)
    if not low < high:  # constant or never observed: refused or dropped elsewhere
        return found
    step = clock_step(sensor, column, time)
    if step is not None:
        sentence = (
            f"rises in every row, typically by {step:g} ({low:.12g} to {high:.12g}): it is a "
            "clock or a row number and no sensor"
        )
        remedy = (
            f"pass it as the time column (--time-column {quote(sensor)}) or leave it out "
            f"(--leave-out {quote(label(sensor))})"
        )
        found.append(make("clock", num_rows, 0, step, sentence, remedy))
        return found
    found.extend(_wandering(make, column, label(sensor)))
    still = longest_stand_still(column)
    if still is not None:
        sentence = (
            f"stands still at {still.value:g} for {100 * still.share:.0f} % of the rows (from "
            f"data row {still.first_row + 1})"
        )
        remedy = f"leave it out if it was stuck (--leave-out {quote(label(sensor))})"
        found.append(make("stuck", still.rows, still.first_row, still.value, sentence, remedy))
    return found


def lost_rows(
    client: str, sensors: Sequence[str], is_missing: np.ndarray, label: Callable[[str], str]
) -> Finding | None:
    """Name the sensor that costs a client the most rows, when it loses many.

    A row counts for a sensor when it would be complete without it.
    """
    is_missing = is_missing & ~is_missing.all(axis=1, keepdims=True)  # nobody's fault
    per_row = is_missing.sum(axis=1)
    lost = int((per_row > 0).sum())
    if len(is_missing) < LEAST_ROWS or lost < COSTLY * len(is_missing) or len(sensors) < 2:
        return None
    alone = (is_missing & (per_row == 1)[:, None]).sum(axis=0)
    worst = int(np.argmax(alone)) if alone.any() else int(np.argmax(is_missing.sum(axis=0)))
    rows, sensor = int(is_missing[:, worst].sum()), sensors[worst]
    share = rows / len(is_missing)
    sentence = (
        f"costs {100 * share:.0f} % of the client's rows, in which it has no sample ({lost} of "
        f"{len(is_missing)} rows are lost in all, {int(alone[worst])} of them to it alone)"
    )
    remedy = f"leave it out with --leave-out {quote(label(sensor))}"
    first = int(np.argmax(is_missing[:, worst])) + 1
    name, value = label(sensor), float("nan")
    return Finding("missing", client, sensor, rows, first, value, share, 0, name, sentence, remedy)


def quoted_list(names: Iterable[str]) -> str:
    """Quote names one after the other, the first eight of many."""
    quoted = [f"'{name}'" for name in names]
    if len(quoted) > MOST_NAMES:
        return f"{', '.join(quoted[:MOST_NAMES])} and {len(quoted) - MOST_NAMES} more"
    return ", ".join(quoted)


def _maker(client: str, sensor: str, num_rows: int, label: str) -> Callable[..., Finding]:
    def make(
        kind: str,
        rows: int,
        first: int,
        value: float,
        sentence: str,
        remedy: str,
        direction: int = 0,
    ) -> Finding:
        share = rows / num_rows
        return Finding(
            kind, client, sensor, rows, first + 1, value, share, direction, label, sentence, remedy
        )

    return make


def _code_finding(make: Callable[..., Finding], code: Code, num_rows: int) -> Finding:
    sentence = (
        f"is {code.value:g} in {code.rows} of {num_rows} rows, the first is data row "
        f"{code.first_row + 1}, while all others lie between {code.low:g} and {code.high:g}: "
        "it looks like a code for a missing sample"
    )
    remedy = (
        "empty those cells, or pass missing='mask' (--missing mask) to treat them as missing, or "
        "suspect='keep' (--suspect keep) if they were measured"
    )
    return make("code", code.rows, code.first_row, code.value, sentence, remedy)


def _wandering(make: Callable[..., Finding], column: np.ndarray, label: str) -> list[Finding]:
    counter = find_counter(column)
    if counter is not None:
        remedy = "--difference none uses it as measured"
        value, sign = float("nan"), counter.direction
        return [make("counter", len(column), 0, value, _describe_counter(counter), remedy, sign)]
    steps = np.diff(column)
    known = int((~np.isnan(steps)).sum())
    if np.count_nonzero(np.nan_to_num(steps)) < max(LEAST_MOVING * known, 1):
        return []
    root = unit_root_test(column)
    if root is None or root.p_value <= DOUBTFUL_P:
        return []
    is_clear = (
        root.p_value > CLEAR_P
        and root.time_constants < FEW_TIME_CONSTANTS
        and root.change_correlation > MERE_NOISE
    )
    remedy = (
        "--difference none uses it as measured"
        if is_clear
        else f"use its change per row with --difference {quote(f'auto,{label}')}"
    )
    kind = "integrated" if is_clear else "slow"
    sentence = _describe_root(root, is_clear=is_clear)
    return [make(kind, len(column), 0, root.time_constants, sentence, remedy)]


def _describe_counter(counter: Counter) -> str:
    word, other = ("rises", "falls") if counter.direction > 0 else ("falls", "rises")
    resets = f"{counter.resets} resets" if counter.resets != 1 else "1 reset"
    return f"counts: it {word} {counter.moves} times and never {other}" + (
        f" but for {resets}" if counter.resets else ""
    )


def _describe_root(root: UnitRoot, *, is_clear: bool) -> str:
    count = root.time_constants
    constants = f"{count:.0f}" if count >= 1.5 else "at most one" if np.isfinite(count) else "few"
    test = (
        f"unit-root test p = {root.p_value:.2f}, the record holds {constants} of its time constants"
    )
    return f"{'wanders without coming back' if is_clear else 'may be wandering'} ({test})"
