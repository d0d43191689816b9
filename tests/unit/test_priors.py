"""Prior families: moments, names, keys."""

import itertools

import jax
import numpy as np
import pytest

from fedgranger import priors
from fedgranger.errors import ConfigError

NUM_DRAWS = 200_000
KURTOSIS = {"normal": 3.0, "uniform": 1.8, "laplace": 6.0, "student-t": 9.0}  # t: df = 5
DRAW = {"family": "normal", "location": 0.0, "scale": 1.0, "df": 5.0}


def draw(key, shape=(NUM_DRAWS,), **changes):
    return np.asarray(priors.draw(key, shape, **(DRAW | changes)))


@pytest.mark.parametrize("family", sorted(priors.FAMILIES))
def test_location_is_mean_and_scale_is_standard_deviation(family):
    """Five standard errors: s/√n for the mean, s·√((κ−1)/4n) for the standard deviation."""
    x = draw(jax.random.key(0), family=family, location=-2.0, scale=0.5)
    assert x.dtype == np.float64
    assert x.mean() == pytest.approx(-2.0, abs=5 * 0.5 / np.sqrt(NUM_DRAWS))
    sd_error = 0.5 * np.sqrt((KURTOSIS[family] - 1) / (4 * NUM_DRAWS))
    assert x.std() == pytest.approx(0.5, abs=5 * sd_error)


@pytest.mark.parametrize("family", sorted(priors.FAMILIES))
def test_draws_are_those_of_the_generator_for_this_shape(family):
    """More are drawn than are needed: what a seed gives must not depend on how many."""
    key, shape = jax.random.key(2), (3, 5)
    direct = np.asarray(priors.FAMILIES[family](key, shape, 5.0))
    found = draw(key, shape, family=family, location=0.5, scale=2.0)
    np.testing.assert_array_equal(found, 0.5 + 2.0 * direct)


@pytest.mark.slow  # Monte Carlo over many data sets; parts of it are tested by formula
def test_families_differ_in_their_tails():
    """Share beyond two standard deviations, binomial error at most √(p/n)."""
    shares = {}
    for family in priors.FAMILIES:
        shares[family] = (np.abs(draw(jax.random.key(1), family=family)) > 2).mean()
    assert shares["uniform"] == 0
    expected = {"normal": 0.0455, "laplace": np.exp(-2 * np.sqrt(2)), "student-t": 0.04935}
    for family, share in expected.items():
        assert shares[family] == pytest.approx(share, abs=5 * np.sqrt(share / NUM_DRAWS))


def test_zero_scale_is_the_location():
    assert (draw(jax.random.key(0), (3, 2), location=1.5, scale=0.0) == 1.5).all()


@pytest.mark.parametrize("df", [2.0, 1.0, 0.0])
def test_student_t_needs_a_variance(df):
    with pytest.raises(ConfigError, match=f"prior_df is {df}; a Student-t prior needs more than 2"):
        draw(jax.random.key(0), (2,), family="student-t", df=df)


def test_other_families_ignore_df():
    np.testing.assert_array_equal(
        draw(jax.random.key(0), (4,), df=0.0), draw(jax.random.key(0), (4,), df=9.0)
    )


# keys


def key_bits(*names, seed=0):
    return tuple(np.asarray(jax.random.key_data(priors.named_key(jax.random.key(seed), *names))))


def test_named_key_depends_on_names_only():
    """The same name gives the same key whatever was derived before it."""
    first = key_bits("granger", "a", "b")
    for other in ("z", "c", "a"):
        key_bits("granger", other)
    assert key_bits("granger", "a", "b") == first
    assert key_bits("granger", "a", "b", seed=1) != first


def test_named_keys_are_distinct():
    clients = [f"client{k}" for k in range(12)]
    names = [
        *(("granger", *pair) for pair in itertools.product(clients, repeat=2)),
        *(("augmentation", name) for name in clients),
        ("ab", "c"),
        ("a", "bc"),
        ("abc",),
        (),
    ]
    assert len({key_bits(*name) for name in names}) == len(names)


def test_cause_and_effect_are_not_exchangeable():
    assert key_bits("granger", "a", "b") != key_bits("granger", "b", "a")
