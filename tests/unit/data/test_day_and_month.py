"""Days and months: the order in which the rows follow each other, or both are asked for."""

import numpy as np
import pandas as pd
import pytest

import fedgranger as fg
from fedgranger.data.panel import Panel
from fedgranger.errors import DataError, ReadingError
from tests.plant_files import CLIENTS, recording

THREE_DAYS = pd.date_range("2026-03-02", periods=144, freq="30min")
US, EUROPE = "%m/%d/%Y %I:%M:%S %p", "%d/%m/%Y %H:%M"


def plant(folder, times=THREE_DAYS, turbine=US):
    """Two clients with ISO dates and one with others, as given."""
    for seed, name in enumerate(CLIENTS):
        stamps = times.strftime(turbine) if name == "turbine" else times
        data = pd.DataFrame(recording(len(times), 2, seed), columns=["x", "y"])
        data.insert(0, "time", stamps)
        data.to_csv(folder / f"{name}.csv", index=False)
    return folder


def refused(folder, *parts, **options):
    with pytest.raises(DataError) as caught:
        Panel.read(folder, **options)
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message
    return caught.value


@pytest.mark.parametrize(
    ("pattern", "right", "wrong", "days"),
    [(US, "mm/dd/yyyy", "dd/mm/yyyy", 27), (EUROPE, "dd/mm/yyyy", "mm/dd/yyyy", 27)],
)
def test_the_order_in_which_rows_follow_each_other_is_proposed(
    tmp_path, pattern, right, wrong, days
):
    folder = plant(tmp_path, turbine=pattern)
    refused(
        folder,
        "client 'turbine', column 'time', data row 1",
        f"read as {wrong} the rows jump by {days} days at data row 49, as {right} they follow",
        f"--date-format turbine={right}",
    )
    assert fg.check(folder).needed == f"--date-format turbine={right}"
    panel = Panel.read(folder, date_format=f"turbine={right}")
    np.testing.assert_array_equal(panel.time, THREE_DAYS)


def test_the_wrong_order_is_refused_when_given(tmp_path):
    """Three days of March became a record from February to April."""
    folder = plant(tmp_path)
    refused(
        folder,
        "client 'turbine', column 'time', data row 49: the time is '03/03/2026 12:00:00 AM'",
        "read as dd/mm/yyyy the rows jump by 27 days",
        "as mm/dd/yyyy they follow each other",
        "--date-format turbine=mm/dd/yyyy",
        date_format="turbine=dd/mm/yyyy",
    )


def test_frames_are_asked_for_the_client_in_keywords():
    texts = {"boiler": THREE_DAYS.strftime("%Y-%m-%d %H:%M"), "turbine": THREE_DAYS.strftime(US)}
    frames = {
        name: pd.DataFrame(recording(len(THREE_DAYS), 2), columns=["x", "y"]).assign(time=stamps)
        for name, stamps in texts.items()
    }
    with pytest.raises(DataError, match="need date_format='turbine=mm/dd/yyyy'"):
        Panel.from_frames(frames)
    panel = Panel.from_frames(frames, date_format="turbine=mm/dd/yyyy")
    np.testing.assert_array_equal(panel.time, THREE_DAYS)


def test_points_may_be_given_in_the_wrong_order_too(tmp_path):
    folder = plant(tmp_path, turbine="%d.%m.%Y %H:%M")
    refused(folder, "pass --date-format dd.mm.yyyy", date_format="turbine=mm.dd.yyyy")


def test_a_pattern_with_percent_is_not_questioned(tmp_path):
    folder = plant(tmp_path)
    for name in CLIENTS[:2]:
        (folder / f"{name}.csv").write_text((folder / "turbine.csv").read_text())
    panel = Panel.read(folder, date_format="%d/%m/%Y %I:%M:%S %p")
    assert panel.time[-1] == np.datetime64("2026-04-03T23:30")


@pytest.mark.parametrize(
    "times",
    [
        pd.date_range("2026-03-02", periods=48, freq="30min"),
        pd.date_range("2026-03-01", periods=12, freq="D"),
        THREE_DAYS[:96].union(THREE_DAYS[:48] + pd.Timedelta(days=91)),
    ],
    ids=["one day", "once a day", "both orders jump"],
)
def test_what_can_be_both_is_asked_and_taken_as_given(tmp_path, times):
    folder = plant(tmp_path, times)
    error = refused(folder, "pass the right one of", "dd/mm/yyyy and --date-format mm/dd/yyyy")
    assert not isinstance(error, ReadingError)
    panel = Panel.read(folder, date_format="turbine=mm/dd/yyyy")
    np.testing.assert_array_equal(panel.time, times)


def test_gaps_and_rows_out_of_order_do_not_mislead(tmp_path):
    times = THREE_DAYS[:30].union(THREE_DAYS[:60] + pd.Timedelta(days=7))[::-1]
    folder = plant(tmp_path, times)
    refused(folder, "--date-format turbine=mm/dd/yyyy --unordered sort")
    panel = Panel.read(folder, date_format="turbine=mm/dd/yyyy", unordered="sort")
    np.testing.assert_array_equal(panel.time, times[::-1])
