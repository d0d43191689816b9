"""Options that a run would not look at: whoever gives one is warned, instead of believing in it.

Only where people give options (`fit`, the command line). `RunConfig` itself takes them, so that
run folders of any age, and copies of options with one of them changed, stay readable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import NamedTuple

from fedgranger.config import PrivacyOptions, RunConfig
from fedgranger.edge_test_kinds import AUTO_TESTS, STATE_TESTS
from fedgranger.errors import ConfigError
from fedgranger.learning_options import NetworkOptions, PriorOptions


class _Use(NamedTuple):
    """When some options count.

    Attributes:
        names: the options.
        is_used: whether they count in a run.
        when: the same in words, "it counts only with …".
        deciding: the options that decide it.
    """

    names: Iterable[str]
    is_used: Callable[[RunConfig], bool]
    when: str
    deciding: tuple[str, ...]


def _is_linear(config: RunConfig) -> bool:
    return config.training_solver in ("sgd", "newton")


def _is_endless(config: RunConfig) -> bool:
    """Exact solves that are wanted without a word on whether they have converged."""
    return config.training_solver == "newton" and config.tolerance == 0


def _is_about_steps(config: RunConfig) -> bool:
    """Descends step by step, or asks how the steps err."""
    asks = config.test == "asymptotic" or config.uncertainty != "none"
    return config.training_solver == "sgd" or asks


def _has_window(config: RunConfig) -> bool:
    """Steps, or exact solves, whose window is all data in any case."""
    is_full = config.training_solver == "newton" and config.window == "full"
    return is_full or _is_about_steps(config)


def _has_latent_test(config: RunConfig) -> bool:
    followed = config.time_windows > 0 and config.test in STATE_TESTS
    return config.test in ("auto", *AUTO_TESTS[:1]) or followed


_STEP_SIZES = ("local_step_size", "feedback_step_size", "server_step_size", "step_safety")
_USES = (
    _Use(
        NetworkOptions.names(),
        lambda config: config.solver == "neural",
        "solver='neural'",
        ("solver",),
    ),
    _Use(("window",), _has_window, "solver='sgd'", ("solver",)),
    _Use(_STEP_SIZES, _is_about_steps, "solver='sgd'", ("solver",)),
    _Use(
        ("tolerance",),
        lambda config: config.training_solver == "sgd" or _is_endless(config),
        "solver='sgd'",
        ("solver",),
    ),
    _Use(
        ("passes", "augmentation_ridge", "granger_ridge"),
        _is_linear,
        "solver='sgd' or 'newton'",
        ("solver",),
    ),
    _Use(
        [name for name in PriorOptions.names() if name != "seed"],
        lambda config: config.solver != "none",
        "a solver other than 'none'",
        ("solver",),
    ),
    _Use(
        ("prior_df",),
        lambda config: config.prior == "student-t",
        "prior='student-t'",
        ("prior",),
    ),
    _Use(
        ("nonlinear_regression",),
        lambda config: config.test == "nonlinear",
        "test='nonlinear'",
        ("test",),
    ),
    _Use(
        ("covariance", "hac"),
        _has_latent_test,
        "test='auto' or 'debiased', or with time_windows",
        ("test",),
    ),
    _Use(
        ("hac",),
        lambda config: config.covariance == "sandwich",
        "covariance='sandwich'",
        ("covariance",),
    ),
    _Use(
        ("time_windows",),
        lambda config: config.test in ("auto", *STATE_TESTS),
        "a test of states",
        ("test",),
    ),
    _Use(
        ("weighting",),
        lambda config: config.test != "none" or config.uncertainty != "none",
        "a test",
        ("test",),
    ),
    _Use(
        ("weighting_span",),
        lambda config: config.weighting != "none",
        "weighting='ewma', 'window', 'periodic' or 'regime'",
        ("weighting",),
    ),
    _Use(
        ("regime_start",),
        lambda config: config.weighting == "regime",
        "weighting='regime'",
        ("weighting",),
    ),
    _Use(
        [name for name in PrivacyOptions.names() if name != "privacy"],
        lambda config: config.privacy != "none",
        "privacy='to-server' or 'to-clients'",
        ("privacy",),
    ),
    _Use(
        ("neighbour_steps",),
        lambda config: config.neighbours == "window",
        "neighbours='window'",
        ("neighbours",),
    ),
    _Use(("season",), lambda config: config.period != "none", "a period", ("period",)),
    _Use(
        ("max_state_dim",),
        lambda config: not isinstance(config.state_dim, int),
        "state_dim='auto'",
        ("state_dim",),
    ),
)
_DEFAULTS = {one.name: one.default for one in fields(RunConfig)}


def refuse_unused(config: RunConfig) -> RunConfig:
    """The same options, all of which count.

    Raises:
        ConfigError: an option differs from its default, and the run would not look at it.
    """
    for use in _USES:
        for name in use.names:
            value = getattr(config, name)
            if value != _DEFAULTS[name] and not use.is_used(config):
                here = " and ".join(f"{one}={getattr(config, one)!r}" for one in use.deciding)
                raise ConfigError(
                    f"{name}={value!r} would do nothing: it counts only with {use.when}, and this "
                    f"run has {here}; leave it out or choose that"
                )
    return config
