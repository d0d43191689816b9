import subprocess
import sys

import numpy as np
import pytest

from fedgranger_research.baselines.federated_methods import METHODS
from fedgranger_research.baselines.method_protocol import BaselineError, EdgeScores
from tests.graph_samples import columns_of, fit_method, network_series

QUICK = {
    "feddag": {"max_iterations": 2},
    "feddag-gs": {"max_iterations": 1, "averages_per_iteration": 1, "steps_per_average": 10},
}
"""Less training for what is trained: here only the form of the answer is checked."""
NETWORKS = [name for name in METHODS if "-gs" in name or "-as" in name]


def options_for(name):
    if name in NETWORKS:
        return QUICK["feddag-gs"]
    return QUICK["feddag"] if name.startswith("feddag") else {}


@pytest.fixture(scope="module")
def columns():
    past = np.diag([0.7, 0.5, 0.6, 0.4]) + np.diag([0.5, 0.0, 0.5], 1)
    series = network_series(np.random.default_rng(0), np.zeros((4, 4)), past, 900)
    return columns_of(series, (1, 2, 1), starts=(0, 400))


@pytest.mark.parametrize("name", METHODS)
def test_every_method_gives_what_the_protocol_asks(name, columns):
    method = METHODS[name]
    assert method.mode in ("vertical", "horizontal", "central")
    assert method.words
    before = [part.copy() for part in columns.series]
    found = fit_method(name, columns, **options_for(name))
    assert isinstance(found, EdgeScores)
    assert found.score.shape == found.is_edge.shape == (4, 4)
    assert found.client_score.shape == found.is_client_edge.shape == (3, 3)
    assert found.is_edge.dtype == found.is_client_edge.dtype == bool
    assert np.isfinite(found.score).all()
    assert (found.score >= 0).all()
    assert found.status in ("converged", "stopped", "direct")
    assert np.isnan(found.residual) == (found.status == "direct")
    assert (found.bytes_sent > 0) == (found.messages > 0) == (method.mode != "central")
    for part, copy in zip(columns.series, before, strict=True):
        np.testing.assert_array_equal(part, copy)


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].mode == "vertical"])
def test_a_vertical_method_is_silent_across_clients(name, columns):
    found = fit_method(name, columns, **options_for(name))
    owner = np.array([0, 1, 1, 2])
    across = owner[:, None] != owner
    assert not found.score[across].any()
    assert not found.is_edge[across].any()
    assert found.score[~across].any()


@pytest.mark.parametrize("name", [name for name in METHODS if name not in NETWORKS])
def test_a_method_repeats_itself(name, columns):
    first, second = (fit_method(name, columns, **options_for(name)) for _ in range(2))
    np.testing.assert_array_equal(first.score, second.score)


@pytest.mark.parametrize("name", ["notears-admm", "fdbnl", "fedpc", "feddag"])
def test_horizontal_beats_vertical_on_an_edge_across(name, columns):
    """Column 1 of client 1 drives column 1 of client 2; only who holds both can see it."""
    options = {"max_iterations": 20} if name == "feddag" else {}
    found = fit_method(f"{name}-horizontal", columns, **options)
    assert found.is_edge[1, 0]
    assert found.is_client_edge[1, 0]
    assert found.client_score[1, 0] > 3 * found.client_score[0, 1]


def test_unknown_methods_and_options_are_refused(columns):
    with pytest.raises(BaselineError, match="no method 'pc'; there are notears-admm,"):
        fit_method("pc", columns)
    with pytest.raises(BaselineError, match="no option 'lambda'; this method has level, vote"):
        fit_method("fedpc", columns, **{"lambda": 1})


def test_names_cost_no_imports():
    code = (
        "import sys; from fedgranger_research.baselines.federated_methods import METHODS;"
        "list(METHODS);"
        "print('jax' in sys.modules, 'scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
