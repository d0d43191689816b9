"""What is known of data before any fit: period, gaps, odd sensors, and the command to fit them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedgranger.client.clock import clock_of
from fedgranger.client.lines import find_periods
from fedgranger.client.sensor_moments import measurement_moments
from fedgranger.data.align import RegularPanel, regular_panel, unused_rows
from fedgranger.data.client_data import ClientData
from fedgranger.data.findings import DEAD, Finding
from fedgranger.data.finishing import with_findings
from fedgranger.data.frames import columns_listed, in_keywords, named_frames, try_frames
from fedgranger.data.panel import Panel
from fedgranger.data.panel_files import client_names, read_once
from fedgranger.data.reading_options import PanelOptions
from fedgranger.data.sensor_preparation import propose
from fedgranger.data.time_axis import interval_text
from fedgranger.data.time_stamps import shown_time
from fedgranger.data.trial_reading import changed_flags, try_reading
from fedgranger.errors import DataError
from fedgranger.periods import duration_text, unsearched_calendar
from fedgranger.runtime.check_result import ClientCheck, DataCheck


def check_data(
    source: Any, clients: Mapping[str, Iterable[str]] | None = None, **options: Any
) -> DataCheck:
    """Look at data before any fit; what cannot be read is read with proposed options instead.

    Raises:
        FedGrangerError: the data are not there, or an option has no meaning.
    """
    if isinstance(source, Panel):
        return _checked("panel", with_findings(source))
    given = PanelOptions.from_mapping(options)
    if isinstance(source, str | Path):
        return _check_files(Path(source), given)
    return _check_frames(source, clients, given)


def _check_files(path: Path, given: PanelOptions) -> DataCheck:
    def read(tried: PanelOptions) -> Any:
        return try_reading(partial(read_once, path), tried, client_names(path))

    def command(flags: str) -> str:
        return f"fedgranger fit {shlex.quote(str(path))} --out run {flags}".strip()

    if not path.exists():
        read(given)  # raises
    return _check(str(path), read, given, command)


def _check_frames(
    frames: Any, clients: Mapping[str, Iterable[str]] | None, given: PanelOptions
) -> DataCheck:
    """The same of data frames, with keywords instead of options of the command line."""
    clients = columns_listed(clients)
    named = named_frames(frames, clients, given)

    def command(keywords: str) -> str:
        who = ["frames"] if clients is None else ["frames", "clients=clients"]
        return f"fg.fit({', '.join([*who, keywords] if keywords else who)})"

    return _check("frames", partial(try_frames, named), given, command, in_keywords)


def _check(
    source: str,
    read: Callable[[PanelOptions], Any],
    given: PanelOptions,
    command: Callable[[str], str],
    words: Callable[[str], str] = str,
) -> DataCheck:
    """Read and look; `words` writes options in a sentence as the user would."""
    try:
        trial, unused = _using_all_rows(read, given)
    except DataError as error:
        sentence = words(str(error))
        return DataCheck(source, refused=sentence, stopped=sentence)
    refused = "" if trial.refused is None else words(str(trial.refused))
    needed = words(changed_flags(given, trial.options))
    if trial.found is None:
        stopped = refused if trial.stopped is None else words(str(trial.stopped))
        return DataCheck(source, refused=refused, stopped=stopped, needed=needed)
    too_few = _too_few_rows(trial.found)
    if too_few:
        return DataCheck(source, refused=refused or too_few, stopped=too_few, needed=needed)
    found = _checked(source, trial.found)
    return replace(
        found,
        refused=refused,
        needed=needed,
        unused=tuple(map(words, unused)),
        notes=tuple(map(words, found.notes)),
        suggested=tuple(map(words, found.suggested)),
        command=command(words(changed_flags(PanelOptions(), trial.options))),
    )


def _too_few_rows(panel: Panel) -> str:
    """Why no fit can begin, with these sensors: the refusal of the client that has it first."""
    on_grid = regular_panel(panel).panel
    try:
        for client in on_grid:
            measurement_moments(client, on_grid.segment_starts, standardise=True)
    except DataError as error:
        return str(error)
    return ""


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


def _checked(source: str, panel: Panel) -> DataCheck:
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


def _interval(regular: RegularPanel) -> str:
    if regular.interval is None:
        return ""
    is_stamped = regular.panel.time.dtype.kind == "M"
    return interval_text(regular.interval, "stamps" if is_stamped else "numbers")


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
