"""Rows of the losses: means of their rounds, the same after a restart in the middle of one."""

import json

import numpy as np
import pytest

from fedgranger.server.loss_trace import LossTrace, rounds_per_row, trace_table

NAMES = ("a", "b")


def rounds(count):
    rng = np.random.default_rng(0)
    return [
        (k, rng.uniform(size=2), rng.integers(0, 5, size=2).astype(float)) for k in range(count)
    ]


def test_rows_are_means_over_the_steps_of_their_rounds():
    made = rounds(14)  # two passes of seven rounds, three rounds per row: 3, 3, 1
    trace = LossTrace(2, 7, 3)
    for one in made:
        trace.add(*one)
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
    trace = LossTrace(2, 1, 1)
    for one in rounds(30):
        trace.add(one[0], one[1], np.array([3.0, 7.0]))
    for row, one in zip(trace.rows, rounds(30), strict=True):
        np.testing.assert_array_equal(row.server_loss, one[1])


@pytest.mark.parametrize("restart", [1, 3, 5, 7, 12])
def test_a_restart_changes_no_bit(restart):
    whole, cut = LossTrace(2, 7, 3), LossTrace(2, 7, 3)
    for one in rounds(14):
        whole.add(*one)
    for one in rounds(14):
        if one[0] == restart:
            kept = json.loads(json.dumps(cut.memory()))
            cut = LossTrace(2, 7, 3)
            cut.restore(kept)
        cut.add(*one)
    assert trace_table(NAMES, cut.rows).equals(trace_table(NAMES, whole.rows))


def test_rows_are_eighths_of_a_pass_as_far_as_memory_allows():
    assert rounds_per_row(30, 10) == 4
    assert rounds_per_row(1, 300) == 1
    assert rounds_per_row(10**6, 5) == 65_536 // 5
    assert rounds_per_row(10, 10**6) == 1
