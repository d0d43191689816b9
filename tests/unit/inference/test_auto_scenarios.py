"""What recordings bring with them, one data set each, through the default way of a fit."""

import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app
from fedgranger.inference.arrivals import late_arrivals
from fedgranger_research.studies.calibration_trials import Setting, run_data_set, summarise

CONFIG = fg.RunConfig(solver="none", copies=20, state_dim=2)


def fitted(**options):
    panel, truth = fg.simulate(3, 800, edges=[("client1", "client2")], seed=1, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fg.fit(panel, config=CONFIG), truth


def test_units_do_not_matter():
    plain, _ = fitted()
    for factor in (1e5, 1e-5):
        other, _ = fitted(unit_factor=factor)
        assert other.inference.facts["test"] == plain.inference.facts["test"]
        for estimate in ("debiased", "readings"):
            one, two = plain.edges(estimate=estimate), other.edges(estimate=estimate)
            for name in ("statistic", "p_value", "q_value"):
                np.testing.assert_allclose(one[name], two[name], rtol=1e-8, err_msg=name)


def test_dead_time_is_found_and_shown(tmp_path):
    result, truth = fitted(dead_time=6)
    found = result.edges(sort=True).iloc[0]
    assert (found["cause"], found["effect"]) == truth.edges[0]
    assert found["delay"] == 7  # one step, and six more
    answers = (result.inference.facts, result.inference.beside.facts)
    scores = next(facts["lag_criterion"] for facts in answers if facts["test"] == "debiased")
    assert list(scores)[:2] == ["1", "2"]
    readings = next(facts for facts in answers if facts["test"] == "readings")
    late = readings["late_arrivals"][0]
    assert (late["cause"], late["effect"], late["steps"]) == ("client1", "client2", 7)
    result.save(tmp_path / "run")
    done = CliRunner().invoke(app, ["diagnose", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    text = " ".join(done.output.split())
    if result.inference.facts["test"] == "readings":
        assert "something of client1's at client2 7 steps later" in text
    else:
        assert "lag criterion" in text


def test_late_arrivals_are_the_clearest_lag_of_each_pair():
    p = np.full((3, 2, 2), 0.5)
    p[1, 1, 0], p[2, 1, 0] = 1e-9, 1e-6
    p[:, 0, 0] = 0.0  # a client's own lags are not between two
    assert late_arrivals(p, ("a", "b"), 4) == [
        {"cause": "a", "effect": "b", "steps": 5, "p_value": 1e-9}
    ]
    assert late_arrivals(p[:0], ("a", "b"), 4) == []


@pytest.mark.slow  # a study of several fits
def test_a_study_records_delays_untested_pairs_and_which_test_was_taken():
    record = run_data_set(Setting("outagehub10", 600, options={"test": "auto", "copies": 20}), 1)
    found = summarise([record, record._replace(is_latent=not record.is_latent)])
    assert found.latent == 0.5
    assert found.untested == 0
    assert found.delay_right == 1


@pytest.mark.slow  # 40 fits for each scenario
@pytest.mark.parametrize(
    "scenario", ["outagehub10", "outagehub50", "gaps20", "loop1", "loop3", "deadtime6", "daily"]
)
def test_size_through_auto(scenario):
    """40 data sets: within 3 Monte Carlo errors of 3 to 8 %."""
    setting = Setting(scenario, 2000, options={"test": "auto"})
    found = summarise([run_data_set(setting, seed) for seed in range(2000, 2040)])
    assert 0.03 - 3 * found.edge_size_se <= found.edge_size <= 0.08 + 3 * found.edge_size_se
    assert found.edge_power > 0.95
    assert found.num_refused == 0
