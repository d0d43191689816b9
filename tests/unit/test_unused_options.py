"""Options that the run would not look at are refused where people give them, and nowhere else."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app
from fedgranger.config import RunConfig
from fedgranger.errors import ConfigError
from fedgranger.unused_options import refuse_unused


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"transition": "gp", "solver": "newton"}, "with solver='neural', and this run has solver"),
        ({"batch_steps": 8}, "only with solver='neural', and this run has solver='auto'"),
        ({"window": 5, "solver": "newton"}, "with solver='sgd', and this run has solver='newton'"),
        ({"tolerance": 1e-6, "solver": "newton"}, "tolerance=1e-06 would do nothing"),
        ({"passes": 7, "solver": "none"}, "with solver='sgd' or 'newton'"),
        ({"granger_ridge": 1.0, "solver": "neural"}, "granger_ridge=1.0 would do nothing"),
        ({"prior": "uniform", "solver": "none"}, "with a solver other than 'none'"),
        ({"prior_df": 9.0}, "with prior='student-t'"),
        ({"test": "readings", "nonlinear_regression": "boosting"}, "with test='nonlinear', and"),
        ({"test": "readings", "hac": "andrews"}, "with test='auto' or 'debiased'"),
        ({"covariance": "homoskedastic", "hac": "andrews"}, "with covariance='sandwich'"),
        ({"test": "none", "time_windows": 4}, "with a test of states"),
        ({"test": "none", "weighting": "regime"}, "with a test, and this run has test='none'"),
        ({"weighting_span": 7}, "with weighting='ewma', 'window', 'periodic' or 'regime'"),
        (
            {"regime_start": "50", "weighting": "ewma", "weighting_span": 9},
            "regime_start='50' would do nothing: it counts only with weighting='regime', and this "
            "run has weighting='ewma'; leave it out or choose that",
        ),
        ({"epsilon": 1.0}, "with privacy='to-server' or 'to-clients'"),
        ({"privacy": "to-server", "neighbour_steps": 3}, "with neighbours='window'"),
        ({"season": "profile", "period": "none"}, "with a period"),
        ({"max_state_dim": 2, "state_dim": 1}, "with state_dim='auto'"),
    ],
)
def test_what_would_do_nothing_is_one_sentence(options, words):
    config = RunConfig.from_mapping(options)  # as a run folder's config.toml is read
    with pytest.raises(ConfigError, match="would do nothing: it counts only") as caught:
        refuse_unused(config)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"window": 5},
        {"window": "full", "solver": "newton"},
        {"step_safety": 0.9, "solver": "newton", "test": "asymptotic"},
        {"tolerance": 0, "solver": "newton"},
        {"passes": 7, "solver": "newton"},
        {"solver": "neural", "transition": "gp", "prior": "uniform"},
        {"test": "readings", "hac": "andrews", "time_windows": 3},
        {"weighting": "regime", "regime_start": "50", "weighting_span": 7},
        {"privacy": "to-server", "neighbours": "window", "neighbour_steps": 3},
        {"max_state_dim": 2, "state_dim": {"a": 1}},
    ],
)
def test_what_counts_passes(options):
    config = RunConfig.from_mapping(options)
    assert refuse_unused(config) == config


def test_a_run_and_the_command_refuse_it(tmp_path):
    panel, _ = fg.simulate(2, 60, seed=1)
    for options in ({"regime_start": "50"}, {"config": RunConfig(regime_start="50")}):
        with pytest.raises(ConfigError, match="regime_start='50' would do nothing"):
            fg.fit(panel, **options)
    panel.write(tmp_path / "data")
    words = ["fit", str(tmp_path / "data"), "--out", str(tmp_path / "run"), "--transition", "gp"]
    done = CliRunner().invoke(app, words, env={"COLUMNS": "300"})
    assert done.exit_code == 2
    assert "transition='gp' would do nothing" in done.output
    assert not (tmp_path / "run").exists()


def test_a_folder_of_a_run_that_was_given_one_stays_readable(tmp_path):
    panel, _ = fg.simulate(2, 120, seed=1)
    result = fg.fit(panel, test="none", state_dim=1, period="none")
    old = replace(result.config, regime_start="50", weighting_span=7, transition="gp")
    replace(result, config=old).save(tmp_path / "run")
    assert fg.Result.load(tmp_path / "run").config == old
