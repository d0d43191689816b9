"""Smoothing against a plain loop, with gaps; norms of errors."""

import numpy as np
import pytest

from fedgranger.linalg.smoothing import smooth, squared_norms


def by_loop(values, start, memory):
    out, now = np.empty_like(values), np.broadcast_to(start, values.shape[1:]).astype(float)
    for step, row in enumerate(values):
        now = np.where(np.isnan(row), now, now + (row - now) / memory)
        out[step] = now
    return out


@pytest.mark.parametrize("start", [1.0, np.array([0.5, 2.0, 3.0])])
def test_smooth_vs_loop(start):
    rng = np.random.default_rng(0)
    values = rng.exponential(size=(200, 3))
    values[rng.random(values.shape) < 0.2] = np.nan
    values[:, 2] = np.nan
    np.testing.assert_allclose(smooth(values, start, 5.0), by_loop(values, start, 5.0), rtol=1e-12)


def test_smoothing_goes_on_where_it_stopped():
    values = np.random.default_rng(1).exponential(size=(50, 2))
    whole = smooth(values, 1.0, 4.0)
    first = smooth(values[:20], 1.0, 4.0)
    rest = smooth(values[20:], first[-1], 4.0)
    np.testing.assert_allclose(np.concatenate([first, rest]), whole, rtol=1e-12)
    assert smooth(values[:0], 1.0, 4.0).shape == (0, 2)


def test_norms_with_a_weight_stay_finite():
    errors = np.array([[1.0, 2.0], [np.nan, 1.0], [1e300, 0.0]])
    weight = np.array([[2.0, 0.5], [0.5, 1.0]])
    found = squared_norms(errors, weight)
    assert found[0] == pytest.approx(2 + 2 * 0.5 * 2 + 4)
    assert np.isnan(found[1])
    assert np.isfinite(found[2])
