"""The stopping rule knows how far it is from the limit."""

import jax.numpy as jnp
import numpy as np
import pytest

from fedgranger import convergence
from fedgranger.client.augment import AugmentState
from fedgranger.rounds import RoundState, measure
from fedgranger.server.granger import ServerState

LIMIT = 5.0
MOMENTS = np.eye(3)[None]


def state(theta, granger):
    return RoundState(
        AugmentState(jnp.full((1, 2, 3), theta)), ServerState(jnp.full((1, 2, 4), granger))
    )


def distances(error):
    """Distance after each pass when the relative error after pass k is `error(k)`."""
    progress, found = convergence.start(1), []
    for k in range(12):
        before, after = (state(*(LIMIT * (1 + error(j)),) * 2) for j in (k, k + 1))
        progress = measure(progress, before, after, MOMENTS)
        found.append(progress.distance)
    return found


@pytest.mark.parametrize("ratio", [0.2, 0.9, 0.99])
def test_geometric_convergence_is_measured_exactly(ratio):
    found = distances(lambda k: ratio**k)
    for k in range(convergence.NUM_RATIOS, 12):
        true = ratio ** (k + 1) / (1 + ratio ** (k + 1))
        assert found[k] == pytest.approx(true, rel=1e-6)


def test_fast_start_does_not_hide_a_slow_mode():
    """One ratio would say 1e-3 after the second pass, when the error is still 0.1."""
    found = distances(lambda k: 0.01**k + 0.1 * 0.98**k)
    for k in range(12):
        true = 0.01 ** (k + 1) + 0.1 * 0.98 ** (k + 1)
        assert found[k] > 0.2 * true / (1 + true)


def test_divergence_and_first_passes_are_infinite():
    assert distances(lambda k: 1.1**k)[-1] == np.inf
    assert distances(lambda k: 0.5**k)[: convergence.NUM_RATIOS] == [np.inf] * 3


def test_rest_is_zero():
    assert distances(lambda _: 0.3)[0] == 0.0


def test_theta_counts_through_the_corrections_it_makes():
    """A change of θ in a direction that the sensors never take has no size."""
    moments = np.diag([1.0, 1.0, 0.0])[None]
    theta = jnp.zeros((1, 2, 3)).at[:, :, 0].set(1.0)
    moved = theta.at[:, :, 2].set(100.0)
    granger = ServerState(jnp.ones((1, 2, 4)))
    before = RoundState(AugmentState(theta), granger)
    after = RoundState(AugmentState(moved), granger)
    assert measure(convergence.start(1), before, after, moments).distance == 0.0
