"""How heavy tails are is learned from all pairs: sizes by Monte Carlo, limits and invariances."""

import numpy as np
import pytest
from scipy import stats

from fedgranger.inference import calibrate as module
from fedgranger.inference.calibrate import calibrate

NUM_COPIES, NUM_CLIENTS, DF = 20, 6, 4.0


def draws(rng, tail, count):
    """Statistics of one data set and its copies, all of one law with unknown scales."""
    shape = (count, NUM_COPIES + 1, NUM_CLIENTS, NUM_CLIENTS)
    scale = np.exp(rng.normal(0, 0.3, (count, 1, NUM_CLIENTS, NUM_CLIENTS)))
    return scale * stats.f.rvs(DF, tail, size=shape, random_state=rng)


def size(tail, *, is_pooled, count=60, level=0.05):
    """Share of p-values below the level, and its standard error over data sets."""
    df = np.full((NUM_CLIENTS, NUM_CLIENTS), DF)
    shares = [
        (calibrate(one[0], df, one[1:], is_pooled=is_pooled).p_value < level).mean()
        for one in draws(np.random.default_rng(1), tail, count)
    ]
    return float(np.mean(shares)), float(np.std(shares, ddof=1) / np.sqrt(count))


@pytest.mark.parametrize("tail", [4.0, 8.0, 1e6])
def test_size_at_five_percent_whatever_the_tail(tail):
    """Pooled p-values reject what they should, with light tails and with heavy ones."""
    share, error = size(tail, is_pooled=True)
    assert error < 0.008
    assert abs(share - 0.05) < 0.008 + 3 * error


@pytest.mark.slow  # Monte Carlo over many data sets; parts of it are tested by formula
def test_every_pair_by_itself_errs_both_ways():
    """Too careful where tails are light, and too bold where they are heavy."""
    light, pooled = (size(1e6, is_pooled=kind)[0] for kind in (False, True))
    assert light < 0.035 < pooled
    heavy, pooled = (size(4.0, is_pooled=kind)[0] for kind in (False, True))
    assert heavy > 0.057 > pooled


def test_heavy_tails_keep_the_level_at_one_percent():
    share, error = size(4.0, is_pooled=True, level=0.01)
    assert share < 0.014 + 2 * error


def test_one_pair_has_almost_even_odds(monkeypatch):
    rng = np.random.default_rng(2)
    copies = stats.f.rvs(DF, 10, size=(NUM_COPIES, 1, 1), random_state=rng)
    given = (np.array([[3.0]]), np.array([[DF]]), copies)
    monkeypatch.setattr(module, "EVEN_PAIRS", 1e9)
    even = calibrate(*given).p_value
    np.testing.assert_allclose(even, calibrate(*given, is_pooled=False).p_value, rtol=1e-6)


def test_odds_are_those_of_a_long_em_written_out():
    rng = np.random.default_rng(3)
    one = draws(rng, 6.0, 1)[0]
    df = np.full((NUM_CLIENTS, NUM_CLIENTS), DF)
    plain, pooled = (calibrate(one[0], df, one[1:], is_pooled=kind).law for kind in (False, True))
    ratio = pooled.weight.sum(axis=-1) / plain.weight.sum(axis=-1)
    odds = np.ones(len(module.TAILS)) / len(module.TAILS)
    likelihood = plain.weight.sum(axis=-1).reshape(-1, len(odds))
    for _ in range(20_000):
        total = (likelihood * odds / (likelihood @ odds)[:, None]).sum(axis=0)
        odds = (total + module.EVEN_PAIRS / len(odds)) / (len(likelihood) + module.EVEN_PAIRS)
    expected = odds / (likelihood @ odds)[:, None]
    np.testing.assert_allclose(ratio.reshape(expected.shape), expected, rtol=1e-4)
    np.testing.assert_allclose(pooled.weight.sum(axis=(-2, -1)), 1.0, rtol=1e-12)


def test_order_of_pairs_and_scale_do_not_matter():
    one = draws(np.random.default_rng(4), 8.0, 1)[0]
    df = np.full((NUM_CLIENTS, NUM_CLIENTS), DF)
    base = calibrate(one[0], df, one[1:]).p_value
    order = np.random.default_rng(5).permutation(NUM_CLIENTS)
    turned = one[:, order][:, :, order]
    np.testing.assert_allclose(
        calibrate(turned[0], df, turned[1:]).p_value, base[order][:, order], rtol=1e-9
    )
    np.testing.assert_allclose(calibrate(7 * one[0], df, 7 * one[1:]).p_value, base, rtol=1e-6)
