"""Alarms that belong to one incident, and since when it had been coming: for data in one process.

A fault that comes slowly and stays surprises its client now and then, with calm between: many
alarms, but its sensors have not come back to their usual level in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fedgranger.rca.alarms import Alarm
from fedgranger.rca.excursions import Excursion, Levels, plain_time, time_texts
from fedgranger.rca.ranking import Ranking


def join_alarms(alarms: Iterable[Alarm], levels: Levels) -> list[Ranking]:
    """One ranking per incident: that of its first alarm, with what the levels say of it.

    An alarm belongs to an earlier one when at both the same client is out of its normal range and
    one of its sensors stays away from its usual level from the one to the other.
    """
    incidents: list[list[Alarm]] = []
    for alarm in alarms:
        own = (one for one in incidents if _belong_together(one[-1], alarm, levels.found))
        incident = next(own, None)
        if incident is None:
            incidents.append(incident := [])
        incident.append(alarm)
    return [_with_levels(first, again, levels.found) for first, *again in incidents]


def _belong_together(before: Alarm, alarm: Alarm, excursions: list[Excursion]) -> bool:
    clients = _out_of_range(before) & _out_of_range(alarm)
    return any(
        one.client in clients and one.covers(before.time) and one.covers(alarm.time)
        for one in excursions
    )


def _out_of_range(alarm: Alarm) -> set[str]:
    table = alarm.ranking.table
    return set(table.loc[table["onset"].notna(), "client"])


def _with_levels(alarm: Alarm, again: list[Alarm], excursions: list[Excursion]) -> Ranking:
    ranking = alarm.ranking
    words, since = [*ranking.evidence], None
    earlier = [one for one in excursions if one.covers(alarm.time) and one.first < alarm.time]
    if earlier:
        one = min(earlier, key=lambda one: one.first)
        since = plain_time(one.first, is_utc=one.is_utc)
        left, raised = time_texts(one.first, alarm.time, is_utc=one.is_utc)
        words.append(
            f"{one.name} had left its usual level by {left}, before the alarm at {raised}."
        )
    if again:
        times = "" if len(again) == 1 else f"{len(again)} times, last "
        last = again[-1].ranking.name.removeprefix("alarm ")
        words.append(
            f"The alarm was raised again {times}{last}, while a sensor was still away from its "
            "usual level: one incident."
        )
    names = tuple(one.ranking.name for one in again)
    return replace(ranking, evidence=tuple(words), since=since, again=names)
