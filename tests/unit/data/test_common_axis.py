"""Steps of a client that are none of the common axis: counted from what the client says alone."""

import numpy as np
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from fedgranger.data.client_data import ClientData
from fedgranger.data.common_axis import agree, unused_notes
from fedgranger.data.time_axis import LocalSeries, on_grid, range_of
from fedgranger.errors import DataError
from fedgranger.linalg.unbroken_steps import LONGEST_GAP


def series(name, start, count, step, left_out=()):
    rows = np.setdiff1d(np.arange(count), left_out)
    time = np.datetime64(start, "ns") + rows * np.timedelta64(step, "s")
    values = np.ones((len(time), 1))
    return LocalSeries(ClientData(name, ("x",), values, values > 0), time)


def notes_of(*clients):
    ranges = {one.client.name: range_of(one) for one in clients}
    return unused_notes(ranges, agree(ranges))


def test_a_client_that_comes_more_often_is_told_what_it_loses_and_the_remedy():
    fast, slow = (series(name, "2026-01-01", 8640 // k, 10 * k) for name, k in (("a", 1), ("b", 3)))
    (note,) = notes_of(fast, slow)
    assert note.startswith("client 'a': 5760 of 8640 time steps are not on the common time axis (")
    assert note.endswith(" are left out; 'federation start' with --resample 30s uses them all")


def test_the_remedy_holds_for_one_client_only_where_the_axis_is_on_the_clock():
    fast, slow = (
        series("a", "2026-01-01T00:00:05", 90, 10),
        series("b", "2026-01-01T00:00:05", 30, 30),
    )
    (note,) = notes_of(fast, slow)
    assert "--resample 30s at every client uses them all" in note


def test_steps_outside_the_common_time_have_no_remedy_and_equal_clients_no_note():
    early, late = series("a", "2026-01-01", 100, 10), series("b", "2026-01-01T00:01:40", 90, 10)
    (note,) = notes_of(early, late)
    assert note.startswith("client 'a': 10 of 100 time steps")
    assert note.endswith("and are left out")
    assert notes_of(late, series("c", "2026-01-01T00:01:40", 90, 10)) == []


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 40), st.integers(0, 40), st.integers(1, 5), st.integers(1, 5), st.integers(0, 60)
)
def test_as_many_as_are_lost_on_the_axis(shift_a, shift_b, step_a, step_b, gap):
    gap = range(60, 60 + gap + LONGEST_GAP + 1)  # a gap that breaks the record
    found = [
        series("a", f"2026-01-01T00:00:{shift_a:02}", 150, step_a, gap),
        series("b", f"2026-01-01T00:00:{shift_b:02}", 150, step_b),
    ]
    ranges = {one.client.name: range_of(one) for one in found}
    try:
        grid = agree(ranges)
    except DataError:
        reject()
    notes = " ".join(unused_notes(ranges, grid))
    for one in found:
        lost = len(one.time) - int(on_grid(one, grid).row_observed.sum())
        told = f"client '{one.client.name}': {lost} of {len(one.time)} time steps"
        assert (told in notes) == (lost > 0)
