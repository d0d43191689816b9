import numpy as np
import pytest

from fedgranger_research.baselines import dynotears, notears_admm
from fedgranger_research.baselines.graphs import drop_until_acyclic, is_acyclic
from fedgranger_research.baselines.lagged_design import split_columns, split_samples
from fedgranger_research.baselines.method_protocol import Post
from tests.graph_samples import (
    columns_of,
    f1_score,
    linear_samples,
    network_series,
    random_graph,
    random_weights,
)

STEADY = {"first_consensus_penalty": 1.0, "consensus_growth": 1.0, "consensus_tolerance": 1e-7}
"""ADMM as in the textbook: a penalty that does not grow does not freeze what is not done yet."""
SLOW = {
    **{"cycle_growth": 1.1, "consensus_growth": 1.02, "first_consensus_penalty": 0.1},
    **{"max_iterations": 1000, "consensus_tolerance": 1e-6},
}


def learned(design, **options):
    post = Post()
    return notears_admm.learn(design, {**notears_admm.DEFAULTS, **options}, post), post


def samples(seed, num_samples=6000):
    rng = np.random.default_rng(seed)
    edges, order = random_graph(rng, 8, 8)
    return linear_samples(rng, random_weights(rng, edges), num_samples), edges, order


@pytest.mark.parametrize(
    "seeds",
    # the other three of five graphs are slow: a third of a second each
    [(100, 101), pytest.param(range(100, 105), marks=pytest.mark.slow)],
    ids=["two", "five"],
)
def test_six_clients_recover_a_linear_graph(seeds):
    scores = []
    for seed in seeds:
        X, edges, _ = samples(seed)
        found, _ = learned(split_samples(np.split(X, 6)))
        graph = drop_until_acyclic(found.weights, 0.3)
        assert is_acyclic(graph)
        assert found.status == "converged"
        assert found.cycle_residual <= 1e-8
        assert found.consensus_residual <= 1e-5
        scores.append(f1_score(graph, edges))
    assert np.mean(scores) > 0.9  # 0.96 when this was written


def test_one_client_equals_notears_when_the_order_is_known():
    """A convex problem: both find its minimum, to 2e-5."""
    for seed in (100, 101):
        X, _, order = samples(seed)
        rank = np.argsort(order)
        design = split_samples([X])._replace(allowed=rank[:, None] < rank)
        central = dynotears.learn(design, {**dynotears.DEFAULTS, "present_sparsity": 0.02})
        found, _ = learned(design, sparsity=0.02, max_iterations=500, **STEADY)
        np.testing.assert_allclose(found.weights, central.weights, atol=2e-5)


@pytest.mark.slow  # penalties that grow slowly take a thousand iterations
def test_one_client_equals_notears_when_penalties_grow_slowly():
    """Not convex: to 0.01 where both end in the same minimum, in about two cases of three.

    With the original's growth (1.75, 1.25) the two are up to 1 apart: it freezes early.
    """
    for seed in (100, 104, 105):
        X, _, _ = samples(seed)
        design = split_samples([X])
        central = dynotears.learn(design, {**dynotears.DEFAULTS, "present_sparsity": 0.02})
        found, _ = learned(design, sparsity=0.02, **SLOW)
        np.testing.assert_allclose(found.weights, central.weights, atol=0.01)


def test_clients_that_share_data_equal_one_client():
    """Six copies of the same samples, each with a sixth of the weight."""
    X, _, order = samples(100, 500)
    rank = np.argsort(order)
    one, six = split_samples([X]), split_samples([X] * 6)
    known = rank[:, None] < rank
    alone, _ = learned(one._replace(allowed=known), max_iterations=500, **STEADY)
    together, _ = learned(
        six._replace(allowed=known),
        **{"max_iterations": 2000, "consensus_tolerance": 1e-7, "consensus_growth": 1.0},
        first_consensus_penalty=1.0 / 6,
    )
    np.testing.assert_allclose(together.weights, alone.weights, atol=2e-5)


def test_every_message_is_counted():
    X, _, _ = samples(100, 600)
    found, post = learned(split_samples(np.split(X, 3)))
    assert post.messages == 2 * 3 * found.num_iterations
    assert post.bytes_sent == post.messages * 8 * 8 * 8


def test_an_unfinished_run_is_called_so():
    X, _, _ = samples(100, 600)
    found, _ = learned(split_samples([X]), max_iterations=3)
    assert found.status == "stopped"
    assert max(found.cycle_residual, found.consensus_residual) > 1e-5


def test_time_order_is_kept():
    series = network_series(np.random.default_rng(0), np.zeros((3, 3)), 0.6 * np.eye(3), 600)
    design = split_columns(columns_of(series, (1, 2)), "horizontal")
    found, _ = learned(design)
    assert not found.weights[:3, 3:].any()
    free, _ = learned(split_columns(columns_of(series, (1, 2)), "horizontal", time_order=False))
    assert free.weights[:3, 3:].any()
