"""The common time axis: agreed from ranges alone, rows put on it or refused in words."""

from fractions import Fraction

import numpy as np
import pytest

from fedgranger.data.panel import ClientData
from fedgranger.errors import DataError
from fedgranger.federation.timing import LocalSeries, TimeGrid, agree, on_grid, range_of


def series(time, name="a", interval=None):
    time = np.asarray(time)
    values = np.arange(2.0 * len(time)).reshape(-1, 2)
    data = ClientData(name, ("x", "y"), values, np.ones(values.shape, bool))
    return LocalSeries(data, time, interval)


def stamps(start, count, step):
    return np.datetime64(start, "ns") + np.arange(count) * np.timedelta64(step, "ms")


def test_intersection_of_ranges_is_the_common_axis():
    ranges = {
        "a": range_of(series(np.arange(0, 100))),
        "b": range_of(series(np.arange(20, 130), "b")),
    }
    grid = agree(ranges)
    assert grid == TimeGrid("numbers", Fraction(20), Fraction(1), 80)
    np.testing.assert_array_equal(
        on_grid(series(np.arange(0, 100)), grid).values[0], series(np.arange(100)).client.values[20]
    )


def test_time_stamps_are_exact_to_the_nanosecond():
    a, b = stamps("2026-01-01", 100, 100), stamps("2026-01-01T00:00:01", 200, 100)
    grid = agree({"a": range_of(series(a)), "b": range_of(series(b, "b"))})
    assert grid.num_steps == 90
    assert grid.interval == Fraction(10**8)
    assert on_grid(series(b, "b"), grid).row_observed.all()


def test_decimal_intervals_are_what_they_look_like():
    time = np.arange(50) * 0.1
    assert range_of(series(time)).interval == Fraction(1, 10)
    grid = agree({"a": range_of(series(time)), "b": range_of(series(time[7:], "b"))})
    assert grid.num_steps == 43
    assert on_grid(series(time), grid).row_observed.all()


def test_missing_rows_are_marked_and_others_stay_in_place():
    time = np.delete(np.arange(30), [4, 5, 17])
    grid = agree({"a": range_of(series(time)), "b": range_of(series(np.arange(30), "b"))})
    found = on_grid(series(time), grid)
    assert np.flatnonzero(~found.row_observed).tolist() == [4, 5, 17]
    np.testing.assert_array_equal(found.values[6], series(time).client.values[4])
    np.testing.assert_array_equal(found.values[4], 0)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (np.arange(0, 100, 2), "samples every 1 and client 'b' every 2"),
        (np.arange(0, 100) + 0.5, "offset by .*0.50 sampling intervals from"),
        (np.arange(200, 300), "no time in common: 'b' begins after 'a' ends"),
        (stamps("2026-01-01", 50, 1000), "numbers and client 'b' in stamps"),
    ],
)
def test_parties_that_do_not_fit_are_told_why(other, sentence):
    with pytest.raises(DataError, match=sentence):
        agree({"a": range_of(series(np.arange(100))), "b": range_of(series(other, "b"))})


@pytest.mark.parametrize(
    ("time", "sentence"),
    [
        ([0.0, 1.0, 2.3, 3.0], r"row 3 \(2.3\) is offset by \+0.30 sampling intervals"),
        ([0.0, 1.0, 1.05, 2.0, 3.0], "rows 2 and 3 fall on the same point"),
    ],
)
def test_rows_beside_the_axis_are_refused(time, sentence):
    grid = TimeGrid("numbers", Fraction(0), Fraction(1), 4)
    with pytest.raises(DataError, match=sentence):
        on_grid(series(time), grid)


def test_declared_interval_wins_over_the_median():
    assert range_of(series([0, 10, 20], interval=5)).interval == 5
    with pytest.raises(DataError, match="interval is -1; it must be above 0"):
        range_of(series([0, 10, 20], interval=-1))
    with pytest.raises(DataError, match="1 row; at least two"):
        range_of(series([0]))
