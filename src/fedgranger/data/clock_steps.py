r"""Bring one client's rows to full steps of a clock, at the client, before clients are aligned.

Two ways, both stated in a note:

- `move_to_full_steps` moves stamps that are a little off (jitter, a clock that is seconds late) to
  the nearest full step; no value changes.
- `resampled` gathers rows: step t holds the mean, or the last, of the rows in (t − Δ, t]. So it
  uses nothing that was measured after t, rows that already lie on full steps stay as they are, and
  a cause cannot seem later than its effect by more than one step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fedgranger.data.treatment import ClientTable
from fedgranger.errors import ConfigError, DataError
from fedgranger.periods import UNITS, duration_nanoseconds, duration_text, read_duration

ROUND = (1, 2, 3, 4, 5, 10, 15, 20, 30, 50, 100, 200, 250, 500)
"""Counts of a unit that people choose."""
NEAR_A_UNIT = 0.01
"""A median step this close to a round interval, relative to it, is taken for that interval."""
WIDEST = 0.45
"""Stamps further than this from a full step, in steps, belong to no step."""


def move_to_full_steps(
    where: str, time: np.ndarray, tolerance: str
) -> tuple[np.ndarray, list[str]]:
    """Move stamps to the nearest full step of the client's interval, and a note on it.

    Raises:
        DataError: a stamp is further away than the tolerance, or two fall on one step.
    """
    if tolerance == "auto" or len(time) < 3:
        return time, []
    stamps = _nanoseconds(where, "align_tolerance", time)
    step = full_step(stamps)
    allowed = _length(tolerance)
    if allowed > WIDEST * step:
        raise ConfigError(
            f"{where}: align_tolerance is {tolerance}, almost half of the interval "
            f"{duration_text(step)}, so that a stamp may belong to two steps; pass a smaller one, "
            f"or --resample {duration_text(round_up(2 * step))}"
        )
    index = _nearest(stamps, step)
    off = stamps - index * step
    if (np.abs(off) > allowed).any():
        row = int(np.argmax(np.abs(off) > allowed))
        raise DataError(
            f"{where}, data row {row + 1}: the time {time[row]} is {off[row] / 1e9:+g} s away from "
            f"a full step of {duration_text(step)}, more than align_tolerance {tolerance}; pass a "
            f"larger one or --resample {duration_text(round_up(step))}"
        )
    same = np.flatnonzero(np.diff(index) == 0)
    if len(same):
        raise DataError(
            f"{where}: data rows {same[0] + 1} and {same[0] + 2} fall on the same step of "
            f"{duration_text(step)}; pass --resample {duration_text(round_up(step))} to join them"
        )
    moved = int((off != 0).sum())
    note = (
        f"{where}: {moved} of {len(time)} time stamps were moved by up to "
        f"{np.abs(off).max() / 1e9:g} s to the nearest full step of {duration_text(step)}"
    )
    return (index * step).astype("datetime64[ns]"), [note] if moved else []


def resampled(table: ClientTable, interval: str, rule: str) -> tuple[ClientTable, list[str]]:
    """Gather rows to steps of an interval; missing samples are left aside, empty steps have no row.

    Raises:
        DataError: the client has no time stamps.
    """
    where = f"client '{table.name}'"
    if table.time is None:
        raise DataError(
            f"{where}: resample (--resample) needs a time column, and there is none; pass "
            "--time-column, or leave --resample out"
        )
    stamps = _nanoseconds(where, "resample", table.time)
    step = _length(interval)
    label = -(-stamps // step)  # the step at or after each row
    frame = pd.DataFrame(table.values, columns=range(len(table.sensors))).groupby(label, sort=True)
    gathered = pd.DataFrame(frame.mean() if rule == "mean" else frame.last())
    time = (np.unique(label) * step).astype("datetime64[ns]")
    values = np.array(gathered, dtype=np.float64)
    notes = []
    if len(stamps) > 1 and step < np.median(np.diff(stamps)):
        notes.append(
            f"{where}: its rows come less often than every {interval}; --resample makes no more "
            "of them"
        )
    elif len(time) < len(stamps) or not np.array_equal(time, table.time):
        notes.append(
            f"{where}: {len(stamps)} rows became {len(time)} steps of {interval} (the {rule} of "
            "the rows since the step before)"
        )
    return table._replace(values=values, time=time), notes


def _nanoseconds(where: str, option: str, time: np.ndarray) -> np.ndarray:
    if time.dtype.kind != "M":
        flag = option.replace("_", "-")
        raise DataError(
            f"{where}: {option} (--{flag}) is for time stamps, and the times are numbers; leave it "
            "out, or pass --date-format unix if they are seconds since 1970"
        )
    return time.astype("datetime64[ns]").astype(np.int64)


def _length(duration: str) -> int:
    found = read_duration(duration)
    return duration_nanoseconds(" ".join(found)) if found else 0


def _nearest(stamps: np.ndarray, step: int) -> np.ndarray:
    return (stamps + step // 2) // step


def full_step(stamps: np.ndarray) -> int:
    """The interval of jittered stamps in nanoseconds: the round number next to the usual step.

    Jitter cancels in the mean of the steps; those that are no single ones are left aside.
    """
    steps = np.diff(stamps)
    median = float(np.median(steps))
    usual = float(steps[np.abs(steps - median) < 0.5 * median].mean())
    for unit in sorted((*UNITS.values(), 10**7, 10**8), reverse=True):
        count = round(usual / unit)
        if count and abs(count * unit - usual) <= NEAR_A_UNIT * usual:
            return count * unit
    return max(round(usual), 1)


def propose_for(stamps: np.ndarray) -> dict[str, str]:
    """The option that brings stamps without a grid to one: move them if they are near it."""
    step = full_step(stamps)
    is_single = bool((np.diff(_nearest(stamps, step)) > 0).all())
    return _proposal(stamps, step, can_move=is_single)


def propose_between(firsts: Sequence[int], step: int) -> dict[str, str]:
    """The same for clients whose regular stamps are offset from each other."""
    return _proposal(np.array(firsts), step, can_move=True)


def _proposal(stamps: np.ndarray, step: int, *, can_move: bool) -> dict[str, str]:
    off = round_up(int(np.abs(stamps - _nearest(stamps, step) * step).max()))
    if can_move and off <= WIDEST * step:
        return {"align_tolerance": duration_text(off)}
    return {"resample": duration_text(round_up(step))}


def round_up(nanoseconds: float) -> int:
    """The next duration that people would choose."""
    units = [10**6, 10**9, UNITS["min"], UNITS["h"], UNITS["d"]]
    choices = sorted(count * unit for unit in units for count in ROUND)
    return next((one for one in choices if one >= nanoseconds), int(nanoseconds))
