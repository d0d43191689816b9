"""Ensembles of neural trainings: a member is a run, and noise is what spreads them."""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger_research.studies.neural_ensemble import COLUMNS, EnsembleOptions, run_ensemble
from tests.configs import SMALL_NETWORKS as CONFIG


@pytest.fixture(scope="module")
def panel():
    return fg.simulate(2, 102, state_dims=[1, 2], sensor_dims=[3, 4], seed=0)[0]


@pytest.mark.slow  # compiles an ensemble and a run
def test_a_member_without_noise_is_the_run(panel):
    """The mean over one round of the Jacobians, which the run has by sequence."""
    table = run_ensemble(panel, CONFIG, EnsembleOptions(num_members=2))
    assert list(table.columns) == COLUMNS
    assert np.abs(table["trace"]).max() < 1e-20
    result = fg.fit(panel, CONFIG)
    trace = result.jacobian
    inside = (trace.first_steps >= 40) & (trace.first_steps < 80)
    mean = trace.blocks[inside].mean(axis=0)
    last = table[table["round"] == 6].set_index(["client", "cause"])["strength"]
    assert last["client1", "client2"] == pytest.approx(np.linalg.norm(mean[:1, 1:]), rel=1e-8)
    assert last["client2", "client1"] == pytest.approx(np.linalg.norm(mean[1:, :1]), rel=1e-8)


def test_noise_of_either_kind_spreads_the_members(panel):
    by_data = run_ensemble(panel, CONFIG, EnsembleOptions(2, noise_var=0.5))
    assert (by_data[by_data["round"] > 0]["trace"] > 1e-12).all()
    small, large = (
        run_ensemble(panel, CONFIG, EnsembleOptions(2, weight_var=var))["trace"].sum()
        for var in (1e-6, 1e-2)
    )
    assert 100 * small < large
