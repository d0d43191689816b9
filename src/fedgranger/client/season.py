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

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedgranger.client.clock import clock_of, period_ticks, whole_steps
from fedgranger.client.lines import find_periods, num_harmonics
from fedgranger.client.season_fit import CHUNK_STEPS, fit_profile, fit_waves, phases, waves
from fedgranger.config import RunConfig
from fedgranger.data.panel import ClientData, sensor_columns
from fedgranger.errors import DataError

__all__ = ["Season", "find_periods", "fit_season", "take_out"]

NOTHING_LEFT = 1e-14
"""A sensor of which less than this share of the variance remains does nothing but repeat."""


@dataclass(frozen=True, eq=False)
class Season:
    """What repeats in a client's sensors; stays at the client, but for the whole steps.

    Attributes:
        kind: "harmonics" or "profile".
        sensors: one name per column.
        lengths: of the periods, in ticks of the time axis (nanoseconds of time stamps).
        interval: ticks per step.
        is_stamped: the time axis has time stamps.
        weights: (column, sensor): of cosines and sines, or per phase.
        offset: mean of g over the samples it was fitted to, per sensor.
        shares: of every sensor's variance that repeats.
    """

    kind: str
    sensors: tuple[str, ...]
    lengths: tuple[float, ...]
    interval: float
    is_stamped: bool
    weights: np.ndarray
    offset: np.ndarray
    shares: np.ndarray

    @property
    def periods(self) -> np.ndarray:
        """Whole steps after which each period repeats, int64: what the server receives."""
        steps = {whole_steps(length / self.interval) for length in self.lengths}
        return np.array(sorted(steps), dtype=np.int64)

    @property
    def share(self) -> float:
        """Mean share of the sensors' variance that repeats."""
        return float(self.shares.mean()) if len(self.shares) else 0.0

    def pattern(self, time: np.ndarray) -> np.ndarray:
        """g(t) minus its mean, (time, sensor)."""
        clock = clock_of(time, self.interval)
        out = np.empty((len(time), len(self.sensors)))
        for k in range(0, len(time), CHUNK_STEPS):
            part = clock._replace(ticks=clock.ticks[k : k + CHUNK_STEPS])
            g = (
                waves(part, self.lengths) @ self.weights
                if self.kind == "harmonics"
                else sum(self.weights[rows] for rows in phases(part, self.lengths))
            )
            out[k : k + CHUNK_STEPS] = g - self.offset
        return out

    def remove(self, values: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Values without what repeats; columns as in `sensors`."""
        return values if not self.lengths else values - self.pattern(time)

    def apply(self, client: ClientData, time: np.ndarray) -> ClientData:
        """The same for a client's data, new ones too: sensors are found by name.

        Raises:
            DataError: a sensor is absent, or the time axis is of another kind.
        """
        if not self.lengths:
            return client
        columns = sensor_columns(client, self.sensors)
        if (time.dtype.kind == "M") != self.is_stamped:
            kinds = ("time stamps", "numbers")
            raise DataError(
                f"client '{client.name}': the season was fitted on {kinds[not self.is_stamped]} "
                f"and the new data have {kinds[self.is_stamped]} as time; give the same kind"
            )
        observed = client.observed[:, columns]
        values = np.where(observed, self.remove(client.values[:, columns], time), 0.0)
        return ClientData(client.name, self.sensors, values, observed, client.treatment)

    def fact(self, client: str) -> str:
        """One sentence for people; empty when nothing was taken out."""
        if not self.lengths:
            return ""
        return (
            f"of the scatter among {client}'s sensors {_percent(self.share)} repeats every "
            f"{self._say()} and was removed"
        )

    def note(self) -> str:
        """The same beside the client's name, with how it was done."""
        how = "harmonics" if self.kind == "harmonics" else "mean per phase"
        counts = {num_harmonics(length / self.interval) for length in self.lengths}
        how = f"{max(counts)} {how}" if self.kind == "harmonics" else how
        hint = "" if self.is_stamped else "; rows are the clock, so new data must go on counting"
        return (
            f"{_percent(self.share)} of the scatter of its sensors repeats every {self._say()} and "
            f"was removed ({how}; period='none' leaves it in{hint})"
        )

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for JSON."""
        arrays = ("weights", "offset", "shares")
        plain = {name: getattr(self, name).tolist() for name in arrays}
        names = ("kind", "interval", "is_stamped")
        plain |= {name: getattr(self, name) for name in names}
        return {**plain, "sensors": list(self.sensors), "lengths": list(self.lengths)}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Season:
        """Undo `to_mapping`."""
        weights = np.array(mapping["weights"], dtype=np.float64)
        return cls(
            str(mapping["kind"]),
            tuple(mapping["sensors"]),
            tuple(float(length) for length in mapping["lengths"]),
            float(mapping["interval"]),
            bool(mapping["is_stamped"]),
            weights.reshape(-1, len(mapping["sensors"])),
            np.array(mapping["offset"], dtype=np.float64),
            np.array(mapping["shares"], dtype=np.float64),
        )

    def _say(self) -> str:
        steps = [f"{length / self.interval:.6g}" for length in self.lengths]
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
    g = season.pattern(time)
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
    notes = [season.note()]
    keep = 1 - season.shares > NOTHING_LEFT
    if not keep.all():
        if not keep.any():
            raise DataError(
                f"client '{client.name}': its sensors do nothing but repeat every "
                f"{season.periods.tolist()} steps, so nothing is left; use period='none'"
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
    return season.apply(client, time), season, tuple(notes)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.005 else f"{100 * share:.2g} %"
