"""Which new time steps a site has reported on, so that nobody learns more by asking again.

A report on a step is a fact: p weighted sums of the sensors and one number of surprise. The same
question again gets the same numbers. Another one (with what another run learned, on another grid,
or after rows were changed) would show other combinations of the same samples, so it gets only
steps that were never reported. The record is written before the first of them leaves.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fedgranger.data.panel import ClientData
from fedgranger.data.time_axis import LocalSeries, TimeGrid
from fedgranger.federation.policy import PolicyError
from fedgranger.federation.secret import keyed_hash
from fedgranger.federation.store import DamagedRecordError, Store

RECORD = "reported"


class Reported(NamedTuple):
    """The steps that were reported last.

    Attributes:
        identity: of what is normal, by which they were judged (`site_normal`).
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
    """The record of one site.

    Args:
        store: the site's disk.
        secret: random bytes of the site that never leave it.
    """

    def __init__(self, store: Store, secret: bytes) -> None:
        self._store, self._secret = store, secret

    def load(self) -> Reported | None:
        """What was reported last.

        Raises:
            PolicyError: the record is damaged, so nothing may be reported.
        """
        try:
            record = self._store.load(RECORD, fail_closed=True)
        except DamagedRecordError:
            raise PolicyError(
                "its record of reported steps is damaged, so it reports none; its site must take "
                "the record from a copy"
            ) from None
        if record is None:
            return None
        values = dict(record[0])
        for name in ("first", "last", "interval"):
            values[name] = Fraction(values[name])
        return Reported(**values)

    def available(self, series: LocalSeries, identity: str) -> LocalSeries:
        """The rows that may be reported: new ones, and those that would only be repeated."""
        done = self.load()
        if done is None:
            return series
        if self._is_same(done, series, identity):
            return _between(series, done.first - done.interval / 2, None)
        return _between(series, done.last + done.interval / 2, None)

    def take(self, series: LocalSeries, identity: str, grid: TimeGrid, epoch: int) -> None:
        """Write down that a whole time axis is about to be reported; returns when it is on disk.

        Raises:
            PolicyError: some of its steps were reported in answer to another question.
        """
        done = self.load()
        last = grid.first + (grid.stretches[-1][1] - 1) * grid.interval
        first = grid.first
        if done is not None and first <= done.last + done.interval / 2:
            steps_between = (first - done.first) / grid.interval
            is_repeated = grid.interval == done.interval and first >= done.first
            is_repeated = is_repeated and steps_between.denominator == 1
            if not is_repeated or not self._is_same(done, series, identity):
                raise PolicyError(
                    "it has reported on some of these time steps in answer to another question; "
                    "ask for later ones"
                )
            first, last = done.first, max(last, done.last)
        rows = self._hash(series, first, last, grid.interval)
        values = Reported(identity, first, last, grid.interval, rows, epoch)._asdict()
        texts = {name: str(values[name]) for name in ("first", "last", "interval")}
        self._store.save(RECORD, {**values, **texts}, {})

    def _is_same(self, done: Reported, series: LocalSeries, identity: str) -> bool:
        rows = self._hash(series, done.first, done.last, done.interval)
        return identity == done.identity and rows == done.rows

    def _hash(
        self, series: LocalSeries, first: Fraction, last: Fraction, interval: Fraction
    ) -> str:
        part = _between(series, first - interval / 2, last + interval / 2)
        client = part.client
        names = "\n".join(client.sensors).encode()
        return keyed_hash(self._secret, names, part.time, client.values, client.observed)


def _between(series: LocalSeries, low: Fraction, high: Fraction | None) -> LocalSeries:
    """Rows after one time and before another."""
    is_stamped = series.time.dtype.kind == "M"
    numbers = series.time.astype("datetime64[ns]").astype(np.int64) if is_stamped else series.time
    keep = numbers > (math.floor(low) if is_stamped else float(low))
    if high is not None:
        keep &= numbers < (math.ceil(high) if is_stamped else float(high))
    if keep.all():
        return series
    client = series.client
    cut = ClientData(
        client.name,
        client.sensors,
        client.values[keep],
        client.observed[keep],
        client.treatment,
    )
    return LocalSeries(cut, series.time[keep], series.interval)
