"""Step size of a server row, and the bound behind it."""

import numpy as np
import pytest

from fedgranger.linalg.spectral import window_moments
from fedgranger.server.row_setup import choose_step_size


def test_automatic_uses_the_budget():
    sizes = choose_step_size(np.array([2.0, 3.0]), server="auto", safety=0.4)
    assert sizes.server == pytest.approx(0.4 / (2 * 5.0))
    assert sizes.gain == pytest.approx(0.4)


def test_given_step_size_is_taken():
    sizes = choose_step_size(np.array([2.0, 3.0]), server=0.1, safety=0.4)
    assert sizes == (0.1, pytest.approx(2 * 0.1 * 5.0))


@pytest.mark.parametrize("gains", [[], [0.0, 0.0]])
def test_row_that_listens_to_nothing(gains):
    assert choose_step_size(np.array(gains), server="auto", safety=0.5) == (0.0, 0.0)
    assert choose_step_size(np.array(gains), server=0.2, safety=0.5) == (0.2, 0.0)


def joint_and_sum(parts, window):
    always = np.ones(len(parts[0]), dtype=np.bool_)
    joint = window_moments(np.concatenate(parts, axis=1), always, window).gain
    return joint, sum(window_moments(part, always, window).gain for part in parts)


@pytest.mark.parametrize("window", [1, 20, 2000])
def test_sum_of_gains_bounds_the_gain_of_stacked_states(window):
    rng = np.random.default_rng(0)
    common = rng.standard_normal((2000, 1))
    parts = [common + rng.standard_normal((2000, 2)) for _ in range(3)]
    joint, total = joint_and_sum(parts, window)
    assert joint < total


@pytest.mark.parametrize("window", [1, 20, 2000])
def test_bound_is_reached_when_states_coincide(window):
    part = np.random.default_rng(1).standard_normal((2000, 2))
    joint, total = joint_and_sum([part, part, part], window)
    assert joint == pytest.approx(total, rel=1e-9)
