"""A site's part of a watch: it reads its own new data and reports on them, each step once.

One function from a request to an answer, behind `Party`, which checks who asks, writes the audit
log and turns what goes wrong into refusals. Nothing of a watch must survive a crash but the record
of what was reported: the server asks again from the first step and gets the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from fedgranger.client.own_normal import check_interval, is_same_interval
from fedgranger.data.time_axis import (
    LocalSeries,
    TimeGrid,
    TimeRange,
    grid_time,
    interval_text,
    period_in_utc,
    period_text,
    range_of,
)
from fedgranger.federation import answers
from fedgranger.federation.answers import Answer
from fedgranger.federation.codec import Packet
from fedgranger.federation.policy import PolicyError
from fedgranger.federation.questions import Questions, Site
from fedgranger.federation.release_ledger import ReleaseLedger, period_of
from fedgranger.federation.requests import RefusalError, read_alarm, read_grid
from fedgranger.federation.watch_records import KeptNormal, Reported, ReportedSteps, load_normal
from fedgranger.federation.watch_session import (
    AlarmText,
    Session,
    on_common_axis,
    own_sensors,
    report,
)
from fedgranger.privacy.release import Release, SecretNoise
from fedgranger.privacy.sensitivity import Neighbours

WATCH_KINDS = ("watch", "follow", "report", "alarm")
"""Requests of a watch."""


class _Offered(NamedTuple):
    """The new data that were announced to the server."""

    run: str
    series: LocalSeries
    axis: TimeRange
    normal: KeptNormal


class Watcher:
    """State machine of one site's watch.

    Args:
        read: reads the site's new data, as measured; None: the site has none to watch.
        site: whose it is; it keeps what is normal on its disk (`watch_records`).
        on_alarm: receives every alarm, and again when its ranking has changed; a late message may
            bring an earlier ranking. `own_sensors` are those of this site that were most
            surprising, and how much, `own_levels` those that strayed from their usual level
            anywhere in the new data; the server never knows them.
    """

    def __init__(
        self,
        read: Callable[[], LocalSeries] | None,
        site: Site,
        on_alarm: Callable[[AlarmText], None] = lambda _: None,
    ) -> None:
        self._read, self._site, self._on_alarm = read, site, on_alarm
        self._reported = ReportedSteps(site.store, site.secret)
        self._offered: _Offered | None = None
        self._session: Session | None = None
        self._lines: dict[str, str] = {}

    @property
    def period(self) -> str:
        """What is watched, in words; empty before the server has said so."""
        return "" if self._session is None else period_text(self._session.grid)

    def answer(self, packet: Packet) -> Answer:
        """Answer one of `WATCH_KINDS`; what is wrong is raised."""
        if not self._site.policy.watch:
            raise PolicyError(
                "its policy does not let its new data be watched; ask the site for 'watch'"
            )
        if self._site.policy.covered_only:
            raise PolicyError(
                "its policy lets out only what its privacy budget covers; what is normal was "
                "learned from its training data without noise, so it is not watched"
            )
        if packet.kind == "watch":
            return self._offer(packet.run)
        if packet.kind == "follow":
            return self._follow(packet)
        session = self._session
        if session is None or session.run != packet.run:
            raise RefusalError("unknown", "it has not received which steps are watched")
        if packet.values["epoch"] != session.epoch:
            raise RefusalError("stale", f"the watch goes on with epoch {session.epoch}")
        if packet.kind == "alarm":
            return self._alarm(session, str(packet.values["alarm"]))
        return report(session, int(packet.values["piece"]), SecretNoise(self._site.secret))

    def _offer(self, run: str) -> Answer:
        """Say when there are new data, and where the normal range ends."""
        if self._read is None:
            raise RefusalError("data", "it has no new data to watch; its site must name a file")
        normal = load_normal(self._site.store, run)
        if normal is None:
            raise RefusalError("data", "it did not learn in this run what is normal for it")
        series = self._reported.available(self._read(), normal.identity)
        if len(series.time) < 2:
            raise RefusalError("data", "it has no new data since it reported last")
        check_interval(normal.own.interval, series.time, may_be_finer=True)
        axis = range_of(series)
        self._offered = _Offered(run, series, axis, normal)
        done = self._reported.load()
        clock, epoch = float(self._site.clock()), 0 if done is None else done.epoch
        threshold = normal.own.monitor.threshold
        return answers.time_range("news", axis, clock, epoch, threshold=threshold)

    def _follow(self, packet: Packet) -> Answer:
        """Put the data on the common axis; write down that all of it is about to be reported."""
        offered, done = self._offered, self._reported.load()
        if offered is None or offered.run != packet.run:
            raise RefusalError("unknown", "it has received nothing of this watch")
        known = 0 if done is None else done.epoch
        grid, epoch, _ = read_grid(packet, offered.axis, known)
        if epoch < known:
            raise RefusalError("stale", f"the watch goes on with epoch {known}")
        interval = offered.normal.own.interval
        if interval is not None and not is_same_interval(float(grid.interval), interval):
            found, wanted = (interval_text(k, grid.time_kind) for k in (grid.interval, interval))
            raise RefusalError(
                "data",
                f"the sites' new data meet every {found}, those that the run learned from every "
                f"{wanted}; give a site new data of that step, or start it with --resample",
            )
        steps, most = int(packet.values["steps"]), self._site.policy.largest_message_steps
        if not 1 <= steps <= most:
            raise PolicyError(f"its policy allows 1 to {most} time steps per message, not {steps}")
        identity, now = offered.normal.identity, self._site.clock()
        questions = Questions(self._site.store, self._site.policy, f"watch {identity}")
        asks = {"options": "watch for root causes", "period": period_text(grid)}
        question = f"watch-{identity[:16]}"
        questions.check(packet.run, question, asks, now)
        self._charge(offered, grid, done, now)
        self._reported.take(offered.series, identity, grid, epoch)
        questions.take(packet.run, question, now)
        self._session = Session(
            packet.run,
            epoch,
            steps,
            grid,
            on_common_axis(offered.series, offered.axis, offered.normal, grid),
            grid_time(grid),
            grid.segment_starts,
            offered.normal,
        )
        self._site.log(f"run '{packet.run}': new data are watched, {period_in_utc(grid)}")
        for sentence in self._session.levels().sentences(is_calm=False, rest=""):
            self._site.log(sentence)
        return answers.DONE

    def _charge(self, offered: _Offered, grid: TimeGrid, done: Reported | None, now: float) -> None:
        """Write down what reports on the steps that were not reported yet are about to release."""
        period, noise = period_of(grid), offered.normal.noise
        if done is not None and done.last >= period.first:
            period = period._replace(first=done.last + done.interval)
        if period.first > period.last:
            return
        treatment = offered.normal.own.monitor.treatment
        kind = "monitor" if noise is not None else "monitor without noise"
        content = f"{offered.normal.identity} {period.first} {period.last}"

        def size(near: Neighbours) -> float:
            return math.inf if noise is None else noise.size(near, treatment)

        ledger = ReleaseLedger(self._site.store, self._site.policy)
        ledger.charge(offered.run, [Release(kind, content, size)], period, now)

    def _alarm(self, session: Session, text: str) -> Answer:
        """Inform the site, with the names of its own most surprising sensors, which stay here."""
        alarm = read_alarm(text)
        own = own_sensors(session, alarm)
        alarm["own_sensors"] = [[sensor, energy] for sensor, energy in own]
        alarm["own_levels"] = [one.to_mapping() for one in session.levels().found]
        named = ", ".join(f"{sensor} ({energy:.1f})" for sensor, energy in own)
        line = f"{alarm['name']}: {_first(alarm)}"
        if self._lines.get(alarm["time"]) != line:  # a later ranking may have the same suspect
            self._lines[alarm["time"]] = line
            self._site.log(f"{line}; here most surprising: {named}" if named else line)
        self._on_alarm(alarm)
        return answers.DONE


def _first(alarm: AlarmText) -> str:
    if not alarm["is_defined"]:
        return "the ranking is a tie"
    row = alarm["ranking"][0]
    return f"'{row['client']}' comes first in {100 * (row['probability'] or 0):.0f} % of resamples"
