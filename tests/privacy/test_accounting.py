"""Sizes of Gaussian releases, against the exact formula in many digits and known limits."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgranger.errors import ConfigError
from fedgranger.privacy.accounting import classical_mu, composed, delta_of, epsilon_of, mu_of

log_sizes = st.floats(-6.0, 4.0)
log_epsilons = st.floats(-4.0, 8.0)
log_deltas = st.floats(-300.0, -0.05)


def exact_delta(mu, epsilon):
    """Balle and Wang's formula with so many digits that cancellation does not matter."""
    with mpmath.workdps(400):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        a = epsilon / mu - mu / 2
        return upper_tail(a) - mpmath.exp(epsilon) * upper_tail(a + mu)


def upper_tail(x):
    return mpmath.erfc(x / mpmath.sqrt(2)) / 2


@settings(max_examples=60, deadline=None)
@given(log_sizes, st.floats(-6.0, 36.5), st.floats(-6.0, 0.0))
def test_delta_vs_many_digits(log_mu, z, share):
    mu = 10.0**log_mu
    epsilon = mu * mu / 2 + mu * z
    if epsilon < 0:
        epsilon = mu * 10.0**share
    expected = exact_delta(mu, epsilon)
    if expected < 1e-300:
        return
    # what one rounding of epsilon or mu itself does to delta
    conditioning = 2**-52 * max(1.0, abs(epsilon / mu - mu / 2)) * max(1.0, mu)
    error = abs((mpmath.mpf(delta_of(mu, epsilon)) - expected) / expected)
    assert error < 1e-12 + 10 * conditioning


@pytest.mark.parametrize("mu", [1e-9, 0.1, 0.4999, 0.5001, 1.0, 10.0])
def test_delta_without_epsilon_is_total_variation(mu):
    np.testing.assert_allclose(delta_of(mu, 0.0), math.erf(mu / math.sqrt(8)), rtol=1e-14)


def test_both_forms_of_delta_agree_where_they_meet():
    for epsilon in (0.0, 0.1, 1.0, 5.0, 15.0):
        below, above = delta_of(0.5, epsilon), delta_of(math.nextafter(0.5, 1.0), epsilon)
        np.testing.assert_allclose(below, above, rtol=1e-12)


def test_limits():
    assert delta_of(0.0, 0.0) == 0.0
    assert delta_of(math.inf, 3.0) == 1.0
    assert delta_of(1.0, math.inf) == 0.0
    assert delta_of(1e4, 0.0) == 1.0
    assert delta_of(1e4, 1e8) == 0.0
    assert delta_of(1.0, 1e8) == 0.0
    assert epsilon_of(0.0, 1e-5) == 0.0
    assert epsilon_of(1e-6, 1e-5) == 0.0
    assert epsilon_of(math.inf, 1e-5) == math.inf
    assert epsilon_of(1e200, 1e-5) == math.inf
    assert mu_of(math.inf, 1e-5) == math.inf
    assert composed([]) == 0.0
    assert composed([1.0, math.inf]) == math.inf


def test_delta_at_the_largest_sizes():
    assert delta_of(1e4, 0.5e8) == pytest.approx(float(exact_delta(1e4, 0.5e8)), rel=1e-10)
    assert 0.9e-300 < delta_of(1.0, epsilon_of(1.0, 1e-300)) < 1.1e-300


@settings(max_examples=200, deadline=None)
@given(log_sizes, log_deltas)
def test_size_to_epsilon_and_back(log_mu, log_delta):
    mu, delta = 10.0**log_mu, 10.0**log_delta
    epsilon = epsilon_of(mu, delta)
    if epsilon == 0.0:
        assert delta_of(mu, 0.0) <= delta * (1 + 1e-12)
    elif epsilon > 1e-5 * mu * mu:  # closer to zero all sizes have the same epsilon
        np.testing.assert_allclose(mu_of(epsilon, delta), mu, rtol=1e-9)


@settings(max_examples=200, deadline=None)
@given(log_epsilons, log_deltas)
def test_epsilon_to_size_and_back(log_epsilon, log_delta):
    epsilon, delta = 10.0**log_epsilon, 10.0**log_delta
    np.testing.assert_allclose(epsilon_of(mu_of(epsilon, delta), delta), epsilon, rtol=1e-9)


@settings(max_examples=200, deadline=None)
@given(log_sizes, st.floats(0.0, 30.0), st.floats(1e-3, 1.0))
def test_delta_grows_with_size_and_falls_with_epsilon(log_mu, z, more):
    mu = 10.0**log_mu
    epsilon = mu * mu / 2 + mu * z
    assert delta_of(mu * (1 + more), epsilon) >= delta_of(mu, epsilon)
    assert delta_of(mu, epsilon * (1 + more)) <= delta_of(mu, epsilon)


@settings(max_examples=100, deadline=None)
@given(log_deltas, log_sizes, st.floats(1e-3, 1.0))
def test_epsilon_grows_with_size_and_falls_with_delta(log_delta, log_mu, more):
    mu, delta = 10.0**log_mu, 10.0**log_delta
    assert epsilon_of(mu * (1 + more), delta) >= epsilon_of(mu, delta)
    assert epsilon_of(mu, delta * 10 ** (-more)) >= epsilon_of(mu, delta)


def test_composed():
    assert composed([3.0, 4.0]) == 5.0
    assert composed(iter([0.1] * 100)) == pytest.approx(1.0, rel=1e-14)
    assert composed([1e200, 1e200]) == pytest.approx(math.sqrt(2) * 1e200)


def test_textbook_formula_holds_below_one_and_breaks_above():
    for epsilon in (0.01, 0.1, 0.5, 0.99):
        assert delta_of(classical_mu(epsilon, 1e-5), epsilon) <= 1e-5
    assert classical_mu(0.5, 1e-5) == 0.5 / math.sqrt(2 * math.log(1.25e5))
    assert delta_of(classical_mu(20.0, 1e-5), 20.0) > 1e-5


def test_figures_of_the_page():
    """docs/theory/privacy.md: one release of a filter, and the same steps one by one."""
    assert round(epsilon_of(0.5 / math.sqrt(1 - 0.45**2), 1e-5), 2) == 2.26
    assert round(epsilon_of(composed([0.5] * 1000), 1e-5), 1) == 191.5
    assert delta_of(classical_mu(8.4, 1e-5), 8.4) < 1e-5 < delta_of(classical_mu(8.5, 1e-5), 8.5)
    assert round(delta_of(classical_mu(20.0, 1e-5), 20.0) / 1e-5) == 153


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (lambda: delta_of(-1.0, 1.0), "size"),
        (lambda: delta_of(math.nan, 1.0), "size"),
        (lambda: delta_of(1.0, -1.0), "epsilon"),
        (lambda: epsilon_of(1.0, 0.0), "delta"),
        (lambda: epsilon_of(1.0, 1.0), "delta"),
        (lambda: mu_of(math.nan, 0.1), "epsilon"),
        (lambda: composed([1.0, -1.0]), "size"),
        (lambda: classical_mu(1.0, 2.0), "delta"),
    ],
)
def test_refused(wrong, word):
    with pytest.raises(ConfigError, match=word):
        wrong()
