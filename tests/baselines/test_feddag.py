import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedgranger_research.baselines import feddag
from fedgranger_research.baselines.graphs import cyclicity, drop_until_acyclic, is_acyclic
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


def learned(design, **options):
    post = Post()
    return feddag.learn(design, {**feddag.DEFAULTS, **options}, post), post


@pytest.mark.parametrize(
    "seeds",
    # two further graphs of the same kind are slow: a second each
    [(100,), pytest.param(range(100, 103), marks=pytest.mark.slow)],
    ids=["one", "three"],
)
def test_six_clients_recover_a_linear_graph(seeds):
    scores = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        edges, _ = random_graph(rng, 8, 8)
        X = linear_samples(rng, random_weights(rng, edges), 6000)
        found, _ = learned(split_samples(np.split(X, 6)))
        graph = drop_until_acyclic(found.weights, 0.3)
        assert is_acyclic(graph)
        assert found.cycle_residual < 1e-7
        scores.append(f1_score(graph, edges))
    assert np.mean(scores) > 0.9


@pytest.mark.slow  # a fit to its end; its graph is acyclic in a fast test
def test_cycles_get_fewer_with_every_iteration():
    rng = np.random.default_rng(100)
    edges, _ = random_graph(rng, 8, 8)
    design = split_samples(np.split(linear_samples(rng, random_weights(rng, edges), 600), 3))
    residuals = [
        learned(design, max_iterations=count)[0].cycle_residual for count in (1, 4, 8, 12, 16)
    ]
    assert (np.diff(residuals) < 0).all()
    assert residuals[-1] < 1e-5 * residuals[0]


def test_client_loss_vs_samples():
    rng = np.random.default_rng(1)
    X, W = rng.normal(size=(50, 4)), 0.4 * rng.normal(size=(4, 4))
    terms = {"sparsity": 0.2, "dual": 0.3, "penalty": 0.7}
    message = {name: jnp.asarray(value) for name, value in terms.items()}
    loss = feddag.client_loss(jnp.asarray(W), jnp.asarray(X.T @ X / 50), message)
    h, _ = cyclicity(W)
    residual = X - X @ W
    expected = 0.5 * np.sum(residual**2) / 50 + 0.2 * np.abs(W).sum() + 0.3 * h + 0.35 * h * h
    np.testing.assert_allclose(loss, expected, rtol=1e-12)


def test_a_client_sees_its_own_data_only():
    """Another client's moments do not change what it answers."""
    rng = np.random.default_rng(2)
    moments = np.array([np.cov(rng.normal(size=(4, 90))) for _ in range(3)])
    other = moments.copy()
    other[1:] *= 3.0
    terms = {"sparsity": 0.1, "dual": 0.0, "penalty": 1.0, "step_size": 1e-2}
    message = {name: jnp.asarray(value) for name, value in terms.items()}
    allowed = jnp.asarray(np.broadcast_to(1.0 - np.eye(4), (3, 4, 4)))
    start = jnp.zeros((3, 4, 4))
    states = jax.vmap(feddag.adam_init)(start)
    answers = [
        feddag.train_clients(start, states, jnp.asarray(S), allowed, message, 50)[0]
        for S in (moments, other)
    ]
    np.testing.assert_array_equal(answers[0][0], answers[1][0])
    assert not np.allclose(answers[0][1], answers[1][1])


def test_clients_of_unequal_width_and_time_order():
    series = network_series(np.random.default_rng(0), np.zeros((3, 3)), 0.6 * np.eye(3), 600)
    design = split_columns(columns_of(series, (1, 2)), "vertical")
    found, post = learned(design, max_iterations=1)
    assert not found.weights[~design.allowed].any()
    np.testing.assert_allclose(np.diag(design.lagged(found.weights)), 0.5, atol=0.12)
    # five averages; down: W, α, ρ; up: W
    assert post.bytes_sent == 5 * (2 * 8 * (2**2 + 4**2) + 2 * 16)
