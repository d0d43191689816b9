"""What a site keeps on its disk for a watch: what is normal for it, and what it has reported.

Nothing of what is normal is ever sent whole. A report on a step is a fact: p weighted sums of the
sensors and one number of surprise. The same question again gets the same numbers. Another one (with
what another run learned, on another grid, or after rows were changed) would show other combinations
of the same samples, so it gets only steps that were never reported. The record is written before
the first of them leaves.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fedgranger.client.client_side import ClientSide
from fedgranger.client.own_normal import OwnNormal, learn_own_normal
from fedgranger.client.private_monitor import MonitorNoise, monitor_noise, with_noisy_range
from fedgranger.config import RunConfig
from fedgranger.data.time_axis import LocalSeries, TimeGrid, grid_time
from fedgranger.federation.codec import digest, pack
from fedgranger.federation.policy import PolicyError
from fedgranger.federation.questions import Site
from fedgranger.federation.release_ledger import Period, period_of
from fedgranger.federation.secret import keyed_hash
from fedgranger.federation.store import Store
from fedgranger.normal_operation import Monitor, Season
from fedgranger.privacy.release import SecretNoise

NORMAL = "normal"
NOISE = "noise_"
REPORTED = "reported"


class KeptNormal(NamedTuple):
    """What is normal at a site, and a name for it by its content.

    Attributes:
        own: what the client learned.
        identity: the same for the same content: other readings of the sensors have another.
        noise: on its reports, after a private run.
    """

    own: OwnNormal
    identity: str
    noise: MonitorNoise | None = None


def keep_normal(store: Store, run: str, own: OwnNormal, noise: MonitorNoise | None = None) -> None:
    """Write it to the disk, whole or not at all."""
    fields = own.monitor.to_arrays()
    texts = {name: value.tolist() for name, value in fields.items() if value.dtype.kind == "U"}
    numbers = {name: value for name, value in fields.items() if name not in texts}
    values = {
        "texts": texts,
        "season": None if own.season is None else own.season.to_mapping(),
        "interval": own.interval,
    }
    if noise is not None:
        numbers |= {f"{NOISE}{name}": np.asarray(one) for name, one in noise._asdict().items()}
    identity = digest(pack(values, numbers))
    store.save(f"{NORMAL}.{run}", {**values, "identity": identity}, numbers)


def load_normal(store: Store, run: str) -> KeptNormal | None:
    """Read it; None when the site has not learned it in that run, or its disk has damaged it."""
    record = store.load(f"{NORMAL}.{run}")
    if record is None:
        return None
    values, numbers = record
    texts = {name: np.array(value) for name, value in values["texts"].items()}
    season = None if values["season"] is None else Season.from_mapping(values["season"])
    noise = None
    if f"{NOISE}unit" in numbers:
        unit, *scales = (numbers.pop(f"{NOISE}{name}") for name in MonitorNoise._fields)
        noise = MonitorNoise(unit, *map(float, scales))
    own = OwnNormal(Monitor.from_arrays({**numbers, **texts}), season, values["interval"])
    return KeptNormal(own, values["identity"], noise)


def learn_and_keep(
    site: Site, run: str, side: ClientSide, grid: TimeGrid, config: RunConfig
) -> None:
    """Learn what is normal from a run's data and keep it; after a private run with its noise.

    Raises:
        DataError: it cannot be learned, or not be reported on.
    """
    own, noise = learn_own_normal(side), None
    if config.client_terms is not None:
        noise, secret = monitor_noise(side, config.client_terms), SecretNoise(site.secret)
        own = with_noisy_range(own, side, grid_time(grid), noise, secret)
    keep_normal(site.store, run, own, noise)


class Reported(NamedTuple):
    """The steps that were reported last.

    Attributes:
        identity: of what is normal, by which they were judged.
        first: time of the first step.
        last: time of the last step.
        interval: between two steps.
        rows: keyed hash of the rows that they came from.
        epoch: of the server that asked.
    """

    identity: str
    first: Fraction
    last: Fraction
    interval: Fraction
    rows: str
    epoch: int


class ReportedSteps:
    """The record of one site, on its disk and hashed with its secret."""

    def __init__(self, store: Store, secret: bytes) -> None:
        self._store, self._secret = store, secret

    def load(self) -> Reported | None:
        """What was reported last.

        Raises:
            PolicyError: the record is damaged, so nothing may be reported.
        """
        damaged = PolicyError(
            "its record of reported steps is damaged, so it reports none; its site must "
            "restore the record from a backup"
        )
        record = self._store.load(REPORTED, if_damaged=damaged)
        if record is None:
            return None
        times = {name: Fraction(record[0][name]) for name in Period._fields}
        return Reported(**{**record[0], **times})

    def available(self, series: LocalSeries, identity: str) -> LocalSeries:
        """The rows that may be reported: new ones, and those that would only be repeated."""
        done = self.load()
        if done is None:
            return series
        if self._is_same(done, series, identity):
            return rows_between(series, just_before(done.first, done.interval), None)
        return rows_between(series, done.last + done.interval / 2, None)

    def take(self, series: LocalSeries, identity: str, grid: TimeGrid, epoch: int) -> None:
        """Write down that a whole time axis is about to be reported; returns when it is on disk.

        Raises:
            PolicyError: some of its steps were reported in answer to another request.
        """
        done = self.load()
        first, last, interval = period_of(grid)
        if done is not None and first <= done.last + done.interval / 2:
            steps_between = (first - done.first) / interval
            is_repeated = interval == done.interval and first >= done.first
            is_repeated = is_repeated and steps_between.denominator == 1
            if not is_repeated or not self._is_same(done, series, identity):
                raise PolicyError(
                    "it has reported on some of these time steps in answer to another request; "
                    "ask for later ones"
                )
            first, last = done.first, max(last, done.last)
        rows = self._hash(series, first, last, interval)
        values = Reported(identity, first, last, interval, rows, epoch)._asdict()
        texts = {name: str(values[name]) for name in Period._fields}
        self._store.save(REPORTED, {**values, **texts}, {})

    def _is_same(self, done: Reported, series: LocalSeries, identity: str) -> bool:
        rows = self._hash(series, done.first, done.last, done.interval)
        return identity == done.identity and rows == done.rows

    def _hash(
        self, series: LocalSeries, first: Fraction, last: Fraction, interval: Fraction
    ) -> str:
        part = rows_between(series, just_before(first, interval), last + interval / 2)
        client = part.client
        names = "\n".join(client.sensors).encode()
        return keyed_hash(self._secret, names, part.time, client.values, client.observed)


def just_before(first: Fraction, interval: Fraction) -> Fraction:
    """Rows after that belong to the first step: one more where a site has two per step or more.

    A counter's first change needs it.
    """
    return first - 3 * interval / 4


def rows_between(series: LocalSeries, low: Fraction, high: Fraction | None) -> LocalSeries:
    """Rows after one time and before another."""
    is_stamped = series.time.dtype.kind == "M"
    numbers = series.time.astype("datetime64[ns]").astype(np.int64) if is_stamped else series.time
    keep = numbers > (math.floor(low) if is_stamped else float(low))
    if high is not None:
        keep &= numbers < (math.ceil(high) if is_stamped else float(high))
    if keep.all():
        return series
    client = series.client
    cut = replace(client, values=client.values[keep], observed=client.observed[keep])
    return LocalSeries(cut, series.time[keep], series.interval)
