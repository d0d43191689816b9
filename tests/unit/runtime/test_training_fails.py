"""Training that diverges is said plainly, never called converged, and does not stop the tests."""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.errors import ConvergenceWarning, DataError, UnstableRecursionError
from fedgranger.runtime import stepwise
from fedgranger.runtime.inprocess import TraceRow
from fedgranger.runtime.setup import set_up
from tests.configs import formula_config


@pytest.fixture(scope="module")
def panel():
    return fg.simulate(3, 400, seed=1)[0]


@pytest.fixture
def growing(monkeypatch):
    """Training whose loss grows by ten from chunk to chunk."""
    right = stepwise.train

    def train(*given):
        for k, (snapshot, row) in enumerate(right(*given)):
            yield snapshot, row._replace(server_loss=row.server_loss * 10.0**k)

    monkeypatch.setattr(stepwise, "train", train)


@pytest.mark.usefixtures("growing")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_edges_are_those_of_a_run_without_training(panel):
    config = formula_config(solver="sgd", window=10)
    with pytest.warns(ConvergenceWarning, match="training failed"):
        found = fg.fit(panel, config=config)
    alone = fg.fit(panel, config=formula_config(solver="none"))
    assert found.inference.edges.equals(alone.inference.edges)
    assert found.granger is None
    training = found.manifest["training"]
    assert training["converged"] is False
    assert training["status"].startswith("training failed: client '")
    assert training["status"].endswith("; the edge tests do not need it")


@pytest.mark.usefixtures("growing")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_asymptotic_test_needs_training(panel):
    config = formula_config(solver="sgd", window=10, test="asymptotic")
    found = fg.fit(panel, config=config)
    assert found.inference is None
    assert "needs FedGC's training, which failed" in found.manifest["inference"]["reason"]
    assert "do not need it" not in found.manifest["training"]["status"]


def test_a_growing_loss_ends_training(panel):
    setup = set_up(panel, formula_config())
    first, later = (
        TraceRow(0, k, np.ones(3), np.array([1.0, 1.0, size])) for k, size in ((0, 1), (1, 2e3))
    )
    stepwise._check_losses(setup, [first, first])
    with pytest.raises(
        UnstableRecursionError, match="client 'client3': its loss grew from 2 to 2e"
    ):
        stepwise._check_losses(setup, [first, later])


def test_data_that_are_too_short_for_a_row_are_refused():
    panel = fg.simulate(3, 12, seed=1)[0]
    config = formula_config(solver="newton", state_dim=2, test="none")
    with pytest.raises(DataError, match=r"client 'client1': \d+ usable rows for 12 parameters"):
        fg.fit(panel, config=config)
