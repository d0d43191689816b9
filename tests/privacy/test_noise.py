"""Noise from a secret: standard normal, independent between places, the same for the same place."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats

from fedgranger.errors import ConfigError
from fedgranger.privacy import noise
from fedgranger.privacy.noise import clip_rows, gaussian

SECRET = bytes(range(32))
MILLION = 1_000_000


@pytest.fixture(scope="module")
def million():
    return gaussian(SECRET, "states", 1, shape=(MILLION,))


def test_moments(million):
    for power, mean, var in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10395 - 225)):
        found = (million**power).mean()
        assert abs(found - mean) < 5 * math.sqrt(var / MILLION), power


def test_kolmogorov_smirnov(million):
    assert scipy.stats.kstest(million, "norm").pvalue > 1e-4


@pytest.mark.parametrize("quantile", [-4.5, -3.0, -1.0, 1.0, 3.0, 4.5])
def test_tails(million, quantile):
    p = scipy.stats.norm.sf(abs(quantile))
    count = (million * np.sign(quantile) > abs(quantile)).sum()
    assert abs(count - MILLION * p) < 5 * math.sqrt(MILLION * p) + 1


def test_six_sigma_is_there_and_nothing_is_infinite(monkeypatch):
    """The extreme bits give the extreme numbers: no tail is cut before 8 sigma."""

    class Extreme:
        def update(self, content):
            pass

        def copy(self):
            return self

        def digest(self, length):
            words = [0, 1, 2**64 - 1, 2**64 - 2, (1 << 64) // 10**9 * 2]
            return np.array(words, dtype="<u8").tobytes()[:length]

    monkeypatch.setattr(noise.hashlib, "shake_256", Extreme)
    numbers = gaussian(SECRET, shape=(5,))
    expected = [8.37, -8.37, 0.0, 0.0, scipy.stats.norm.isf(1e-9)]
    np.testing.assert_allclose(np.abs(numbers), np.abs(expected), atol=2e-2)
    assert numbers[0] == -numbers[1]
    assert np.isfinite(numbers).all()


def test_numbers_of_one_place_are_independent(million):
    for lag in (1, 2, 7, noise.CHUNK_NUMBERS):
        product = million[lag:] * million[:-lag]
        assert abs(product.mean()) < 5 / math.sqrt(len(product)), lag
        squares = (million[lag:] ** 2 - 1) * (million[:-lag] ** 2 - 1)
        assert abs(squares.mean()) < 5 * 2 / math.sqrt(len(squares)), lag


def test_chunks_do_not_change_what_is_before_them():
    one = noise.CHUNK_NUMBERS
    long = gaussian(SECRET, "x", shape=(2 * one + 3,))
    assert len(np.unique(long)) == len(long)


def places():
    """Parts that a careless hash takes for the same."""
    a = np.arange(4.0)
    flipped = a.copy()
    flipped[2] = np.nextafter(flipped[2], 3.0)
    return [
        (),
        ("",),
        ("", ""),
        ("ab",),
        ("a", "b"),
        ("", "ab"),
        (b"ab",),
        (1,),
        ("1",),
        (b"1",),
        (-1,),
        (1, 2),
        (12,),
        (2**70,),
        (a,),
        (flipped,),
        (a.reshape(2, 2),),
        (a.astype(np.float32),),
        (a.astype(np.int64),),
        (a.tobytes(),),
        (a[:2], a[2:]),
        (a[:2],),
        (np.array(0.0),),
        (np.array([0.0]),),
        (np.array([]),),
        (np.array([]), 4),
        ("a\x00b",),
        ("a", "\x00b"),
        (4,),
        (1, 4),
        ("a", "bsc"),
        ("asb", "c"),
        (b"1", b"2b3"),
        (b"1b2", b"3"),
    ]


def test_different_places_never_meet():
    drawn = [gaussian(SECRET, *place, shape=(4,)) for place in places()]
    for one, other in itertools.combinations(range(len(drawn)), 2):
        assert not np.isin(drawn[one], drawn[other]).any(), (places()[one], places()[other])


def test_shape_and_secret_are_part_of_the_place():
    drawn = [
        gaussian(SECRET, "x", shape=(4,)),
        gaussian(SECRET, "x", shape=(5,)),
        gaussian(SECRET, "x", shape=(2, 2)),
        gaussian(SECRET, "x", 2, shape=(2,)),
        gaussian(SECRET, "x", 2, 2, shape=()),
        gaussian(SECRET[:-1], SECRET[-1:], "x", shape=(4,)),
        gaussian(bytes([1]) + SECRET[1:], "x", shape=(4,)),
    ]
    for one, other in itertools.combinations(drawn, 2):
        assert not np.isin(one, other).any()


def test_one_bit_makes_other_noise():
    content = np.random.default_rng(0).standard_normal((50, 2))
    drawn = [gaussian(SECRET, "states", content, shape=(10_000,))]
    for row in range(4):
        for bit in (0, 1, 52, 63):
            other = content.copy()
            other.view(np.uint64)[row, 0] ^= np.uint64(1) << np.uint64(bit)
            drawn.append(gaussian(SECRET, "states", other, shape=(10_000,)))
    correlation = np.corrcoef(drawn) - np.eye(len(drawn))
    assert np.abs(correlation).max() < 5 / math.sqrt(10_000)


def test_the_same_message_gets_the_same_noise():
    content = np.random.default_rng(0).standard_normal((6, 4))
    first = gaussian(SECRET, "states", np.int64(3), content, shape=(6, 4))
    again = gaussian(SECRET, "states", 3, np.asfortranarray(content), shape=(6, 4))
    np.testing.assert_array_equal(first, again)
    assert first.shape == (6, 4)
    assert gaussian(SECRET, shape=()).shape == ()
    assert gaussian(SECRET, shape=(0, 3)).shape == (0, 3)


def test_what_cannot_be_a_place():
    with pytest.raises(TypeError, match="float"):
        gaussian(SECRET, 0.5, shape=(1,))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="objects"):
        gaussian(SECRET, np.array([None]), shape=(1,))
    with pytest.raises(ConfigError, match="secret"):
        gaussian(b"", shape=(1,))


def test_clipped_rows_are_within_the_bound():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((10_000, 3)) * np.exp(rng.uniform(-5, 5, (10_000, 1)))
    before = values.copy()
    clipped, count = clip_rows(values, 1.5)
    norms = np.linalg.norm(values, axis=1)
    assert (np.linalg.norm(clipped, axis=1) <= 1.5).all()
    assert count == (norms > 1.5).sum()
    np.testing.assert_array_equal(clipped[norms <= 1.5], values[norms <= 1.5])
    np.testing.assert_allclose(clipped, values * np.minimum(1, 1.5 / norms)[:, None], rtol=1e-13)
    np.testing.assert_array_equal(values, before)
    assert clip_rows(clipped, 1.5)[1] == 0


def test_clipping_of_extreme_rows():
    values = np.array([[1e308, -1e308], [1e-320, 0.0], [0.0, 0.0]])
    clipped, count = clip_rows(values, 1.0)
    assert count == 1
    np.testing.assert_allclose(clipped[0], [math.sqrt(0.5), -math.sqrt(0.5)], rtol=1e-13)
    np.testing.assert_array_equal(clipped[1:], values[1:])
    np.testing.assert_array_equal(clip_rows(values, 0.0)[0], 0.0)
    np.testing.assert_array_equal(clip_rows(values, math.inf)[0], values)
    assert clip_rows(np.zeros((0, 2)), 1.0)[1] == 0


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_rows_that_are_not_numbers_are_refused(odd):
    with pytest.raises(ValueError, match="row 1 "):
        clip_rows(np.array([[1.0, 2.0], [3.0, odd]]), 1.0)


@pytest.mark.parametrize("bound", [-1.0, math.nan])
def test_bounds_that_are_none_are_refused(bound):
    with pytest.raises(ConfigError, match="bound"):
        clip_rows(np.ones((1, 1)), bound)
