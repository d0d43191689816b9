"""What a check of data found, and how it is said: line by line, or as plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fedgranger.periods import CALENDAR_REPEATS
from fedgranger.text import counted, enumerated, format_share

FEW_PAIRS = 300
"""With fewer pairs of time steps only strong influences can be found."""


@dataclass(frozen=True)
class ClientCheck:
    """One client.

    Attributes:
        name: the client.
        sensors: the columns that are used.
        rows: time steps at which it has at least one sample.
        complete_rows: of them, those at which no sensor lacks its sample.
        half_rows: of them, those at which at least half of the sensors have one.
        lacking: samples that each sensor lacks, for sensors that lack some.
        missing_share: samples that are missing, of all.
        longest_gap: most time steps in a row at which it lacks more than half of its sensors.
        repeats: periods after which its sensors repeat, in time or in steps.
    """

    name: str
    sensors: tuple[str, ...]
    rows: int
    complete_rows: int
    half_rows: int
    lacking: dict[str, int]
    missing_share: float
    longest_gap: int
    repeats: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class DataCheck:
    """What `fedgranger check` shows.

    Attributes:
        source: what was checked.
        clients: one by one; none when the data cannot be read.
        first: first time step, as text.
        last: the last one.
        interval: of time steps, as text; "" where the rows lie on no grid.
        num_steps: time steps of the common axis.
        num_gaps: places where that axis jumps.
        num_pairs: consecutive time steps at which every client has at least half of its sensors:
            what tests use, but for rows whose sensors turn out too few for the state.
        findings: odd sensors, in words.
        duplicates: sensors that hold the same values, in pairs.
        notes: what reading does to the data.
        refused: why the data cannot be read with the options given; "" when they can.
        stopped: what no option mends; "" when there is nothing.
        needed: options that reading takes beside those given.
        unused: what clients that come more often than others lose without `--resample`, which the
            command has for them.
        suggested: options that may do good, one by one.
        unsearched: what to give as period where the record is too short to look for a day or week.
        command: the exact command that fits these data; "" when there is none.
    """

    source: str
    clients: tuple[ClientCheck, ...] = ()
    first: str = ""
    last: str = ""
    interval: str = ""
    num_steps: int = 0
    num_gaps: int = 0
    num_pairs: int = 0
    findings: tuple[str, ...] = ()
    duplicates: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    refused: str = ""
    stopped: str = ""
    needed: str = ""
    unused: tuple[str, ...] = ()
    suggested: tuple[str, ...] = ()
    unsearched: tuple[str, ...] = ()
    command: str = ""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """One screen."""
        return "\n".join(screen_lines(self))

    def __repr__(self) -> str:
        """The same, so that a notebook shows it."""
        return str(self)


def screen_lines(check: DataCheck) -> list[str]:
    """The check as lines of text."""
    lines = []
    if check.refused:
        lines.append(f"not with these options: {check.refused}")
    if check.stopped:
        if check.needed:
            lines.append(f"with {check.needed}: {check.stopped}")
        return lines
    if check.needed:
        lines.append(f"read here with: {check.needed}")
    gaps = counted(check.num_gaps, "gap") if check.num_gaps else "no gap"
    every = f" of {check.interval}" if check.interval else " on no regular grid"
    lines.append(
        f"{len(check.clients)} clients, {check.num_steps} time steps{every} from {check.first} to "
        f"{check.last}, {gaps}"
    )
    for one in check.clients:
        missing = (
            f", {format_share(one.missing_share)} of its samples missing"
            if one.missing_share
            else ""
        )
        partial = one.half_rows - one.complete_rows
        more = counted(
            partial, "more lacks some sensors and is used", "more lack some sensors and are used"
        )
        saved = f", {more}" if partial else ""
        gap = f", longest gap {counted(one.longest_gap, 'row')}" if one.longest_gap else ""
        season = f", repeats every {enumerated(one.repeats)}" if one.repeats else ""
        count = counted(len(one.sensors), "sensor")
        lines.append(
            f"  {one.name}: {count}, "
            f"{counted(one.complete_rows, 'complete row')}{saved}{missing}{gap}{season}"
        )
    few = " (few: only strong influences can be found)" if check.num_pairs < FEW_PAIRS else ""
    lines.append(
        f"the tests have {counted(check.num_pairs, 'pair')} of time steps at which all clients "
        f"are there{few}"
    )
    alone = [one.name for one in check.clients if len(one.sensors) == 1]
    if alone:
        lines.append(
            f"one sensor only: {', '.join(alone)}; measurement noise can hardly be told from the "
            "state there, so give two or more where you can"
        )
    lines += [
        f"sensors {one} and {other} hold the same values, up to their units"
        for one, other in check.duplicates
    ]
    if not check.findings and not check.duplicates:
        lines.append("no odd sensor: none stuck, counting, wandering, coded or doubled")
    lines += [f"reading: {note}" for note in check.notes]
    lines += check.unused
    lines += [f"worth a try: {flag}" for flag in check.suggested]
    lines += _short_record(check)
    return [*lines, check.command] if check.command else lines


def _short_record(check: DataCheck) -> list[str]:
    if not check.unsearched:
        return []
    return [
        f"the record is too short to look for a rhythm of {check.unsearched[-1]} "
        f"({CALENDAR_REPEATS} are needed): if the plant has one, add --period "
        f"{','.join(check.unsearched)} to the fit, because a rhythm that clients share "
        "looks like an edge"
    ]
