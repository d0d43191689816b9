"""The same epsilons as Google's dp-accounting: analytic calibration, PLD and RDP."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event, gaussian_mechanism, pld, rdp

from fedgranger.privacy.accounting import composed, delta_of, epsilon_of, mu_of

SIZES = [[1.0], [0.3, 0.4], [0.1] * 50, [0.5, 1.0, 0.05, 2.0], [3.0, 0.01]]
DELTAS = [1e-3, 1e-5, 1e-8]


def event(sizes):
    return dp_event.ComposedDpEvent([dp_event.GaussianDpEvent(1.0 / mu) for mu in sizes])


@pytest.mark.parametrize("sizes", SIZES)
def test_composed_vs_pld(sizes):
    step = 1e-4
    accountant = pld.PLDAccountant(value_discretization_interval=step).compose(event(sizes))
    mu = composed(sizes)
    for delta in DELTAS:
        theirs = accountant.get_epsilon(delta)  # an upper bound: every loss is rounded up
        ours = epsilon_of(mu, delta)
        assert ours <= theirs + 1e-6
        assert theirs <= ours + step * len(sizes) + 1e-3 * ours
    for epsilon in (0.5, 2.0):
        theirs = accountant.get_delta(epsilon)
        assert delta_of(mu, epsilon) <= theirs * (1 + 1e-6) + 1e-14
        assert theirs <= delta_of(mu, epsilon) * 1.05 + 1e-13


@pytest.mark.parametrize("sizes", SIZES)
def test_rdp_is_an_upper_bound(sizes):
    accountant = rdp.RdpAccountant().compose(event(sizes))
    for delta in DELTAS:
        ours = epsilon_of(composed(sizes), delta)
        assert ours <= accountant.get_epsilon(delta)
        assert ours >= 0.5 * accountant.get_epsilon(delta)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-9])
def test_calibration_vs_analytic_gaussian(epsilon, delta):
    sd = gaussian_mechanism.get_sigma_gaussian(epsilon, delta)
    np.testing.assert_allclose(mu_of(epsilon, delta), 1.0 / sd, rtol=1e-6)
    theirs = gaussian_mechanism.get_epsilon_gaussian(sd, delta)
    np.testing.assert_allclose(epsilon_of(1.0 / sd, delta), theirs, rtol=1e-6)
    assert math.isclose(delta_of(1.0 / sd, epsilon), delta, rel_tol=1e-5)
