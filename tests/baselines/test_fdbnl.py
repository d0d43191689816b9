import numpy as np
import pytest

from fedgranger_research.baselines import dynotears, fdbnl
from fedgranger_research.baselines.graphs import is_acyclic
from fedgranger_research.baselines.lagged_design import split_columns
from fedgranger_research.baselines.method_protocol import Post
from tests.graph_samples import (
    columns_of,
    f1_score,
    network_series,
    random_graph,
    random_weights,
)

LASSO = {"present_sparsity": 0.02, "past_sparsity": 0.02}
STEADY = {
    **{"first_consensus_penalty": 1.0, "consensus_growth": 1.0},
    **{"max_iterations": 500, "consensus_tolerance": 1e-7},
}
SLOW = {
    **{"cycle_growth": 1.1, "consensus_growth": 1.02, "first_consensus_penalty": 0.1},
    **{"max_iterations": 1000, "consensus_tolerance": 1e-6},
}


def network(seed):
    """Columns of three clients, [W; A], and the order of the present."""
    rng = np.random.default_rng(seed)
    edges, order = random_graph(rng, 5, 4)
    present = random_weights(rng, edges, 0.4, 0.8)
    past = random_weights(rng, rng.uniform(size=(5, 5)) < 0.3, 0.3, 0.6)
    radius = np.abs(np.linalg.eigvals(past @ np.linalg.inv(np.eye(5) - present))).max()
    past *= min(1.0, 0.8 / radius)
    series = network_series(rng, present, past, 3000)
    return columns_of(series, (2, 2, 1)), np.vstack([present, past]), order


def learned(design, **options):
    return fdbnl.learn(design, {**fdbnl.DEFAULTS, **options}, Post())


def central(design, **options):
    return dynotears.learn(design, {**dynotears.DEFAULTS, **options})


@pytest.mark.parametrize(
    "seeds",
    # the other four of six networks are slow: half a second each
    [(201, 202), pytest.param(range(200, 206), marks=pytest.mark.slow)],
    ids=["two", "six"],
)
def test_both_recover_a_dynamic_network(seeds):
    federated, pooled = [], []
    for seed in seeds:
        columns, weights, _ = network(seed)
        found = learned(split_columns(columns, "horizontal"))
        one = central(split_columns(columns, "central"), **LASSO)
        for answer, scores in ((found, federated), (one, pooled)):
            edges = fdbnl.network_edges(answer.weights, 0.15)
            assert is_acyclic(edges[:5])
            assert answer.status == "converged"
            assert answer.cycle_residual <= 1e-8
            scores.append(f1_score(edges, weights != 0))
        assert found.consensus_residual <= 1e-5
    assert np.median(federated) == np.median(pooled) == 1.0
    assert np.mean(federated) > 0.9
    assert np.mean(pooled) > 0.9


def test_one_client_equals_dynotears_when_the_order_is_known():
    """A convex problem: both find its minimum, to 2e-5."""
    for seed in (200, 201):
        columns, _, order = network(seed)
        design, rank = split_columns(columns, "central"), np.argsort(order)
        design.allowed[:5, :5] &= rank[:, None] < rank
        found = learned(design, **LASSO, **STEADY)
        np.testing.assert_allclose(found.weights, central(design, **LASSO).weights, atol=2e-5)


def test_one_client_equals_dynotears_when_penalties_grow_slowly():
    """To 0.01; with the original's growth typically 0.02, at times another minimum."""
    columns, _, _ = network(200)
    design = split_columns(columns, "central")
    found = learned(design, **LASSO, **SLOW)
    np.testing.assert_allclose(found.weights, central(design, **LASSO).weights, atol=0.01)


def test_objective_gradient_vs_finite_differences():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    weights, direction = rng.normal(size=(2, 6, 3)) * 0.4
    terms = {"moments": root @ root.T, "cycle_dual": 0.3, "cycle_penalty": 1.7}
    step = 1e-6
    ahead, _ = dynotears.objective(weights + step * direction, **terms)
    behind, _ = dynotears.objective(weights - step * direction, **terms)
    _, gradient = dynotears.objective(weights, **terms)
    change = (ahead - behind) / (2 * step)
    np.testing.assert_allclose(change, np.sum(gradient * direction), rtol=1e-7)


def test_without_sparsity_and_present_edges_it_is_least_squares():
    columns, _, _ = network(200)
    design = split_columns(columns, "central")
    design.allowed[:5, :5] = False
    found = central(design, present_sparsity=0.0, past_sparsity=0.0)
    rows = design.shares[0].rows
    expected = np.linalg.lstsq(rows[:, 5:], rows[:, :5])[0]
    np.testing.assert_allclose(found.weights[5:], expected, atol=1e-5)


def test_a_vertical_client_learns_what_it_would_alone():
    """Nothing of other clients reaches it but the common schedule: equal to 1e-3."""
    columns, _, _ = network(200)
    together = learned(split_columns(columns, "vertical"), **SLOW)
    alone = columns._replace(
        names=columns.names[:1], series=columns.series[:1], error_covs=columns.error_covs[:1]
    )
    single = learned(split_columns(alone, "vertical"), **SLOW)
    places = [0, 1, 5, 6]
    np.testing.assert_allclose(together.weights[places][:, :2], single.weights, atol=1e-3)
