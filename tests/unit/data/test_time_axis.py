"""The common time axis: agreed from ranges alone, rows put on it or refused in words."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgranger.data.client_data import ClientData
from fedgranger.data.common_axis import agree, is_covered
from fedgranger.data.time_axis import (
    LocalSeries,
    TimeGrid,
    grid_time,
    on_grid,
    range_of,
)
from fedgranger.errors import DataError
from fedgranger.linalg.unbroken_steps import LONGEST_GAP


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
    assert grid == TimeGrid("numbers", Fraction(20), Fraction(1), ((0, 80),))
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
        (np.arange(0, 100, 1.37), "'b' samples every 1.37 and client 'a' every 1, which hardly"),
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
        ([0.0, 1.0, 1.05, 2.0, 3.0], "rows 2 and 3 fall on the same step"),
    ],
)
def test_rows_beside_the_axis_are_refused(time, sentence):
    grid = TimeGrid("numbers", Fraction(0), Fraction(1), ((0, 4),))
    with pytest.raises(DataError, match=sentence):
        on_grid(series(time), grid)


def test_declared_interval_wins_over_the_median():
    assert range_of(series([0, 10, 20], interval=5)).interval == 5
    with pytest.raises(DataError, match="interval is -1; it must be above 0"):
        range_of(series([0, 10, 20], interval=-1))
    with pytest.raises(DataError, match="1 row; at least two"):
        range_of(series([0]))


def test_intervals_that_coincide_now_and_then_have_a_common_grid():
    """Every 2 and every 3: every 6, at the first time that is on both grids."""
    a, b = np.arange(0, 200, 2), np.arange(7, 200, 3)
    grid = agree({"a": range_of(series(a)), "b": range_of(series(b, "b"))})
    expected = np.intersect1d(a, b)
    np.testing.assert_array_equal(grid_time(grid), expected)
    for time, name in ((a, "a"), (b, "b")):
        found = on_grid(series(time, name), grid)
        rows = np.flatnonzero(np.isin(time, expected))
        np.testing.assert_array_equal(found.values, series(time).client.values[rows])
        assert found.observed.all()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_axis_holds_every_row_of_the_common_time(data):
    """Random gaps: rows within the common range are kept in place, the rest is missing or cut."""
    num_clients = data.draw(st.integers(1, 3))
    rows = {}
    for k in range(num_clients):
        begin = data.draw(st.integers(0, 10))
        holes = data.draw(st.lists(st.tuples(st.integers(12, 90), st.integers(1, 30)), max_size=4))
        kept = np.ones(101, dtype=bool)
        for start, length in holes:
            kept[start : min(start + length, 99)] = False
        rows[f"c{k}"] = np.flatnonzero(kept)[np.flatnonzero(kept) >= begin]
    ranges = {name: range_of(series(time, name)) for name, time in rows.items()}
    grid = agree(ranges)
    time = grid_time(grid)
    assert grid.num_steps == len(time) == len(grid.segment_starts)
    first, last = max(r[0] for r in rows.values()), min(r[-1] for r in rows.values())
    anyone = np.unique(np.concatenate(list(rows.values())))
    anyone = anyone[(anyone >= first) & (anyone <= last)]
    assert np.isin(anyone, time).all()
    assert time.min() >= first
    assert time.max() <= last
    jumps = np.diff(anyone)
    np.testing.assert_array_equal(
        time[grid.segment_starts][1:], anyone[1:][jumps > LONGEST_GAP + 1]
    )
    for name, own in rows.items():
        found = on_grid(series(own, name), grid)
        np.testing.assert_array_equal(time[found.row_observed], own[np.isin(own, time)])
        assert is_covered(ranges[name], grid)
        if len(grid.stretches) > 2:
            rest = grid._replace(stretches=grid.stretches[:1] + grid.stretches[2:])
            lost = np.setdiff1d(own[np.isin(own, time)], grid_time(rest))
            assert is_covered(ranges[name], rest) == (len(lost) == 0)
