"""What is known of data before any fit: period, gaps, odd sensors, and the command to fit them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedgranger.client.clock import clock_of
from fedgranger.client.lines import find_periods
from fedgranger.data.align import RegularPanel, regular_panel, unused_rows
from fedgranger.data.client_data import ClientData
from fedgranger.data.clock_steps import duration_text
from fedgranger.data.findings import DEAD, Finding
from fedgranger.data.finishing import with_findings
from fedgranger.data.frames import columns_listed, in_keywords, named_frames, try_frames
from fedgranger.data.panel import Panel
from fedgranger.data.panel_files import client_names, read_once
from fedgranger.data.reading_options import PanelOptions
from fedgranger.data.sensor_preparation import propose
from fedgranger.data.time_stamps import shown_time
from fedgranger.data.trial_reading import changed_flags, try_reading
from fedgranger.errors import DataError
from fedgranger.periods import CALENDAR_REPEATS, unsearched_calendar
from fedgranger.text import counted, enumerated

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


def check_data(
    source: Any, clients: Mapping[str, Iterable[str]] | None = None, **options: Any
) -> DataCheck:
    """Look at data before any fit; what cannot be read is read with proposed options instead.

    Raises:
        FedGrangerError: the data are not there, or an option has no meaning.
    """
    if isinstance(source, Panel):
        return _checked("panel", with_findings(source))
    if not isinstance(source, str | Path):
        return _check_frames(source, clients, PanelOptions.from_mapping(options))
    path, chosen = Path(source), PanelOptions.from_mapping(options)

    def read(tried: PanelOptions) -> Any:
        return try_reading(partial(read_once, path), tried, client_names(path))

    try:
        trial, unused = _using_all_rows(read, chosen)
    except DataError as error:
        if not path.exists():
            raise
        return DataCheck(str(path), refused=str(error), stopped=str(error))
    needed = changed_flags(chosen, trial.options)
    refused = "" if trial.refused is None else str(trial.refused)
    if trial.found is None:
        stopped = refused if trial.stopped is None else str(trial.stopped)
        return DataCheck(str(path), refused=refused, stopped=stopped, needed=needed)
    flags = changed_flags(PanelOptions(), trial.options)
    command = f"fedgranger fit {shlex.quote(str(path))} --out run {flags}".strip()
    facts = {"refused": refused, "needed": needed, "unused": unused, "command": command}
    return _checked(str(path), trial.found, **facts)


def _using_all_rows(
    read: Callable[[PanelOptions], Any], options: PanelOptions
) -> tuple[Any, tuple[str, ...]]:
    """Read, with `--resample` where clients come at different rates; and what else is lost."""
    trial = read(options)
    unused = {} if trial.found is None else unused_rows(trial.found.notes)
    if not unused or options.resample != PanelOptions().resample:
        return trial, ()
    interval = next(iter(unused.values()))
    again = read(replace(trial.options, resample=interval))
    if again.found is None:
        return trial, ()
    stems = (note.rsplit(" and ", 1)[0] for note in unused)  # without "and were left out"
    lost = tuple(f"{stem} and would be left out without --resample {interval}" for stem in stems)
    return again._replace(refused=trial.refused), lost


def _check_frames(
    frames: Any, clients: Mapping[str, Iterable[str]] | None, options: PanelOptions
) -> DataCheck:
    """The same of data frames, with keywords instead of options of the command line."""
    clients = columns_listed(clients)
    read = partial(try_frames, named_frames(frames, clients, options))
    try:
        trial, unused = _using_all_rows(read, options)
    except DataError as error:
        sentence = in_keywords(str(error))
        return DataCheck("frames", refused=sentence, stopped=sentence)
    refused = "" if trial.refused is None else in_keywords(str(trial.refused))
    needed = in_keywords(changed_flags(options, trial.options))
    if trial.found is None:
        stopped = refused if trial.stopped is None else in_keywords(str(trial.stopped))
        return DataCheck("frames", refused=refused, stopped=stopped, needed=needed)
    keywords = in_keywords(changed_flags(PanelOptions(), trial.options))
    who = ["frames", "clients=clients"] if clients is not None else ["frames"]
    command = f"fg.fit({', '.join([*who, keywords] if keywords else who)})"
    found = _checked("frames", trial.found, refused=refused, needed=needed, command=command)
    return replace(
        found,
        unused=tuple(map(in_keywords, unused)),
        notes=tuple(map(in_keywords, found.notes)),
        suggested=tuple(map(in_keywords, found.suggested)),
    )


def _checked(source: str, panel: Panel, **facts: Any) -> DataCheck:
    regular = regular_panel(panel)
    on_grid, findings = regular.panel, panel.findings or ()
    usable = np.logical_and.reduce([_has_half(client) for client in on_grid], axis=0)
    pairs = usable[1:] & usable[:-1] & ~on_grid.segment_starts[1:]
    zone = " UTC" if panel.time_zone else ""
    return DataCheck(
        source,
        tuple(_client(client, regular) for client in on_grid),
        shown_time(on_grid.time[0]) + zone,
        shown_time(on_grid.time[-1]) + zone,
        _interval(regular),
        on_grid.num_steps,
        int(on_grid.segment_starts.sum()) - 1,
        int(pairs.sum()),
        tuple(f"{f.client}.{f.sensor} {f.sentence}" for f in findings),
        tuple(_duplicates(panel)),
        panel.notes,
        suggested=tuple(_suggested(findings)),
        unsearched=_unsearched(regular),
        **facts,
    )


def _client(client: ClientData, regular: RegularPanel) -> ClientCheck:
    usable = _has_half(client)
    any_sample = np.logical_or.reduce(client.observed, axis=1)
    ends = np.flatnonzero(np.concatenate([[True], usable, [True]]))
    lacking = zip(client.sensors, (~client.observed).sum(axis=0).tolist(), strict=True)
    clock = clock_of(regular.panel.time, regular.interval)
    steps = find_periods(client.values, client.observed, clock)
    return ClientCheck(
        client.name,
        client.sensors,
        int(any_sample.sum()),
        int(client.row_observed.sum()),
        int(usable.sum()),
        {sensor: count for sensor, count in lacking if count},
        float(1 - client.observed.mean()),
        int(np.diff(ends).max()) - 1,
        tuple(_span(step, regular) for step in steps),
    )


def _has_half(client: ClientData) -> np.ndarray:
    """Rows with at least half of the sensors; which suffice for the state only a fit knows."""
    return 2 * np.add.reduce(client.observed, axis=1) >= client.num_sensors


def _span(step: float, regular: RegularPanel) -> str:
    is_stamped = regular.panel.time.dtype.kind == "M"
    if is_stamped and regular.interval is not None:
        return duration_text(round(step * regular.interval))
    return f"{step:g} steps"


def _unsearched(regular: RegularPanel) -> tuple[str, ...]:
    clock = clock_of(regular.panel.time, regular.interval)
    return unsearched_calendar(clock.num_steps, clock.interval) if clock.is_stamped else ()


def _short_record(check: DataCheck) -> list[str]:
    if not check.unsearched:
        return []
    return [
        f"the record is too short to look for a rhythm of {check.unsearched[-1]} "
        f"({CALENDAR_REPEATS} are needed): if the plant has one, give 'fit' also --period "
        f"{','.join(check.unsearched)}, because a rhythm that clients share looks like an edge"
    ]


def _interval(regular: RegularPanel) -> str:
    if regular.interval is None:
        return ""
    is_stamped = regular.panel.time.dtype.kind == "M"
    return duration_text(regular.interval) if is_stamped else f"{regular.interval:g}"


def _duplicates(panel: Panel) -> list[tuple[str, str]]:
    """Sensors with the values of an earlier one, up to unit and sign, of any client."""
    seen: dict[bytes, str] = {}
    found = []
    for client in panel:
        for k, sensor in enumerate(client.sensors):
            label, key = f"{client.name}.{sensor}", _shape(client, k)
            if key in seen:
                found.append((seen[key], label))
            seen.setdefault(key, label)
    return found


def _shape(client: ClientData, sensor: int) -> bytes:
    """What a sensor has whatever its unit: its values to five digits of its deviation."""
    values = np.where(client.observed[:, sensor], client.values[:, sensor], np.nan)
    centred = values - np.nanmean(values)
    scaled = centred / (np.nanstd(values) or 1.0)
    first = scaled[np.isfinite(scaled) & (np.abs(scaled) > 0.1)][:1]
    sign = -1.0 if len(first) and first[0] < 0 else 1.0
    return (np.round(sign * scaled, 5) + 0.0).tobytes()


def _suggested(findings: tuple[Finding, ...]) -> list[str]:
    """What is left to the user: sensors that stand still, lack most samples, or may wander."""
    out = [
        f"--leave-out {shlex.quote(one.label)}"
        for one in findings
        if one.kind == "stuck" or (one.kind == "missing" and one.share > DEAD)
    ]
    slow = propose(findings)
    return [*dict.fromkeys(out), *([slow] if slow else [])]


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
        missing = f", {one.missing_share:.1%} of its samples missing" if one.missing_share else ""
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
