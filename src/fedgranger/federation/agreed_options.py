"""What the parties of a run agree on: its options, and those of them that a client receives."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedgranger.config import PrivacyOptions, RunConfig
from fedgranger.edge_test_kinds import STATE_TESTS
from fedgranger.errors import ConfigError
from fedgranger.option_fields import choice, number, whole
from fedgranger.option_sets import Options

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
CLIENT_NAME = re.compile(r"[^\W_][\w .-]{0,99}")
STATE_OPTIONS = ("state_model", "state_dim", "max_state_dim", "standardise", "period", "season")
"""What a client's states depend on, beside its data."""
ROUND_OPTIONS = (
    "solver",
    "window",
    "local_step_size",
    "feedback_step_size",
    "step_safety",
    "augmentation_ridge",
)
"""What its part of FedGC's rounds depends on."""
NETWORK_OPTIONS = (
    "transition",
    "batch_steps",
    "sequence_steps",
    "client_hidden_dim",
    "client_learning_rate",
)
"""What its network depends on; sent with solver = "neural" only."""
PRIVACY_OPTIONS = tuple(PrivacyOptions.names())
"""What its noise depends on."""
SCORER_NAMES = ("unexplained", "surprise", "deviation", "paper")
"""Those of `rca.scorers.SCORERS`, which needs numerical libraries."""


def round_options(solver: object) -> tuple[str, ...]:
    """What a client receives of its part of the rounds."""
    return (*ROUND_OPTIONS, *NETWORK_OPTIONS) if solver == "neural" else ROUND_OPTIONS


def check_run_name(name: object) -> str:
    """Refuse a name that could leave the folder of runs."""
    if not isinstance(name, str) or not RUN_NAME.fullmatch(name) or ".." in name:
        raise ConfigError(
            f"run is {str(name)[:80]!r}; use at most 63 letters, digits, '-', '_' and single '.', "
            "beginning with a letter or digit"
        )
    return name


def is_client_name(name: object) -> bool:
    """Whether another party's text can be the name of a client."""
    return isinstance(name, str) and CLIENT_NAME.fullmatch(name) is not None


@dataclass(frozen=True, kw_only=True)
class WaitingOptions(Options):
    """How the parties wait for each other."""

    subject = "federation"
    wait_seconds: float | int = number(
        600.0,
        "how long to wait for a client before the run stops or goes on without it",
        least=1,
    )
    on_missing: str = choice(
        "stop",
        ("stop", "drop"),
        '"stop", or "drop": finish without a client that stays away; its edges are then not tested',
        everyday=True,
    )
    clock_seconds: float | int = number(
        60.0,
        "largest difference between a client's clock and the server's; 0 does not check",
        least=0,
    )


@dataclass(frozen=True, kw_only=True)
class ExchangeOptions(WaitingOptions):
    """How the parties of a run wait for each other, and how much they send at once."""

    subject = "messages"
    message_steps: int = whole(50_000, "largest number of time steps in one message", least=1)


@dataclass(frozen=True)
class WatchOptions(Options):
    """How new data are watched, in one process and between parties."""

    subject = "watch"
    scorer: str = choice(
        "unexplained", SCORER_NAMES, f"how clients are ranked: {', '.join(SCORER_NAMES)}"
    )
    steps: int = whole(50, "time steps that arrive at a time", least=1, word="batch")
    calm_steps: int = whole(50, "calm steps that end an alarm", least=1)


@dataclass(frozen=True)
class FederationOptions(ExchangeOptions):
    """Options of a federated run.

    Attributes:
        config: the options of the fit.
        is_local: all parties are in one process, where nothing is hidden and every option works.
    """

    config: RunConfig = field(default_factory=RunConfig)
    is_local: bool = False

    def check_together(self) -> None:
        """Refuse what needs all data in one place."""
        if self.is_local:
            return
        if self.config.test == "asymptotic" or self.config.uncertainty != "none":
            allowed = ", ".join(f"'{name}'" for name in ("auto", *STATE_TESTS))
            raise ConfigError(
                "test='asymptotic' and uncertainty need all data in one place; a federated run has "
                f"test={allowed} or 'none'"
            )
        _check_window(self.config)

    def for_client(self, name: str) -> ClientOptions:
        """What one client receives: nothing that matters to the server or to others only."""
        config, whole = self.config, ClientOptions(self.config, self.message_steps)
        values = whole.states | whole.rounds | whole.noise
        values |= {"state_dim": config.state_dim_of(name), "test": config.test}
        values["solver"] = config.training_solver  # the client does not know all options
        return replace(whole, config=RunConfig(**values))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> FederationOptions:
        """Build from plain values; `config` is a mapping."""
        values = dict(values)
        config = values.pop("config", {})
        if not isinstance(config, dict):
            raise ConfigError("config is not a table of options")
        return cls(**cls.flat(values), config=RunConfig.from_mapping(config))

    def to_text(self) -> str:
        """The options as JSON, the same text for the same options."""
        values = {**self.to_mapping(), "config": self.config.to_mapping()}
        return json.dumps(values, sort_keys=True)


@dataclass(frozen=True)
class Plan:
    """A run: its name, its clients, its options, and a word no earlier start has used."""

    run: str
    clients: tuple[str, ...]
    options: FederationOptions
    nonce: str

    def __post_init__(self) -> None:
        """Check the name, which becomes a folder."""
        check_run_name(self.run)


@dataclass(frozen=True)
class ClientOptions:
    """What a client receives of a run.

    Attributes:
        config: only the options that its states and its part of the rounds depend on; the others
            have their defaults and are not sent.
        message_steps: largest number of time steps in one message.
    """

    config: RunConfig
    message_steps: int

    @property
    def states(self) -> dict[str, Any]:
        """The options that its states depend on."""
        return {key: getattr(self.config, key) for key in STATE_OPTIONS}

    @property
    def rounds(self) -> dict[str, Any]:
        """The options that its part of the rounds depends on; none without rounds."""
        if self.config.solver == "none":
            return {}
        return {key: getattr(self.config, key) for key in round_options(self.config.solver)}

    @property
    def noise(self) -> dict[str, Any]:
        """The options that its noise depends on; none where it adds none."""
        if self.config.client_terms is None:
            return {}
        return {key: getattr(self.config, key) for key in PRIVACY_OPTIONS}

    def capped(self, largest: int) -> ClientOptions:
        """The same with so many states at most."""
        dim = min(self.config.max_state_dim, largest)
        return replace(self, config=replace(self.config, max_state_dim=dim))

    def to_text(self) -> str:
        """The options as JSON, the same text for the same options."""
        common = {"test": self.config.test, "message_steps": self.message_steps}
        return json.dumps({**common, **self.states, **self.rounds, **self.noise}, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> ClientOptions:
        """Undo `to_text`; refuse what a client does not receive."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            raise ConfigError("the options are not valid JSON") from None
        if not isinstance(values, dict):
            raise ConfigError("the options are not a table")
        size = values.pop("message_steps", None)
        if type(size) is not int or size < 1:
            raise ConfigError("message_steps must be a whole number of at least 1")
        known = {"test", *STATE_OPTIONS}
        known |= {*round_options(values["solver"])} if "solver" in values else set()
        known |= {*PRIVACY_OPTIONS} if "privacy" in values else set()
        if set(values) != known or isinstance(values["state_dim"], dict):
            raise ConfigError("the server's options are not those that this client expects")
        config = RunConfig.from_mapping({"solver": "none", **values})
        _check_window(config)
        return cls(config, size)


def _check_window(config: RunConfig) -> None:
    if config.training_solver == "sgd" and config.window == "full":
        raise ConfigError("window='full' is for one process; use solver='newton', or a number")
