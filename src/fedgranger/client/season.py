r"""What repeats in a client's sensors: found, fitted and taken out on its own data.

A common day is a common cause that no test of clients against each other can see, so each client
takes it out of every sensor before it identifies its states. With periods \(P_1, P_2, \dots\)

$$y_t \leftarrow y_t - (g(t) - \bar g), \qquad g(t) = \sum_i \sum_{k=1}^{4}
  a_{ik} \cos \frac{2\pi k t}{P_i} + b_{ik} \sin \frac{2\pi k t}{P_i}$$

by least squares over the observed samples (`harmonics`), or \(g(t) = \sum_i m_i(t \bmod P_i)\),
the mean of every phase (`profile`). The mean of a sensor stays what it was. Phases are those of the
time axis, so gaps do no harm: time stamps as given (stamps with a zone are read as UTC, so a local
day moves by an hour with daylight saving; stamps without a zone keep their wall clock), otherwise
the row numbers, and then new data must go on counting from where the old ones began.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedgranger.client.clock import Clock, clock_of, period_ticks, whole_steps
from fedgranger.client.lines import find_periods, num_harmonics
from fedgranger.config import RunConfig
from fedgranger.data.client_data import ClientData, sensor_columns
from fedgranger.errors import DataError
from fedgranger.normal_operation import Season
from fedgranger.text import enumerated

CHUNK_STEPS = 65_536
SWEEPS = 50
"""Of a profile with several periods, at most."""
NOTHING_LEFT = 1e-14
"""A sensor of which less than this share of the variance remains does nothing but repeat."""


def period_steps(season: Season) -> np.ndarray:
    """Whole steps after which each period repeats, int64: what the server receives."""
    steps = {whole_steps(length / season.interval) for length in season.lengths}
    return np.array(sorted(steps), dtype=np.int64)


def pattern(season: Season, time: np.ndarray) -> np.ndarray:
    """g(t) minus its mean, (time, sensor)."""
    clock = clock_of(time, season.interval)
    out = np.empty((len(time), len(season.sensors)))
    for k in range(0, len(time), CHUNK_STEPS):
        part = clock._replace(ticks=clock.ticks[k : k + CHUNK_STEPS])
        g = (
            _waves(part, season.lengths) @ season.weights
            if season.kind == "harmonics"
            else sum(season.weights[rows] for rows in _phases(part, season.lengths)[0])
        )
        out[k : k + CHUNK_STEPS] = g - season.offset
    return out


def apply_season(season: Season, client: ClientData, time: np.ndarray) -> ClientData:
    """A client's data without what repeats, new ones too: sensors are found by name.

    Raises:
        DataError: a sensor is absent, or the time axis is of another kind.
    """
    if not season.lengths:
        return client
    columns = sensor_columns(client, season.sensors)
    if (time.dtype.kind == "M") != season.is_stamped:
        kinds = ("time stamps", "numbers")
        raise DataError(
            f"client '{client.name}': the season was fitted on {kinds[not season.is_stamped]} "
            f"and the new data have {kinds[season.is_stamped]} as time; give the same kind"
        )
    observed = client.observed[:, columns]
    values = np.where(observed, client.values[:, columns] - pattern(season, time), 0.0)
    return replace(client, sensors=season.sensors, values=values, observed=observed)


def season_fact(season: Season, client: str) -> str:
    """One sentence for people; empty when nothing was taken out."""
    if not season.lengths:
        return ""
    return f"of the scatter among {client}'s sensors {_percent(season.share)} {_removed(season)}"


def season_note(season: Season) -> str:
    """The same beside the client's name, with how it was done."""
    most = max(num_harmonics(length / season.interval) for length in season.lengths)
    how = f"{most} harmonics" if season.kind == "harmonics" else "mean per phase"
    hint = "" if season.is_stamped else "; rows are the clock, so new data must go on counting"
    return (
        f"{_percent(season.share)} of the scatter of its sensors {_removed(season)} "
        f"({how}; period='none' leaves it in{hint})"
    )


def _removed(season: Season) -> str:
    lengths = [f"{length / season.interval:.6g}" for length in season.lengths]
    return f"repeats every {enumerated(lengths)} steps and was removed"


def fit_season(
    client: ClientData,
    time: np.ndarray,
    lengths: tuple[float, ...],
    *,
    kind: str = "harmonics",
    interval: float | None = None,
) -> Season:
    """Fit what repeats after `lengths` ticks, per sensor, to the observed samples.

    A sensor with fewer than two samples per coefficient keeps what it has.
    """
    clock, d = clock_of(time, interval), client.num_sensors
    fit = _fit_waves if kind == "harmonics" else _fit_profile
    weights = fit(client, clock, lengths) if lengths else np.zeros((0, d))
    axis = (clock.interval, clock.is_stamped)
    season = Season(kind, client.sensors, lengths, *axis, weights, *np.zeros((2, d)))
    if not lengths:
        return season
    g = pattern(season, time)
    offset, shares = np.zeros(d), np.zeros(d)
    for j, observed in enumerate(client.observed.T):
        if not observed.any():
            continue
        y, repeats = client.values[observed, j], g[observed, j]
        offset[j] = repeats.mean()
        before = ((y - y.mean()) ** 2).mean()
        left = (y - y.mean()) - (repeats - offset[j])
        shares[j] = 1 - (left**2).mean() / before if before > 0 else 0.0
    return replace(season, offset=offset, shares=shares)


def _waves(clock: Clock, lengths: tuple[float, ...]) -> np.ndarray:
    """Cosines and sines of every period's harmonics, (time, column)."""
    columns = []
    for length in lengths:
        k = np.arange(1, num_harmonics(length / clock.interval) + 1)
        angle = 2 * np.pi * np.outer(clock.phase(length), k)
        columns += [np.cos(angle), np.sin(angle)]
    return np.hstack(columns)


def _phases(clock: Clock, lengths: tuple[float, ...]) -> tuple[list[np.ndarray], int]:
    """Row of the weights that holds a sample's phase, per period, and how many rows there are."""
    out, first = [], 0
    for length in lengths:
        count = max(2, round(length / clock.interval))
        out.append(first + np.rint(clock.phase(length) * count).astype(np.int64) % count)
        first += count
    return out, first


def _fit_waves(client: ClientData, clock: Clock, lengths: tuple[float, ...]) -> np.ndarray:
    """Least squares with an intercept, from moments gathered chunk by chunk."""
    num_columns = 1 + _waves(clock._replace(ticks=clock.ticks[:1]), lengths).shape[1]
    d, whole = client.num_sensors, bool(client.observed.all())
    counts = client.observed.sum(axis=0)
    centre = client.values.sum(axis=0, where=client.observed) / np.maximum(counts, 1)
    gram = np.zeros((1 if whole else d, num_columns, num_columns))
    cross = np.zeros((num_columns, d))
    for k in range(0, len(clock.ticks), CHUNK_STEPS):
        rows = slice(k, k + CHUNK_STEPS)
        found = _waves(clock._replace(ticks=clock.ticks[rows]), lengths)
        x = np.hstack([np.ones((len(found), 1)), found])
        observed = client.observed[rows]
        cross += x.T @ np.where(observed, client.values[rows] - centre, 0.0)
        for j in range(len(gram)):
            used = x if whole else x[observed[:, j]]
            gram[j] += used.T @ used
    out = np.zeros((num_columns, d))
    for j in range(d):
        if counts[j] >= 2 * num_columns:
            moments = gram[0 if whole else j]
            out[:, j] = np.linalg.lstsq(moments, cross[:, j], rcond=1e-10)[0]
    return out[1:]


def _fit_profile(client: ClientData, clock: Clock, lengths: tuple[float, ...]) -> np.ndarray:
    """Means per phase, one period after the other until they do not change."""
    places, total = _phases(clock, lengths)
    out = np.zeros((total, client.num_sensors))
    for j, observed in enumerate(client.observed.T):
        if observed.sum() < 2 * total:
            continue
        rows = [place[observed] for place in places]
        left = client.values[observed, j] - client.values[observed, j].mean()
        scale = np.abs(left).max()
        for _ in range(SWEEPS if len(rows) > 1 else 1):
            before = out[:, j].copy()
            for place in rows:
                count = np.bincount(place, minlength=total)
                mean = np.bincount(place, left, total) / np.maximum(count, 1)
                out[:, j] += mean
                left = left - mean[place]
            if np.abs(out[:, j] - before).max() <= 1e-13 * scale:
                break
    return out


def take_out(
    client: ClientData, time: np.ndarray, config: RunConfig, *, interval: float | None = None
) -> tuple[ClientData, Season, tuple[str, ...]]:
    """Everything a client does about seasons: find or read the periods, fit, remove, report.

    A sensor that does nothing but repeat has nothing left to learn from and is left out. Without
    an interval (ticks per step) the median step is used.

    Returns:
        The data without what repeats (the same object when nothing does), the season and notes.

    Raises:
        DataError: the data cannot have the period, or nothing would be left.
    """
    clock = clock_of(time, interval)
    if config.period == "auto":
        steps = find_periods(client.values, client.observed, clock)
        lengths = tuple(clock.interval * step for step in steps)
        lengths = tuple(float(round(n)) for n in lengths) if clock.is_stamped else lengths
    elif isinstance(config.period, tuple):
        lengths = tuple(period_ticks(period, clock, client.name) for period in config.period)
    else:
        lengths = ()
    season = fit_season(client, time, lengths, kind=config.season, interval=interval)
    if not lengths:
        return client, season, ()
    notes = [season_note(season)]
    keep = 1 - season.shares > NOTHING_LEFT
    if not keep.all():
        if not keep.any():
            raise DataError(
                f"client '{client.name}': its sensors do nothing but repeat every "
                f"{period_steps(season).tolist()} steps, so nothing is left; use period='none'"
            )
        lost = [name for name, kept in zip(client.sensors, keep, strict=True) if not kept]
        notes += [f"sensor '{name}' does nothing but repeat and was left out" for name in lost]
        season = replace(
            season,
            sensors=tuple(name for name in client.sensors if name not in lost),
            weights=season.weights[:, keep],
            offset=season.offset[keep],
            shares=season.shares[keep],
        )
    return apply_season(season, client, time), season, tuple(notes)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.005 else f"{100 * share:.2g} %"
