"""Panels from recordings about which the truth is known by construction.

null: every client's rows come from another machine, or from another stretch of time: whatever
drives whom in the plant, no row of one client can act on the row of another beside it.
odd: all clients but one are taken as they were recorded; no edge that touches the odd one is true.
added: a null panel in which one client's innovations drive one other client.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from fedgranger.data.panel import Panel
from fedgranger.errors import DataError
from fedgranger_research.recordings.trial import ABSENT, ADDED, Control, Source

ATTEMPTS = 25
"""Draws until every client has a sensor that changes."""
CONSTANT = 1e-9
"""A sensor whose range is below this share of its largest value does not change."""
OWN_LAGS = 20
DECAY = 0.7
ROOM = 0.8
"""Share of the longest possible stretch that is used, so that panels differ in their rows."""
MOST_STEPS = 5000

Units = Mapping[str, Panel]


def default_steps(units: Units, num_stretches: int) -> int:
    """Steps per panel: most of the length at which so many stretches have room."""
    lengths = [segment.stop - segment.start for segment in _segments(units)]
    low, high = 0, max(lengths)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(length // middle for length in lengths) >= num_stretches:
            low = middle
        else:
            high = middle - 1
    return min(int(ROOM * low), MOST_STEPS)


def disjoint_stretches(
    units: Units, number: int, num_steps: int, rng: np.random.Generator
) -> list[Source]:
    """Stretches of rows without a gap that share no row, from different units as far as they go."""
    segments = [s for s in _segments(units) if s.stop - s.start >= num_steps]
    room = {segment: (segment.stop - segment.start) // num_steps for segment in segments}
    if sum(room.values()) < number:
        raise DataError(
            f"the recordings have room for {sum(room.values())} stretches of {num_steps} steps "
            f"without a gap and {number} are needed; use fewer steps, "
            f"for example {default_steps(units, number)} (--steps)"
        )
    names = list(dict.fromkeys(segment.unit for segment in segments))
    order = [names[k] for k in rng.permutation(len(names))]
    chosen = dict.fromkeys(segments, 0)
    while sum(chosen.values()) < number:
        for unit in order:
            free = [s for s in segments if s.unit == unit and chosen[s] < room[s]]
            if free and sum(chosen.values()) < number:
                chosen[free[int(rng.integers(len(free)))]] += 1
    found = []
    for segment, count in chosen.items():
        slack = segment.stop - segment.start - count * num_steps
        for k, shift in enumerate(np.sort(rng.integers(0, slack + 1, size=count))):
            start = segment.start + int(shift) + k * num_steps
            found.append(Source(segment.unit, start, start + num_steps))
    return [found[k] for k in rng.permutation(len(found))]


def null_control(units: Units, num_steps: int, key: str, rng: np.random.Generator) -> Control:
    """Every client from a stretch of its own."""
    clients = next(iter(units.values())).names

    def draw() -> dict[str, Source]:
        stretches = disjoint_stretches(units, len(clients), num_steps, rng)
        return dict(zip(clients, stretches, strict=True))

    sources, arrays = _drawn(units, draw)
    truths = {(c, e): ABSENT for e in clients for c in clients if c != e}
    return Control(key, "null", arrays, truths, sources)


def odd_control(units: Units, num_steps: int, key: str, rng: np.random.Generator) -> Control:
    """All clients but one from one stretch, as they were recorded; the odd one from another."""
    clients = next(iter(units.values())).names
    odd = clients[int(rng.integers(len(clients)))]

    def draw() -> dict[str, Source]:
        home, away = disjoint_stretches(units, 2, num_steps, rng)
        return {name: away if name == odd else home for name in clients}

    sources, arrays = _drawn(units, draw)
    truths = {(c, e): ABSENT for e in clients for c in clients if c != e and odd in (c, e)}
    return Control(key, "odd", arrays, truths, sources)


def add_edge(control: Control, size: float, key: str, rng: np.random.Generator) -> Control:
    """Let the innovations of one client drive another, one step later, with a decaying response.

    Both sides are the leading direction of the client's standardised sensors. The innovations are
    residuals of a long autoregression; `size` is the response after one step to one standard
    deviation of the cause's, in standard deviations of the effect's own. Only the effect changes.
    """
    names = list(control.arrays)
    cause, effect = (names[k] for k in rng.permutation(len(names))[:2])
    _, _, signal = _leading(control.arrays[cause])
    spread, direction, own = _leading(control.arrays[effect])
    drive, scale = _innovations(signal), _innovations(own).std()
    drive = drive / (drive.std() or 1.0)
    response = np.zeros(len(drive))
    for t in range(1, len(drive)):
        response[t] = DECAY * response[t - 1] + size * scale * drive[t - 1]
    moved = control.arrays[effect] + np.outer(response, spread * direction)
    return replace(
        control,
        key=key,
        kind="added",
        arrays={**control.arrays, effect: moved},
        truths={**control.truths, (cause, effect): ADDED},
        size=size,
    )


def _drawn(
    units: Units, draw: Callable[[], dict[str, Source]]
) -> tuple[dict[str, Source], dict[str, np.ndarray]]:
    empty: list[str] = []
    for _ in range(ATTEMPTS):
        sources = draw()
        arrays = {name: _rows(units, name, source) for name, source in sources.items()}
        empty = [name for name, values in arrays.items() if not values.shape[1]]
        if not empty:
            return sources, arrays
    raise DataError(
        f"client '{empty[0]}': in {ATTEMPTS} draws some client had no sensor that changes; "
        "use more steps (--steps), or leave the client out"
    )


def _rows(units: Units, client: str, source: Source) -> np.ndarray:
    """The sensors that change in a stretch; NaN where missing."""
    data = units[source.unit][client]
    rows = slice(source.start, source.stop)
    observed = data.observed[rows]
    values = data.values[rows]
    low = np.where(observed, values, np.inf).min(axis=0)
    high = np.where(observed, values, -np.inf).max(axis=0)
    largest = np.abs(np.where(observed, values, 0.0)).max(axis=0)
    changes = high - low > CONSTANT * largest
    return np.where(observed, values, np.nan)[:, changes]


def _segments(units: Units) -> list[Source]:
    """Runs of rows without a gap in time."""
    out = []
    for unit, panel in units.items():
        starts = [*np.flatnonzero(panel.segment_starts), panel.num_steps]
        out += [Source(unit, int(a), int(b)) for a, b in itertools.pairwise(starts)]
    return out


def _leading(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Spread of the sensors, their leading direction, and the signal along it."""
    spread = np.nanstd(values, axis=0)
    scaled = np.nan_to_num((values - np.nanmean(values, axis=0)) / spread)
    direction = np.linalg.svd(scaled, full_matrices=False)[2][0]
    return spread, direction, scaled @ direction


def _innovations(signal: np.ndarray) -> np.ndarray:
    """What an autoregression does not foresee; 0 for the first steps."""
    lags = max(1, min(OWN_LAGS, len(signal) // 10))
    past = np.lib.stride_tricks.sliding_window_view(signal[:-1], lags)
    past = np.column_stack([np.ones(len(past)), past])
    after = signal[lags:]
    residual = after - past @ np.linalg.lstsq(past, after, rcond=None)[0]
    return np.concatenate([np.zeros(lags), residual])
