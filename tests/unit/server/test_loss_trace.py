"""Rows of the losses are means of their rounds."""

import numpy as np

from fedgranger.server.loss_trace import no_losses, rounds_per_row, trace_table

NAMES = ("a", "b")
WINDOWS = {"rounds_per_pass": 7, "rounds_per_row": 3}


def rounds(count):
    rng = np.random.default_rng(0)
    return [
        (k, rng.uniform(size=2), rng.integers(0, 5, size=2).astype(float)) for k in range(count)
    ]


def test_rows_are_means_over_the_steps_of_their_rounds():
    made = rounds(14)  # two passes of seven rounds, three rounds per row: 3, 3, 1
    trace = no_losses(2)
    for one in made:
        trace = trace.add(*one, **WINDOWS)
    assert [row.round for row in trace.rows] == [3, 6, 7, 10, 13, 14]
    assert [row.pass_index for row in trace.rows] == [0, 0, 0, 1, 1, 1]
    for row, first in zip(trace.rows, (0, 3, 6, 7, 10, 13), strict=True):
        own = made[first : row.round]
        losses, steps = (np.array([one[part] for one in own]) for part in (1, 2))
        means = (losses * steps).sum(axis=0) / np.maximum(steps.sum(axis=0), 1)
        np.testing.assert_allclose(row.server_loss, means, rtol=1e-13)
    table = trace_table(NAMES, trace.rows)
    assert table["client"].tolist() == [*NAMES] * 6
    assert table["local_loss"].isna().all()


def test_a_round_by_itself_keeps_its_bits():
    trace, each = no_losses(2), {"rounds_per_pass": 1, "rounds_per_row": 1}
    for one in rounds(30):
        trace = trace.add(one[0], one[1], np.array([3.0, 7.0]), **each)
    for row, one in zip(trace.rows, rounds(30), strict=True):
        np.testing.assert_array_equal(row.server_loss, one[1])


def test_rows_are_eighths_of_a_pass_as_far_as_memory_allows():
    assert rounds_per_row(30, 10) == 4
    assert rounds_per_row(1, 300) == 1
    assert rounds_per_row(10**6, 5) == 65_536 // 5
    assert rounds_per_row(10, 10**6) == 1
