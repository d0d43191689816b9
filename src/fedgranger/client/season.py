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

from fedgranger.client.clock import clock_of, period_ticks, whole_steps
from fedgranger.client.lines import find_periods, num_harmonics
from fedgranger.client.season_fit import CHUNK_STEPS, fit_profile, fit_waves, phases, waves
from fedgranger.config import RunConfig
from fedgranger.data.panel import ClientData, sensor_columns
from fedgranger.errors import DataError
from fedgranger.normal_operation import Season

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
            waves(part, season.lengths) @ season.weights
            if season.kind == "harmonics"
            else sum(season.weights[rows] for rows in phases(part, season.lengths))
        )
        out[k : k + CHUNK_STEPS] = g - season.offset
    return out


def remove(season: Season, values: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Values without what repeats; columns as in `sensors`."""
    return values if not season.lengths else values - pattern(season, time)


def apply_season(season: Season, client: ClientData, time: np.ndarray) -> ClientData:
    """The same for a client's data, new ones too: sensors are found by name.

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
    values = np.where(observed, remove(season, client.values[:, columns], time), 0.0)
    return ClientData(client.name, season.sensors, values, observed, client.treatment)


def season_fact(season: Season, client: str) -> str:
    """One sentence for people; empty when nothing was taken out."""
    if not season.lengths:
        return ""
    return (
        f"of the scatter among {client}'s sensors {_percent(season.share)} repeats every "
        f"{_in_steps(season)} and was removed"
    )


def season_note(season: Season) -> str:
    """The same beside the client's name, with how it was done."""
    how = "harmonics" if season.kind == "harmonics" else "mean per phase"
    counts = {num_harmonics(length / season.interval) for length in season.lengths}
    how = f"{max(counts)} {how}" if season.kind == "harmonics" else how
    hint = "" if season.is_stamped else "; rows are the clock, so new data must go on counting"
    return (
        f"{_percent(season.share)} of the scatter of its sensors repeats every "
        f"{_in_steps(season)} and was removed ({how}; period='none' leaves it in{hint})"
    )


def _in_steps(season: Season) -> str:
    steps = [f"{length / season.interval:.6g}" for length in season.lengths]
    return " and ".join([", ".join(steps[:-1]), steps[-1]] if len(steps) > 1 else steps) + (
        " steps"
    )


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
    clock = clock_of(time, interval)
    fit = fit_waves if kind == "harmonics" else fit_profile
    d = client.num_sensors
    if not lengths:
        empty = np.zeros((0, d))
        return Season(
            kind, client.sensors, (), clock.interval, clock.is_stamped, empty, *np.zeros((2, d))
        )
    shape = (clock.interval, clock.is_stamped, fit(client, clock, lengths))
    season = Season(kind, client.sensors, lengths, *shape, *np.zeros((2, d)))
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


def take_out(
    client: ClientData, time: np.ndarray, config: RunConfig, *, interval: float | None = None
) -> tuple[ClientData, Season, tuple[str, ...]]:
    """Everything a client does about seasons: find or read the periods, fit, remove, report.

    A sensor that does nothing but repeat has nothing left to learn from and is left out.

    Args:
        client: its data.
        time: the axis of its rows.
        config: the options `period` and `season`.
        interval: ticks per step, or None: the median step.

    Returns:
        The data without what repeats (the same object when nothing does), the season and notes.

    Raises:
        DataError: the data cannot have the period, or nothing would be left.
    """
    clock = clock_of(time, interval)
    if config.period == "auto":
        steps = find_periods(client.values, client.observed, time, interval=interval)
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
