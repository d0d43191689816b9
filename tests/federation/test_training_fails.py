"""Rounds that run away between parties: said plainly, and the edges are tested all the same."""

import pytest

import fedgranger as fg
from fedgranger.federation import answers
from tests.configs import formula_config
from tests.federation.loopback_run import Federation

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def panel():
    return fg.simulate(3, 400, seed=1)[0]


@pytest.fixture(scope="module")
def alone(panel):
    return fg.fit(panel, config=formula_config(solver="none"))


def diverging(panel, folder):
    config = formula_config(solver="sgd", passes=20, window=10, server_step_size=5.0)
    return Federation(panel, folder, config).run()


def test_the_server_notices_that_rounds_diverge(tmp_path, panel, alone):
    """Before, the message that could not be sent ended the run, and nothing was tested."""
    found = diverging(panel, tmp_path)
    assert found.training.granger is None
    assert found.training.failure.startswith("the server's gradients grew beyond 1e+09")
    assert found.inference.edges.equals(alone.inference.edges)


def test_a_client_notices_that_its_parameters_diverge(tmp_path, panel, alone, monkeypatch):
    monkeypatch.setattr(answers, "LARGEST_NUMBER", 1e3)
    found = diverging(panel, tmp_path)
    assert found.training.granger is None
    assert "stopped FedGC's rounds" in found.training.failure
    assert found.inference.edges.equals(alone.inference.edges)
