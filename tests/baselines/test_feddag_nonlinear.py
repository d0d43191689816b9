import jax.numpy as jnp
import numpy as np
import pytest

from fedgranger_research.baselines import feddag_nonlinear
from fedgranger_research.baselines.graphs import drop_until_acyclic, is_acyclic
from fedgranger_research.baselines.lagged_design import split_columns, split_samples
from fedgranger_research.baselines.masked_networks import draw_networks, predict
from fedgranger_research.baselines.method_protocol import Post
from tests.graph_samples import columns_of, f1_score, nonlinear_samples, random_graph

QUICK = {"steps_per_average": 20, "averages_per_iteration": 2, "max_iterations": 2}


def learned(design, shares_all, **options):
    post = Post()
    given = {**feddag_nonlinear.DEFAULTS, **options}
    return feddag_nonlinear.learn(design, given, post, shares_all=shares_all), post


@pytest.mark.slow  # six fits of networks
@pytest.mark.parametrize("shares_all", [False, True])
def test_three_clients_recover_a_nonlinear_graph(shares_all):
    scores = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        edges, order = random_graph(rng, 6, 5)
        X = nonlinear_samples(rng, edges, order, 1800)
        found, _ = learned(split_samples(np.split(X, 3)), shares_all)
        graph = drop_until_acyclic(found.weights, 0.5)
        assert is_acyclic(graph)
        assert found.status == "converged"
        assert found.cycle_residual <= 1e-8
        scores.append(f1_score(graph, edges))
    assert np.mean(scores) > 0.8


def test_an_effect_depends_on_what_its_mask_lets_through():
    networks = draw_networks(np.random.default_rng(0), 3)
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)), dtype=jnp.float32)
    mask = jnp.zeros((3, 3), dtype=jnp.float32).at[1, 0].set(1.0)
    before = predict(networks, mask, rows)
    other = predict(networks, mask, rows.at[:, [0, 2]].set(7.0))
    np.testing.assert_array_equal(before, other)
    changed = predict(networks, mask, rows.at[:, 1].set(7.0))
    assert not np.allclose(before[0], changed[0])
    np.testing.assert_array_equal(before[1:], changed[1:])


def series(seed=0):
    return np.random.default_rng(seed).normal(size=(80, 3))


def test_vertical_gs_and_as_differ_in_their_messages_only():
    design = split_columns(columns_of(series(), (1, 2)), "vertical")
    graph, few = learned(design, False, **QUICK)
    everything, many = learned(design, True, **QUICK)
    np.testing.assert_array_equal(graph.weights, everything.weights)
    assert not graph.weights[~design.allowed].any()
    assert few.messages == many.messages == 2 * 2 * 4
    assert many.bytes_sent > 10 * few.bytes_sent


def test_horizontal_gs_and_as_differ():
    design = split_columns(columns_of(series(), (1, 2)), "horizontal")
    graph, _ = learned(design, False, **QUICK)
    everything, _ = learned(design, True, **QUICK)
    assert not np.array_equal(graph.weights, everything.weights)
    assert not graph.weights[:3, 3:].any()
