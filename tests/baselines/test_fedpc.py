import networkx
import numpy as np
import pytest

from fedgranger_research.baselines import fedpc
from fedgranger_research.baselines.graphs import is_acyclic
from fedgranger_research.baselines.independence import run_layer
from fedgranger_research.baselines.lagged_design import split_columns, split_samples
from fedgranger_research.baselines.method_protocol import BaselineError, Post
from fedgranger_research.baselines.orientation import apply_meek, orient
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
    return fedpc.learn(design, {**fedpc.DEFAULTS, **options}, post), post


def colliders(edges):
    """Triples i → k ← j without an edge between i and j."""
    joined = edges | edges.T
    return {
        (i, k, j)
        for k in range(len(edges))
        for i in np.flatnonzero(edges[:, k])
        for j in np.flatnonzero(edges[:, k])
        if i < j and not joined[i, j]
    }


def separators(edges):
    """A set that separates each pair: the causes of the one that is not an ancestor."""
    graph = networkx.from_numpy_array(edges, create_using=networkx.DiGraph)

    def of(i, j):
        later = i if j in networkx.ancestors(graph, i) else j
        return np.array(sorted(graph.predecessors(later)))

    return of


def test_orientation_gives_an_equivalent_graph():
    rng = np.random.default_rng(0)
    for _ in range(60):
        edges, _ = random_graph(rng, 7, int(rng.integers(5, 13)))
        found = orient(edges | edges.T, separators(edges))
        assert is_acyclic(found)
        np.testing.assert_array_equal(found | found.T, edges | edges.T)
        assert colliders(found) == colliders(edges)


def test_orientation_keeps_known_directions():
    """Half of the edges are known; the answer is the truth there, and equivalent elsewhere."""
    rng = np.random.default_rng(1)
    for _ in range(60):
        edges, _ = random_graph(rng, 7, 10)
        known = edges & (rng.uniform(size=edges.shape) < 0.5)
        found = orient((edges | edges.T) & ~known.T, separators(edges))
        assert (found | ~known).all()
        assert is_acyclic(found)
        assert colliders(found) == colliders(edges)


def test_orientation_of_contradictions_is_acyclic():
    rng = np.random.default_rng(2)
    for _ in range(60):
        joined = np.triu(rng.uniform(size=(7, 7)) < 0.4, 1)
        found = orient(joined | joined.T, lambda i, j: np.array([], dtype=int))
        assert is_acyclic(found)
        np.testing.assert_array_equal(found | found.T, joined | joined.T)


@pytest.mark.parametrize(
    ("arrows", "lines"),
    [
        ("ca", "ab"),  # away from a collider
        ("ac cb", "ab"),  # no cycle
        ("cb db", "ab ac ad"),  # two ways round
        ("cd db", "ab ac ad"),  # the long way round, with known directions
    ],
)
def test_each_of_meeks_rules_directs_a_to_b(arrows, lines):
    mark = np.zeros((4, 4), dtype=bool)
    for cause, effect in arrows.split():
        mark["abcd".index(cause), "abcd".index(effect)] = True
    for first, second in lines.split():
        ends = "abcd".index(first), "abcd".index(second)
        mark[ends] = mark[ends[::-1]] = True
    assert apply_meek(mark)
    assert mark[0, 1]
    assert not mark[1, 0]


@pytest.mark.parametrize("set_size", [0, 1, 2, 3])
def test_layer_vs_residuals(set_size):
    """The partial correlation is that of residuals; of all sets the smallest is kept."""
    X = linear_samples(np.random.default_rng(3), np.triu(np.full((6, 6), 0.5), 1), 200)
    X = X - X.mean(axis=0)
    everyone = ~np.eye(6, dtype=bool)
    layer = run_layer(np.corrcoef(X.T), 200, everyone, np.zeros(6, dtype=int), set_size, 3, "a")
    i, j = 1, 4
    chosen = layer.separator[i, j][:set_size]
    assert (layer.separator[i, j][set_size:] == -1).all()
    assert not {i, j} & set(chosen)
    sizes = {}
    for first in range(6):
        for second in range(6):
            for third in range(6):
                S = tuple(sorted({first, second, third}))[:set_size]
                if len(S) == set_size and not {i, j} & set(S):
                    left = X[:, [i, j]]
                    if S:
                        left = left - X[:, S] @ np.linalg.lstsq(X[:, S], left)[0]
                    sizes[S] = abs(np.corrcoef(left.T)[0, 1])
    assert tuple(chosen) == min(sizes, key=sizes.__getitem__)
    np.testing.assert_allclose(layer.correlation[i, j], min(sizes.values()), rtol=1e-9)
    z = np.sqrt(200 - set_size - 3) * np.arctanh(min(sizes.values()))
    np.testing.assert_allclose(layer.statistic[j, i], z, rtol=1e-9)


def test_six_clients_recover_a_skeleton_and_its_class():
    scores, equivalent = [], 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        edges, _ = random_graph(rng, 8, 7)
        X = linear_samples(rng, random_weights(rng, edges, 0.5, 1.0), 12000)
        found, post = learned(split_samples(np.split(X, 6)))
        assert is_acyclic(found.edges)
        assert post.messages == 2 * 6 * 4
        scores.append(f1_score(found.skeleton, edges | edges.T))
        if (found.skeleton == (edges | edges.T)).all():
            equivalent += colliders(found.edges) == colliders(edges)
    assert np.mean(scores) > 0.95
    assert equivalent >= 6


@pytest.mark.parametrize(("num_clients", "needed"), [(1, 1), (3, 1), (6, 2), (10, 3)])
def test_votes_that_keep_an_edge(num_clients, needed):
    """An edge in so many clients' data is kept, in one fewer it is not."""
    rng = np.random.default_rng(4)
    for holders in (needed - 1, needed):
        parts = list(rng.normal(size=(num_clients, 5000, 2)))
        for k in range(holders):
            parts[k][:, 1] += parts[k][:, 0]
        for k in range(holders, num_clients):  # exactly uncorrelated
            left = parts[k] - parts[k].mean(axis=0)
            left[:, 1] -= left[:, 0] * (left[:, 0] @ left[:, 1]) / (left[:, 0] @ left[:, 0])
            parts[k] = left
        found, _ = learned(split_samples(parts))
        assert found.skeleton.any() == (holders == needed)
        assert (found.strength[0, 1] > 2.5758) == (holders == needed)


def test_time_order_directs_past_to_present():
    past = np.array([[0.6, 0.5, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.7]])
    series = network_series(np.random.default_rng(0), np.zeros((3, 3)), past, 4000)
    design = split_columns(columns_of(series, (2, 1)), "horizontal")
    found, _ = learned(design)
    assert not found.edges[:3, 3:].any()
    np.testing.assert_array_equal(found.edges[3:, :3], past != 0)


def test_dependent_columns_are_refused():
    X = np.random.default_rng(0).integers(-3, 4, size=(50, 2)).astype(float)
    with pytest.raises(BaselineError, match="client 'client1': some of its columns are linear"):
        learned(split_samples([np.column_stack([X, X[:, 0]])]))
    with pytest.raises(BaselineError, match="level is 2"):
        learned(split_samples([X]), level=2)


def test_a_column_that_one_client_sees_constant_gets_no_vote_of_it():
    rng = np.random.default_rng(5)
    first, second = rng.normal(size=(2, 500, 2))
    first[:, 1] = first[:, 0] + rng.normal(size=500)
    second[:, 1] = 4.0
    found, _ = learned(split_samples([first, second]), vote_share=1.0)
    assert not found.skeleton.any()
    found, _ = learned(split_samples([first, second]))
    assert found.skeleton[0, 1]
