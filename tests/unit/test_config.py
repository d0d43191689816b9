"""Every option is checked once, with a sentence that names it."""

import math
import tomllib
from dataclasses import fields, replace

import numpy as np
import pytest
import tomli_w

from fedgranger.config import RunConfig, read_toml
from fedgranger.edge_test_kinds import CORRECTIONS, HAC_RULES
from fedgranger.errors import ConfigError
from fedgranger.inference.covariance import hac_weights
from fedgranger.inference.decision import adjust

FULL = RunConfig(
    state_model="ppca",
    state_dim={"pump": 2, "Kühler 3": 1},
    max_state_dim=3,
    standardise=False,
    period=(24, "7 d"),
    season="profile",
    noise_correction=False,
    solver="newton",
    window=16,
    passes=7,
    tolerance=0.0,
    local_step_size=0.01,
    feedback_step_size=0.25,
    server_step_size=1,
    step_safety=0.9,
    transition="gp",
    network_passes=3,
    batch_steps=100,
    sequence_steps=8,
    client_hidden_dim=16,
    server_hidden_dim=64,
    client_learning_rate=1e-3,
    server_learning_rate=1e-3,
    next_state_weight=1.0,
    augmentation_ridge=0.1,
    granger_ridge=0.2,
    couplings=(("pump", "Kühler 3"),),
    prior="student-t",
    prior_df=4.5,
    augmentation_prior_location=-1.0,
    augmentation_prior_scale=0.3,
    granger_prior_location=2.5,
    granger_prior_scale=0.0,
    seed=11,
    test="none",
    alpha=0.01,
    correction="holm",
    confidence=0.9,
    lags=2,
    max_lags=3,
    copies=40,
    nonlinear_regression="boosting",
    covariance="homoskedastic",
    hac="andrews",
    weighting="ewma",
    weighting_span=500,
    regime_start="2026-03-01",
    time_windows=6,
    uncertainty="joint",
    epsilon=2.0,
    delta=1e-6,
    added_noise=0.3,
    neighbours="window",
    neighbour_steps=5,
    clip=3.0,
    private_rounds=4,
)
PRIVATE = replace(FULL, privacy="to-clients", uncertainty="none")
"""No run has noise and uncertainty along training."""


def test_full_example_leaves_no_option_at_its_default():
    default = RunConfig()
    for field in fields(RunConfig):
        example = PRIVATE if field.name == "privacy" else FULL
        assert getattr(example, field.name) != getattr(default, field.name), field.name
    assert RunConfig.from_mapping(PRIVATE.to_mapping()) == PRIVATE


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(),
        FULL,
        RunConfig(window="full", couplings=()),
        RunConfig(state_dim=3),
        RunConfig(lags=4, weighting="window", weighting_span=1),
    ],
    ids=["default", "all options", "no couplings", "one state_dim", "lags and window"],
)
def test_toml_round_trip(config, tmp_path):
    path = tmp_path / "run.toml"
    path.write_bytes(config.to_toml().encode())
    assert RunConfig.from_mapping(read_toml(path)) == config
    assert tomllib.loads(config.to_toml()) == config.to_tables()
    path.write_text(tomli_w.dumps(config.to_mapping()))  # tables are not needed
    assert RunConfig.from_mapping(read_toml(path)) == config


def test_state_dim_of_client():
    assert FULL.state_dim_of("pump") == 2
    assert FULL.state_dim_of("other") == "auto"
    assert RunConfig(state_dim=3).state_dim_of("pump") == 3
    assert RunConfig().state_dim_of("pump") == "auto"


WHOLE = "it must be a whole number of at least"
NUMBER = "it must be a finite number"
BETWEEN = "it must lie between 0 and 1 (exclusive)"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "state_model",
            "factr",
            "state_model is 'factr'; choose one of auto, factor, ppca, svd, paper "
            "(did you mean 'factor'?)",
        ),
        ("state_dim", 0, f"state_dim is 0; {WHOLE} 1 or 'auto'"),
        ("state_dim", True, f"state_dim is True; {WHOLE} 1 or 'auto'"),
        ("state_dim", 2.0, f"state_dim is 2.0; {WHOLE} 1 or 'auto'"),
        ("state_dim", "two", f"state_dim is 'two'; {WHOLE} 1 or 'auto'"),
        ("state_dim", {"pump": 0}, f"state_dim of client 'pump' is 0; {WHOLE} 1"),
        ("state_dim", {"pump": "auto"}, f"state_dim of client 'pump' is 'auto'; {WHOLE} 1"),
        ("max_state_dim", 0, f"max_state_dim is 0; {WHOLE} 1"),
        ("standardise", 1, "standardise is 1; it must be true or false"),
        ("standardise", "no", "standardise is 'no'; it must be true or false"),
        ("noise_correction", "no", "noise_correction is 'no'; it must be true or false"),
        ("window", 0, f"window is 0; {WHOLE} 1 or 'full'"),
        ("window", "all", f"window is 'all'; {WHOLE} 1 or 'full'"),
        ("passes", 0, f"passes is 0; {WHOLE} 1"),
        ("passes", 1.5, f"passes is 1.5; {WHOLE} 1"),
        ("seed", -1, f"seed is -1; {WHOLE} 0"),
        ("local_step_size", -0.1, "local_step_size is -0.1; it must be at least 0"),
        ("local_step_size", "big", f"local_step_size is 'big'; {NUMBER} or 'auto'"),
        ("feedback_step_size", math.nan, f"feedback_step_size is nan; {NUMBER} or 'auto'"),
        ("server_step_size", math.inf, f"server_step_size is inf; {NUMBER} or 'auto'"),
        ("server_step_size", True, f"server_step_size is True; {NUMBER} or 'auto'"),
        ("tolerance", -1e-9, "tolerance is -1e-09; it must be at least 0"),
        ("tolerance", None, f"tolerance is None; {NUMBER}"),
        ("augmentation_ridge", -1, "augmentation_ridge is -1; it must be at least 0"),
        ("granger_ridge", -1, "granger_ridge is -1; it must be at least 0"),
        ("augmentation_prior_scale", -1, "augmentation_prior_scale is -1; it must be at least 0"),
        ("granger_prior_scale", -1, "granger_prior_scale is -1; it must be at least 0"),
        ("prior_df", -3.0, "prior_df is -3.0; it must be at least 0"),
        ("augmentation_prior_location", "0", f"augmentation_prior_location is '0'; {NUMBER}"),
        ("granger_prior_location", math.inf, f"granger_prior_location is inf; {NUMBER}"),
        ("step_safety", 0, "step_safety is 0; it must lie between 0 and 1 (exclusive)"),
        ("step_safety", 1.0, "step_safety is 1.0; it must lie between 0 and 1 (exclusive)"),
        ("step_safety", "high", f"step_safety is 'high'; {NUMBER}"),
        (
            "couplings",
            "some",
            "couplings is 'some'; it must be 'all' or a list of [cause, effect]",
        ),
        (
            "couplings",
            (("a", "a"),),
            "couplings has the entry ('a', 'a'); each must be [cause, effect], two clients",
        ),
        (
            "couplings",
            [["a", "b", "c"]],
            "couplings has the entry ('a', 'b', 'c'); each must be [cause, effect], two clients",
        ),
        (
            "couplings",
            [["a", 2]],
            "couplings has the entry ('a', 2); each must be [cause, effect], two clients",
        ),
        (
            "couplings",
            ["ab"],
            "couplings has the entry 'ab'; each must be [cause, effect], two clients",
        ),
        (
            "test",
            "wald",
            "test is 'wald'; choose one of auto, debiased, readings, nonlinear, asymptotic, none",
        ),
        (
            "correction",
            "BH",
            "correction is 'BH'; choose one of bh, by, holm, none (did you mean 'bh'?)",
        ),
        (
            "covariance",
            "sandwhich",
            "covariance is 'sandwhich'; choose one of sandwich, homoskedastic "
            "(did you mean 'sandwich'?)",
        ),
        (
            "hac",
            "newey",
            "hac is 'newey'; choose one of model, newey-west, andrews (did you mean 'newey-west'?)",
        ),
        (
            "weighting",
            "emwa",
            "weighting is 'emwa'; choose one of none, ewma, window, periodic, regime (did you mean "
            "'ewma'?)",
        ),
        ("alpha", 0.0, f"alpha is 0.0; {BETWEEN}"),
        ("alpha", 1, f"alpha is 1; {BETWEEN}"),
        ("alpha", -0.1, f"alpha is -0.1; {BETWEEN}"),
        ("alpha", "5 %", f"alpha is '5 %'; {NUMBER}"),
        ("alpha", math.nan, f"alpha is nan; {NUMBER}"),
        ("confidence", 95, f"confidence is 95; {BETWEEN}"),
        ("confidence", None, f"confidence is None; {NUMBER}"),
        ("lags", 0, f"lags is 0; {WHOLE} 1 or 'auto'"),
        ("lags", 1.0, f"lags is 1.0; {WHOLE} 1 or 'auto'"),
        ("lags", "many", f"lags is 'many'; {WHOLE} 1 or 'auto'"),
        ("max_lags", 0, f"max_lags is 0; {WHOLE} 1"),
        ("weighting_span", -1, f"weighting_span is -1; {WHOLE} 0"),
        ("weighting_span", 2.5, f"weighting_span is 2.5; {WHOLE} 0"),
    ],
)
def test_bad_value_is_one_exact_sentence(name, value, message):
    with pytest.raises(ConfigError) as caught:
        RunConfig.from_mapping({name: value})
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "values",
    [
        {"step_safety": 0.999},
        {"local_step_size": 0},
        {"tolerance": 0},
        {"granger_prior_location": -5},
        {"window": "full"},
        {"seed": 0},
        {"alpha": 1e-300, "confidence": 0.999},
        {"lags": "auto", "max_lags": 1},
        {"weighting": "none", "weighting_span": 0},
        {"weighting": "window", "weighting_span": 1},
        {"weighting": "periodic", "weighting_span": 2},
        {"weighting": "regime", "weighting_span": 0},
    ],
)
def test_border_values_are_allowed(values):
    RunConfig(**values)


@pytest.mark.parametrize("weighting", ["ewma", "window"])
@pytest.mark.parametrize("span", [0, 0.5, "long"])
def test_weights_need_a_span(weighting, span):
    with pytest.raises(ConfigError) as caught:
        RunConfig(weighting=weighting, weighting_span=span)
    assert str(caught.value) == f"weighting_span is {span!r}; {WHOLE} 1"


def test_a_period_has_two_steps_and_the_recursions_need_a_regime_that_is_given():
    with pytest.raises(ConfigError, match=r"weighting_span is 1; it must be .* at least 2"):
        RunConfig(weighting="periodic", weighting_span=1)
    with pytest.raises(ConfigError, match="needs regime_start, a time of the data"):
        RunConfig(weighting="regime", test="asymptotic")
    assert (
        RunConfig(weighting="regime", test="asymptotic", regime_start="500").regime_start == "500"
    )


def test_the_tests_know_every_word_of_an_option():
    """No word is only declared: each has a rule, which no other word shares."""
    p_values = np.array([0.001, 0.01, 0.04])
    assert len({adjust(p_values, word).tobytes() for word in CORRECTIONS}) == len(CORRECTIONS)
    weights = [hac_weights(word, 2, 1000, 0.9) for word in HAC_RULES]
    assert len({found.tobytes() for found in weights}) == len(HAC_RULES)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("step_size", "local_step_size"),
        ("passses", "passes"),
        ("granger_rigde", "granger_ridge"),
        ("lag", "lags"),
    ],
)
def test_unknown_key_names_the_nearest(key, nearest):
    with pytest.raises(ConfigError) as caught:
        RunConfig.from_mapping({key: 1})
    assert str(caught.value) == f"unknown option '{key}' (did you mean '{nearest}'?)"


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a = ", "not valid TOML"), (b"a = 1\na = 2", "not valid TOML"), (b"\xff\xfe", "cannot be")],
)
def test_bad_toml_file(tmp_path, content, message):
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"run.toml: {message}"):
        read_toml(path)


@pytest.mark.parametrize(
    ("name", "problem"), [("none.toml", "there is no such file"), ("", "is a folder")]
)
def test_toml_path_that_is_no_file(tmp_path, name, problem):
    with pytest.raises(ConfigError) as caught:
        read_toml(tmp_path / name)
    assert str(caught.value) == f"{tmp_path / name}: {problem}; give a TOML file with options"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "newton"),
        ({"state_dim": 2, "alpha": 0.01}, "newton"),
        ({"solver": "sgd"}, "sgd"),
        ({"solver": "none"}, "none"),
        ({"window": 10}, "sgd"),
        ({"passes": 3}, "sgd"),
        ({"server_step_size": 0.1}, "sgd"),
        ({"uncertainty": "joint"}, "sgd"),
        ({"test": "asymptotic"}, "sgd"),
        ({"test": "asymptotic", "solver": "newton"}, "newton"),
    ],
)
def test_automatic_solver_is_newton_unless_steps_are_asked_about(options, expected):
    assert RunConfig(**options).training_solver == expected
    assert RunConfig().solver == "auto"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"training": {"lags": 2}}, "lags is in table [training]; it belongs to [edge_tests]"),
        ({"lags": 2, "edge_tests": {"lags": 3}}, "lags is given twice; leave one of them out"),
        ({"edge_tests": {"lag": 2}}, "unknown option 'lag' (did you mean 'lags'?)"),
        ({"edge_test": {"lags": 2}}, "unknown option 'edge_test' (did you mean 'test'?)"),
        ({"prior": 3}, "prior is 3; it must be text"),
        ({"seed": 2**63}, f"seed is {2**63}; it must be below {2**63}"),
    ],
)
def test_tables_by_subject(values, message):
    with pytest.raises(ConfigError) as caught:
        RunConfig.from_mapping(values)
    assert str(caught.value) == message


def test_an_option_may_stand_in_its_table_or_alone():
    nested = {"prior": {"prior": "laplace"}, "edge_tests": {"lags": 2}, "passes": 3}
    assert RunConfig.from_mapping(nested) == RunConfig(prior="laplace", lags=2, passes=3)


@pytest.mark.parametrize(
    ("options", "num_steps", "words"),
    [
        ({"max_lags": 100_000}, 3000, "max_lags is 100000, but the clients share only 3000"),
        ({"lags": 2000}, 3000, "it can be 1500 at most"),
        ({"max_lags": 11}, 20, "max_lags is 11"),
        ({"max_lags": 100_000, "lags": 2}, 3000, ""),
        ({}, 12, ""),
        ({"max_lags": 1500}, 3000, ""),
    ],
)
def test_lags_beyond_the_record_are_refused_before_any_work(options, num_steps, words):
    config = RunConfig(**options)
    if not words:
        config.check_steps(num_steps)
        return
    with pytest.raises(ConfigError, match=words):
        config.check_steps(num_steps)
