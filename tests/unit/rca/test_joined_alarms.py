"""Which alarms are one incident, and since when its sensors had strayed."""

from dataclasses import replace

import numpy as np
import pytest

from fedgranger.rca import OnlineAnalysis
from fedgranger.rca.excursions import Excursion, Levels, find_excursions
from fedgranger.rca.joined_alarms import join_alarms
from tests.anomalies import made_panel, slow_panel

START = np.datetime64("2026-03-05T10:00:00", "ns")


@pytest.fixture(scope="module")
def alarms(normal_run):
    """Two of b, 100 steps apart, with calm between."""
    panel = made_panel(500, seed=1, shocked="b", at=200, length=20)
    later = made_panel(500, seed=1, shocked="b", at=320, length=20)
    both = panel.slice(0, 310), later.slice(310, 500)
    online = OnlineAnalysis(normal_run)
    found = {alarm.step: alarm for part in both for alarm in online.feed(part)}
    assert len(found) == 2
    return list(found.values())


def away(client, sensor, first, last):
    return Excursion(client, sensor, 5.0, np.int64(first), np.int64(last), is_utc=False)


@pytest.mark.parametrize(
    ("client", "first", "last", "num_incidents"),
    [
        ("b", 190, 490, 1),
        ("b", 190, 300, 2),  # it came back in between
        ("b", 250, 490, 2),  # it was not away at the first
        ("a", 190, 490, 2),  # a new set point of a client that is in its range at both
    ],
)
def test_a_sensor_that_stays_away_joins_alarms_of_its_client(
    alarms, client, first, last, num_incidents
):
    incidents = join_alarms(alarms, Levels([away(client, "P03", first, last)], 4, 4))
    assert len(incidents) == num_incidents
    assert incidents[0].name == alarms[0].ranking.name
    assert sum(len(one.again) for one in incidents) == 2 - num_incidents


def test_an_alarm_of_another_client_in_between_does_not_split_them(alarms):
    table = alarms[0].ranking.table
    others = table.assign(onset=table["onset"].where(table["client"] != "b"))
    others.loc[others["client"] == "a", "onset"] = 1.0
    middle = alarms[0]._replace(
        step=260, time=np.int64(260), ranking=replace(alarms[0].ranking, table=others, name="a's")
    )
    found = join_alarms([alarms[0], middle, alarms[1]], Levels([away("b", "P03", 190, 490)], 4, 4))
    assert [one.name for one in found] == [alarms[0].ranking.name, "a's"]
    assert found[0].again == (alarms[1].ranking.name,)


def test_the_earliest_sensor_that_is_away_at_the_alarm_says_since_when(alarms):
    found = [
        away("a", "N1", 150, 180),  # back before the alarm
        away("b", "P03", 170, 260),
        away("b", "P04", 160, 260),
    ]
    first, _ = join_alarms(alarms, Levels(found, 4, 4))
    assert first.since == 160
    step = alarms[0].step
    assert first.evidence[-1] == (
        f"b.P04 had left its usual level by 160, before the alarm at {step}."
    )
    without, _ = join_alarms(alarms, Levels([], 4, 4))
    assert without.since is None
    assert without.evidence == alarms[0].ranking.evidence
    assert "since" not in without.to_mapping()


def test_times_of_stamps_name_their_day_and_zone_once(alarms):
    minute = np.timedelta64(60, "s")
    stamped = alarms[0]._replace(time=START + 109 * minute)
    one = Excursion("b", "P03", 5.0, START + 12 * minute, START + 300 * minute, is_utc=True)
    (found,) = join_alarms([stamped], Levels([one], 4, 4))
    assert found.since == "2026-03-05T10:12:00Z"
    assert found.evidence[-1] == (
        "b.P03 had left its usual level by 2026-03-05 10:12:00, before the alarm at 11:49:00 UTC."
    )


def test_slow_faults_are_one_incident_each(slow_run):
    """Ten seeds: two to five alarms of a shift of 7 s.d.; two separate faults stay two."""
    numbers = []
    for seed in range(2, 12):
        panel = slow_panel(1000, seed=seed, shift=-7.0, at=300)
        alarms = OnlineAnalysis(slow_run).feed(panel)
        numbers.append(len(alarms))
        (incident,) = join_alarms(alarms, find_excursions(slow_run, panel))
        assert incident.since is not None
        assert incident.since <= alarms[0].step
    assert max(numbers) > 2
