"""The server's side of a watch over the sites' new data, as a generator like that of a run.

Every site reads its own new data and sends a `MonitorMessage` for each stretch of the common time
axis; the server combines them, ranks the clients while an alarm is under way and tells the sites.
It keeps nothing on its disk: after a crash it asks from the first step again, and the sites answer
with the same numbers, so the result is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fedgranger.data.time_axis import TimeGrid, agree, grid_time, period_text
from fedgranger.federation.codec import Packet
from fedgranger.federation.coordinator import Asking
from fedgranger.federation.exchanges import Answers, Request, request_all
from fedgranger.federation.protocol import Plan
from fedgranger.federation.store import Records
from fedgranger.federation.time_answers import check_clocks, read_time_range, request_on_grid
from fedgranger.option_fields import Options, choice, whole
from fedgranger.rca.alarms import Alarm, Alarms, Knowledge
from fedgranger.rca.evidence import Report
from fedgranger.rca.scorers import SCORERS


@dataclass(frozen=True)
class WatchOptions(Options):
    """How new data are watched."""

    subject = "watch"
    scorer: str = choice(
        "unexplained", tuple(SCORERS), f"how clients are ranked: {', '.join(SCORERS)}"
    )
    steps: int = whole(50, "time steps that arrive at a time", least=1, word="batch")
    quiet: int = whole(50, "calm steps that end an alarm", least=1)


class Watched(NamedTuple):
    """What a watch found.

    Attributes:
        alarms: in order, each with its last ranking.
        grid: the common time axis of the new data.
    """

    alarms: tuple[Alarm, ...]
    grid: TimeGrid


def watch_protocol(knowledge: Knowledge, options: WatchOptions) -> Asking:
    """The protocol of a watch, for a `Coordinator`.

    Args:
        knowledge: what the server of the run knows.
        options: of the watch.
    """

    def begin(
        plan: Plan, store: Records, clock: Callable[[], float], log: Callable[[str], None]
    ) -> Generator[Request, Answers, Watched]:
        del store  # what was seen can be asked for again
        return _watch(plan, knowledge, options, clock, log)

    return begin


def _watch(
    plan: Plan,
    knowledge: Knowledge,
    options: WatchOptions,
    clock: Callable[[], float],
    log: Callable[[str], None],
) -> Generator[Request, Answers, Watched]:
    names = tuple(sorted(plan.clients))
    news = yield request_all(names, "watch", {"nonce": plan.nonce})
    check_clocks(news, plan.options, clock())
    grid = agree({name: read_time_range(packet) for name, packet in news.items()})
    epoch = 1 + max(int(packet.values["epoch"]) for packet in news.values())
    log(f"watching {period_text(grid)}")
    yield request_on_grid(names, "follow", grid, {"epoch": epoch, "steps": options.steps})
    thresholds = {name: float(packet.values["threshold"]) for name, packet in news.items()}
    analysis = Alarms(knowledge, thresholds, scorer=options.scorer, quiet=options.quiet)
    found: dict[int, Alarm] = {}
    sent: dict[int, dict[str, Any]] = {}
    time, before, num_steps = grid_time(grid), dict.fromkeys(names, False), 0
    for ask, starts in _asks(names, knowledge, grid, epoch, options.steps):
        answers = yield ask
        messages = {name: _received(answers[name], starts, before[name]) for name in names}
        before = {name: bool(message.is_observed[-1]) for name, message in messages.items()}
        num_steps += len(starts)
        for alarm in analysis.feed(messages, starts):
            is_new = alarm.step not in found
            found[alarm.step] = alarm
            if is_new:
                log(f"{alarm.ranking.name} ({time[alarm.step]}): {alarm.ranking.first} comes first")
                sent[alarm.step] = alarm.ranking.to_mapping()
                yield _alarm_request(names, epoch, alarm_text(alarm, time, num_steps))
    for step, alarm in found.items():
        if alarm.ranking.to_mapping() != sent[step]:
            yield _alarm_request(names, epoch, alarm_text(alarm, time, num_steps))
    return Watched(tuple(found.values()), grid)


def alarm_text(alarm: Alarm, time: np.ndarray, num_steps: int) -> str:
    """What the sites are told of an alarm, as JSON.

    Args:
        alarm: with its present ranking.
        time: the common time axis.
        num_steps: time steps that were watched so far; a later ranking has seen more.
    """
    when = {"step": alarm.step, "time": str(time[alarm.step]), "num_steps": num_steps}
    return json.dumps({**when, **alarm.ranking.to_mapping()}, allow_nan=False)


def _alarm_request(names: tuple[str, ...], epoch: int, text: str) -> Request:
    return request_all(names, "alarm", {"epoch": epoch, "alarm": text})


def _asks(
    names: tuple[str, ...], knowledge: Knowledge, grid: TimeGrid, epoch: int, size: int
) -> Iterator[tuple[Request, np.ndarray]]:
    """One question per piece of the axis, and which of its steps follow no other."""
    dims = dict(zip(knowledge.reference.names, knowledge.reference.dims, strict=True))
    starts = grid.segment_starts
    for piece, first in enumerate(range(0, grid.num_steps, size)):
        part = starts[first : first + size]
        ask = request_all(names, "report", {"epoch": epoch, "piece": piece})
        yield ask._replace(shapes={name: (len(part), dims[name]) for name in names}), part


def _received(packet: Packet, starts: np.ndarray, is_observed_before: bool) -> Report:
    """Surprise is known where the step and the one before it were observed and belong together."""
    arrays = packet.arrays
    observed = arrays["is_observed"] > 0
    follows = observed & ~starts & np.concatenate([[is_observed_before], observed[:-1]])
    surprise = np.where(follows, arrays["surprise"], np.nan)
    return Report(arrays["states"], surprise, observed)
