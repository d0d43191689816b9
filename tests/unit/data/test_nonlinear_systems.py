"""Nonlinear systems: the edges are those of the map, and what is not an option is refused."""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.data.nonlinear_systems import BURN_IN, draw_states
from fedgranger.data.simulation_options import DYNAMICS
from fedgranger.errors import ConfigError


@pytest.mark.parametrize("dynamics", DYNAMICS[1:])
def test_next_states_depend_on_the_causes_only(dynamics):
    """Blocks of the mean Jacobian that are not zero are edges of the truth."""
    clients = tuple("abcdef")
    states, truth = draw_states(dynamics, clients, 500, None, 3)
    assert np.isfinite(states).all()
    linked = {
        (cause, effect)
        for cause in clients
        for effect in clients
        if cause != effect and truth.block(effect, cause).any()
    }
    assert linked <= set(truth.edges)
    if dynamics in ("lorenz96", "lotka-volterra"):
        assert linked == set(truth.edges)
    assert len(truth.edges) == (18 if dynamics == "lorenz96" else 9)


def test_quadratic_edges_have_no_linear_part():
    states, truth = draw_states("quadratic", ("a", "b"), 60_000, 1, 0)
    cause, effect = truth.edges[0]
    x, y = states[:-1, truth.rows(cause)], states[1:, truth.rows(effect)]
    own = np.column_stack([np.ones(len(y)), states[:-1, truth.rows(effect)]])
    rest = y - own @ np.linalg.lstsq(own, y, rcond=None)[0]
    linear = np.corrcoef(x.T, rest.T)[:2, 2:]
    shapes = np.column_stack([x**2, x[:, 0] * x[:, 1]])
    even = np.corrcoef(shapes.T, rest.T)[:3, 3:]
    assert np.abs(linear).max() < 4 / np.sqrt(len(y))
    assert np.abs(even).max() > 20 / np.sqrt(len(y))


def test_lorenz96_moves_like_its_equation():
    states, truth = draw_states("lorenz96", tuple("abcdef"), 20_000, None, 0)
    h = states * np.sqrt(0.03)
    speed = (np.roll(h, -1, 1) - np.roll(h, 2, 1)) * np.roll(h, 1, 1) - h + 8
    tamed = 0.03 * speed / (1 + 0.03 * np.abs(speed))
    rest = h[1:] - h[:-1] - tamed[:-1]
    np.testing.assert_allclose(rest.std(axis=0), np.sqrt(0.03), rtol=0.03)
    assert np.abs(rest.mean(axis=0)).max() < 5 * np.sqrt(0.03 / len(rest))
    assert truth.edges[:3] == (("a", "b"), ("a", "c"), ("a", "f"))


def test_recorded_with_sensors_and_missing_rows():
    panel, truth = fg.simulate(
        4, 400, dynamics="lotka-volterra", sensor_dims=3, missing_share=0.1, seed=2
    )
    again, _ = fg.simulate(
        4, 400, dynamics="lotka-volterra", sensor_dims=3, missing_share=0.1, seed=2
    )
    for client, other in zip(panel.clients, again.clients, strict=True):
        np.testing.assert_array_equal(client.values, other.values)
        assert client.values.shape == (400, 3)
        assert 0.85 < client.observed.mean() < 0.95
    assert truth.process_cov is None
    assert BURN_IN >= 1000


def test_what_the_systems_do_not_know_is_refused():
    with pytest.raises(ConfigError, match="lorenz96 does not know 'dead_time'; leave it out"):
        fg.simulate(5, 100, dynamics="lorenz96", dead_time=2)
    with pytest.raises(ConfigError, match="it needs at least 4 on its ring"):
        fg.simulate(3, 100, dynamics="lorenz96")
    with pytest.raises(ConfigError, match="has edges of its own"):
        fg.simulate(5, 100, dynamics="lorenz96", edges=3)
    with pytest.raises(ConfigError, match="20 edges for 6 possible pairs"):
        fg.simulate(4, 100, dynamics="quadratic", edges=20)
    with pytest.raises(ConfigError, match="takes one number as 'edges'"):
        fg.simulate(4, 100, dynamics="quadratic", edges=[("client1", "client2")])
    with pytest.raises(ConfigError, match="use at least as many sensors"):
        fg.simulate(4, 100, dynamics="quadratic", sensor_dims=1)
    with pytest.raises(ConfigError, match="dynamics is 'chaos'"):
        fg.simulate(4, 100, dynamics="chaos")
