"""Windowed second and fourth moments."""

import numpy as np
import pytest
import scipy.linalg

from fedgranger.linalg import spectral
from fedgranger.linalg.spectral import spectral_radius, window_moments


def direct(samples, available, window):
    """Loop over windows, one matrix each, as the definition reads."""
    moments = []
    for start in range(0, len(samples), window):
        rows = [samples[t] for t in range(start, min(start + window, len(samples))) if available[t]]
        if rows:
            moments.append(sum(np.outer(x, x) for x in rows) / len(rows))
    mean = sum(moments) / len(moments)
    square = sum(X @ X for X in moments) / len(moments)
    return mean, scipy.linalg.eigh(square, mean, eigvals_only=True)[-1]


def gappy(seed, length, dim, share):
    rng = np.random.default_rng(seed)
    available = rng.random(length) >= share
    return rng.standard_normal((length, dim)) * available[:, None], available


def test_spectral_radius_of_rotation():
    angle = 0.3
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    assert spectral_radius(-0.7 * turn) == pytest.approx(0.7, rel=1e-12)


@pytest.mark.parametrize("window", [1, 2, 3, 4, 7, 200])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_vs_direct_loop(window, share):
    """dim 3: windows 1 and 2 take the small-Gram branch, the others the direct one; 200 ∤ 7."""
    samples, available = gappy(window, 200, 3, share)
    got = window_moments(samples, available, window)
    mean, gain = direct(samples, available, window)
    np.testing.assert_allclose(got.mean, mean, rtol=1e-11, atol=1e-13)
    assert got.gain == pytest.approx(gain, rel=1e-9)


@pytest.mark.parametrize("window", [1, 5])
def test_chunk_size_does_not_matter(monkeypatch, window):
    samples, available = gappy(0, 203, 3, 0.2)
    whole = window_moments(samples, available, window)
    for chunk in (1, 7, 50):
        monkeypatch.setattr(spectral, "CHUNK_STEPS", chunk)
        pieces = window_moments(samples, available, window)
        np.testing.assert_allclose(pieces.mean, whole.mean, rtol=1e-12)
        assert pieces.gain == pytest.approx(whole.gain, rel=1e-11)


def test_single_gaussian_samples_vs_closed_form():
    """κ = tr R + 2 λmax(R).

    The mean of n draws of x⁴ has relative standard error sqrt(96)/3/sqrt(n) (E[x⁸] = 105);
    five of them are allowed.
    """
    rng = np.random.default_rng(0)
    R = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 0.3]])
    n = 400_000
    samples = rng.standard_normal((n, 3)) @ np.linalg.cholesky(R).T
    got = window_moments(samples, np.ones(n, dtype=np.bool_), 1)
    expected = np.trace(R) + 2 * np.linalg.eigvalsh(R)[-1]
    assert got.gain == pytest.approx(expected, rel=5 * 3.3 / np.sqrt(n))
    np.testing.assert_allclose(got.mean, R, atol=5 * 2 * np.sqrt(2 / n))


def test_full_window_is_largest_eigenvalue():
    samples, available = gappy(1, 300, 4, 0.1)
    R = samples.T @ samples / available.sum()
    got = window_moments(samples, available, 300)
    np.testing.assert_allclose(got.mean, R, rtol=1e-12, atol=1e-14)
    assert got.gain == pytest.approx(np.linalg.eigvalsh(R)[-1], rel=1e-10)


def test_gain_shrinks_as_windows_grow_and_scales_with_the_square():
    samples, available = gappy(2, 4096, 3, 0.0)
    gains = [window_moments(samples, available, w).gain for w in (1, 4, 16, 4096)]
    assert gains == sorted(gains, reverse=True)
    scaled = window_moments(3.0 * samples, available, 4).gain
    assert scaled == pytest.approx(9.0 * gains[1], rel=1e-10)


def test_empty_windows_are_left_out():
    samples, available = gappy(3, 40, 2, 0.0)
    spread = np.zeros((80, 2))
    spread[20:60], kept = samples, np.zeros(80, dtype=np.bool_)
    kept[20:60] = True
    expected = window_moments(samples, available, 10)
    got = window_moments(spread, kept, 10)
    np.testing.assert_allclose(got.mean, expected.mean, rtol=1e-12)
    assert got.gain == pytest.approx(expected.gain, rel=1e-12)


@pytest.mark.parametrize("length", [0, 5])
def test_no_data_at_all(length):
    got = window_moments(np.zeros((length, 2)), np.zeros(length, dtype=np.bool_), 2)
    assert got.gain == 0.0
    assert not got.mean.any()
