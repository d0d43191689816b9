"""The server's side of a watch over the sites' new data, as a generator like that of a run.

Every site reads its own new data and sends a `MonitorMessage` for each stretch of the common time
axis; the server combines them, ranks the clients while an alarm is under way and informs the sites.
It keeps nothing on its disk: after a crash it asks from the first step again, and the sites answer
with the same numbers, so the result is the same.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import numpy as np

from fedgranger.data.time_axis import TimeGrid, grid_time, period_in_utc
from fedgranger.data.time_stamps import shown_time
from fedgranger.federation.agreed_options import Plan, WatchOptions
from fedgranger.federation.codec import Packet
from fedgranger.federation.coordinator import Asking
from fedgranger.federation.exchanges import Answers, Participants, Request, request_on_grid
from fedgranger.federation.store import Store
from fedgranger.federation.time_fields import agreed_start
from fedgranger.rca.alarms import Alarm, Alarms, Knowledge
from fedgranger.rca.evidence import Report


class Watched(NamedTuple):
    """What a watch found: alarms in order, each with its last ranking; on this time axis."""

    alarms: tuple[Alarm, ...]
    grid: TimeGrid


def watch_protocol(knowledge: Knowledge, options: WatchOptions) -> Asking:
    """The protocol of a watch, for a `Coordinator`; `knowledge` is of the server of a run."""
    return functools.partial(_watch, knowledge, options)


def _watch(
    knowledge: Knowledge,
    options: WatchOptions,
    plan: Plan,
    _store: Store,  # what was seen can be asked for again
    clock: Callable[[], float],
    log: Callable[[str], None],
) -> Generator[Request, Answers, Watched]:
    names = tuple(sorted(plan.clients))
    news = yield Request("watch", {name: {"nonce": plan.nonce} for name in names})
    grid, epoch, _ = agreed_start(news, plan.options, clock())
    log(f"watching {period_in_utc(grid)}")
    yield request_on_grid(names, "follow", grid, {"epoch": epoch, "steps": options.steps})
    known = dict(zip(knowledge.reference.names, knowledge.reference.dims, strict=True))
    participants = Participants({name: known[name] for name in names}, epoch)
    thresholds = {name: float(packet.values["threshold"]) for name, packet in news.items()}
    analysis = Alarms(knowledge, thresholds, scorer=options.scorer, calm_steps=options.calm_steps)
    found: dict[int, Alarm] = {}
    sent: dict[int, dict[str, Any]] = {}
    time, segment_starts = grid_time(grid), grid.segment_starts
    before, num_steps = dict.fromkeys(names, False), 0
    for piece, first in enumerate(range(0, grid.num_steps, options.steps)):
        starts = segment_starts[first : first + options.steps]
        answers = yield participants.request("report", {"piece": piece}, len(starts))
        messages = {name: _received(answers[name], starts, before[name]) for name in names}
        before = {name: bool(message.is_observed[-1]) for name, message in messages.items()}
        num_steps += len(starts)
        part = time[first : first + len(starts)]
        for alarm in analysis.feed(messages, starts, part, is_utc=grid.time_kind == "stamps"):
            is_new = alarm.step not in found
            found[alarm.step] = alarm
            if is_new:
                log(f"{alarm.ranking.name}: {alarm.ranking.first} comes first")
                sent[alarm.step] = alarm.ranking.to_mapping()
                yield participants.request("alarm", {"alarm": alarm_text(alarm, num_steps)})
    for step, alarm in found.items():
        if alarm.ranking.to_mapping() != sent[step]:
            yield participants.request("alarm", {"alarm": alarm_text(alarm, num_steps)})
    return Watched(tuple(found.values()), grid)


def alarm_text(alarm: Alarm, num_steps: int) -> str:
    """What the sites are sent of an alarm, as JSON; a later ranking has seen more steps."""
    time = shown_time(alarm.time) + ("Z" if isinstance(alarm.time, np.datetime64) else "")
    when = {"step": alarm.step, "time": time, "num_steps": num_steps}
    return json.dumps({**when, **alarm.ranking.to_mapping()}, allow_nan=False)


def _received(packet: Packet, starts: np.ndarray, is_observed_before: bool) -> Report:
    """Surprise is known where the step and the one before it were observed and belong together."""
    arrays = packet.arrays
    observed = arrays["is_observed"] > 0
    follows = observed & ~starts & np.concatenate([[is_observed_before], observed[:-1]])
    surprise = np.where(follows, arrays["surprise"], np.nan)
    return Report(arrays["states"], surprise, observed)
