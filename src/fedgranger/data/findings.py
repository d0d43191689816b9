"""What is odd about the sensors of a client, as facts and as sentences.

`examine` only describes; what follows from it is decided in `fedgranger.data.sensor_preparation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from fedgranger.data.columns import (
    LEAST_ROWS,
    clock_step,
    find_code,
    find_counter,
    find_frozen,
    longest_stand_still,
)
from fedgranger.data.time_stamps import shown_time
from fedgranger.data.treatment import ClientTable
from fedgranger.data.unit_root import unit_root_test
from fedgranger.text import counted

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
"""A sensor is named when this share of its client's rows lacks some sensor."""
DEAD = 0.5
"""A sensor that lacks a larger share of its samples is better left out."""


class Finding(NamedTuple):
    """One odd thing about one sensor.

    Attributes:
        kind: "code" (a number stands for a missing sample), "clock", "counter", "integrated"
            (wanders without coming back), "slow" (may wander), "stuck", "frozen" (stuck for
            a while), "missing" (lacks samples).
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


def examine(table: ClientTable) -> list[Finding]:
    """Examine every sensor of a client.

    Returns:
        The findings in the order of the columns; at most one on each sensor's nature (code,
        clock, counter, integrated, slow) and one on its standing still.
    """
    if len(table.values) < LEAST_ROWS:
        return []
    # differences of numbers near 1e308; small regressions on several threads wait for each other
    with np.errstate(over="ignore", invalid="ignore"), threadpool_limits(1):
        return [
            finding
            for sensor, column in zip(table.sensors, table.values.T, strict=True)
            for finding in _examine_one(table, sensor, np.ascontiguousarray(column))
        ]


def _examine_one(table: ClientTable, sensor: str, column: np.ndarray) -> list[Finding]:
    found: list[Finding] = []
    code = find_code(column)
    if code is not None:
        sentence = (
            f"is {code.value:g} in {code.rows} of {len(column)} rows, the first is data row "
            f"{code.first_row + 1}, while all others lie between {code.low:g} and {code.high:g}: "
            "it looks like a code for a missing sample"
        )
        remedy = (
            "empty those cells, or pass missing='mask' (--missing mask) to treat them as missing, "
            "or suspect='keep' (--suspect keep) if they were measured"
        )
        place = {"rows": code.rows, "first_row": code.first_row, "value": code.value}
        found.append(_finding(table, sensor, "code", sentence, remedy, **place))
        column = np.where(column == code.value, np.nan, column)
    low, high = np.fmin.reduce(column), np.fmax.reduce(column)
    if not low < high:  # constant or never observed: refused or dropped elsewhere
        return found
    without = f"--leave-out {quote(table.label(sensor))}"
    step = clock_step(sensor, column, table.time)
    if step is not None:
        sentence = (
            f"rises in every row, typically by {step:g} ({low:.12g} to {high:.12g}): it is a "
            "clock or a row number and no sensor"
        )
        column_option = f"--time-column {quote(sensor)}"
        remedy = f"pass it as the time column ({column_option}) or leave it out ({without})"
        return [*found, _finding(table, sensor, "clock", sentence, remedy, value=step)]
    wandering = _wandering(table, sensor, column)
    if wandering is not None:
        found.append(wandering)
    still = longest_stand_still(column)
    if still is not None:
        sentence = (
            f"stands still at {still.value:g} for {100 * still.share:.0f} % of the rows (from "
            f"data row {still.first_row + 1})"
        )
        remedy = f"leave it out if it was stuck ({without})"
        place = {"rows": still.rows, "first_row": still.first_row, "value": still.value}
        found.append(_finding(table, sensor, "stuck", sentence, remedy, **place))
        return found
    if wandering is None or wandering.kind != "counter":  # a counter rests with its machine
        found += _frozen(table, sensor, column)
    return found


def _frozen(table: ClientTable, sensor: str, column: np.ndarray) -> list[Finding]:
    run = find_frozen(column)
    if run is None:
        return []
    last_row = run.first_row + run.rows - 1
    when = ""
    if table.time is not None:
        first, last = shown_time(table.time[run.first_row]), shown_time(table.time[last_row])
        when = f" ({first} to {last}{' UTC' if table.zone else ''})"
    sentence = (
        f"repeats {run.value:g} in {run.rows} rows, data rows {run.first_row + 1} to "
        f"{last_row + 1}{when}, and else changes in nearly every row: it looks stuck for that time"
    )
    remedy = "if it was stuck, empty those cells and pass --missing mask"
    place = {"rows": run.rows, "first_row": run.first_row, "value": run.value}
    return [_finding(table, sensor, "frozen", sentence, remedy, **place)]


def _wandering(table: ClientTable, sensor: str, column: np.ndarray) -> Finding | None:
    counter = find_counter(column)
    as_measured = "--difference none uses it as measured"
    if counter is not None:
        word, other = ("rises", "falls") if counter.direction > 0 else ("falls", "rises")
        resets = counted(counter.resets, "reset")
        sentence = f"counts: it {word} {counter.moves} times and never {other}"
        sentence += f" but for {resets}" if counter.resets else ""
        direction = counter.direction
        return _finding(table, sensor, "counter", sentence, as_measured, direction=direction)
    steps = np.diff(column)
    known = int((~np.isnan(steps)).sum())
    if np.count_nonzero(np.nan_to_num(steps)) < max(LEAST_MOVING * known, 1):
        return None
    root = unit_root_test(column)
    if root is None or root.p_value <= DOUBTFUL_P:
        return None
    count = root.time_constants
    constants = f"{count:.0f}" if count >= 1.5 else "at most one" if np.isfinite(count) else "few"
    test = (
        f"unit-root test p = {root.p_value:.2f}, the record holds {constants} of its time constants"
    )
    is_clear = (
        root.p_value > CLEAR_P
        and count < FEW_TIME_CONSTANTS
        and root.change_correlation > MERE_NOISE
    )
    if is_clear:
        sentence = f"wanders without coming back ({test})"
        return _finding(table, sensor, "integrated", sentence, as_measured, value=count)
    option = quote(f"auto,{table.label(sensor)}")
    remedy = f"use its change per row with --difference {option}"
    return _finding(table, sensor, "slow", f"may be wandering ({test})", remedy, value=count)


def lacking_sensor(table: ClientTable, is_missing: np.ndarray) -> Finding | None:
    """Name the sensor that lacks the most samples, when many rows lack some sensors but not all."""
    is_missing = is_missing & ~is_missing.all(axis=1, keepdims=True)  # nobody's fault
    num_partial = int(is_missing.any(axis=1).sum())
    is_rare = num_partial < COSTLY * len(is_missing)
    if len(is_missing) < LEAST_ROWS or is_rare or len(table.sensors) < 2:
        return None
    worst = int(np.argmax(is_missing.sum(axis=0)))
    rows, sensor = int(is_missing[:, worst].sum()), table.sensors[worst]
    sentence = (
        f"has no sample in {100 * rows / len(is_missing):.0f} % of the client's rows, where its "
        f"other sensors must do ({num_partial} of {len(is_missing)} rows lack some sensor)"
    )
    is_dead = rows > DEAD * len(is_missing)
    without = f"--leave-out {quote(table.label(sensor))}"
    remedy = f"if it is dead, leave it out with {without}" if is_dead else ""
    first_row = int(np.argmax(is_missing[:, worst]))
    return _finding(table, sensor, "missing", sentence, remedy, rows=rows, first_row=first_row)


def missing_counts(sensors: Sequence[str], is_missing: np.ndarray) -> str:
    """Sensors that lack samples and how many, the three with most of them."""
    counts = np.add.reduce(is_missing, axis=0)
    order = [k for k in np.argsort(-counts, kind="stable") if counts[k]]
    rest = f" and {len(order) - 3} more" if len(order) > 3 else ""
    return ", ".join(f"'{sensors[k]}' {counts[k]}" for k in order[:3]) + rest


def _finding(
    table: ClientTable,
    sensor: str,
    kind: str,
    sentence: str,
    remedy: str,
    *,
    rows: int | None = None,
    first_row: int = 0,
    value: float = float("nan"),
    direction: int = 0,
) -> Finding:
    """A finding on all rows unless they are given."""
    count = len(table.values) if rows is None else rows
    found = (count, first_row + 1, value, count / len(table.values), direction)
    return Finding(kind, table.name, sensor, *found, table.label(sensor), sentence, remedy)
