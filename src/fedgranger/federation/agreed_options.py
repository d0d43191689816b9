"""What the parties of a run agree on: its options, and those of them that a client is told."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, fields
from typing import Any

from fedgranger.config import RunConfig, check_choice, unknown_key
from fedgranger.errors import ConfigError

__all__ = ["ClientOptions", "FederationOptions", "check_run_name"]

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
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


def check_run_name(name: object) -> str:
    """Refuse a name that could leave the folder of runs.

    Raises:
        ConfigError: the name cannot be used.
    """
    if not isinstance(name, str) or not RUN_NAME.fullmatch(name) or ".." in name:
        raise ConfigError(
            f"run is {str(name)[:80]!r}; use at most 63 letters, digits, '-', '_' and single '.', "
            "beginning with a letter or digit"
        )
    return name


@dataclass(frozen=True)
class FederationOptions:
    """Options of a federated run.

    Attributes:
        config: the options of the fit.
        message_steps: largest number of time steps in one message.
        wait_seconds: how long to wait for a client before the run stops or goes on without it.
        on_missing: "stop", or "drop": finish without a client that stays away; its edges are then
            not tested.
        clock_seconds: largest difference between a client's clock and the server's; 0 does not
            check.
        is_local: all parties are in one process, where nothing is hidden and every option works.
    """

    config: RunConfig
    message_steps: int = 50_000
    wait_seconds: float | int = 600.0
    on_missing: str = "stop"
    clock_seconds: float | int = 60.0
    is_local: bool = False

    def __post_init__(self) -> None:
        """Check every value."""
        if type(self.message_steps) is not int or self.message_steps < 1:
            raise ConfigError(
                f"message_steps is {self.message_steps!r}; it must be a whole number of at least 1"
            )
        check_choice("on_missing", self.on_missing, ("stop", "drop"))
        for name, least in (("wait_seconds", 1.0), ("clock_seconds", 0.0)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not math.isfinite(value) or value < least:
                raise ConfigError(f"{name} is {value!r}; it must be at least {least:g} seconds")
            object.__setattr__(self, name, float(value))
        if self.is_local:
            return
        if self.config.test == "asymptotic" or self.config.uncertainty != "none":
            raise ConfigError(
                "test='asymptotic' and uncertainty need all data in one place; a federated run has "
                "test='auto', 'debiased', 'readings' or 'none'"
            )
        _check_window(self.config)

    def for_client(self, name: str) -> ClientOptions:
        """What one client is told: nothing that matters to the server or to others only."""
        config = self.config
        values = {key: getattr(config, key) for key in STATE_OPTIONS}
        values |= {"state_dim": config.state_dim_of(name), "test": config.test, "solver": "none"}
        if config.solver != "none":
            values |= {key: getattr(config, key) for key in ROUND_OPTIONS}
            values["solver"] = config.training_solver  # the client does not know all options
        return ClientOptions(RunConfig(**values), self.message_steps)

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> FederationOptions:
        """Build from plain values; `config` is a mapping."""
        known = [field.name for field in fields(cls) if field.name != "is_local"]
        for key in values:
            if key not in known:
                raise ConfigError(unknown_key(key, known))
        config = values.get("config", {})
        if not isinstance(config, dict):
            raise ConfigError("config is not a table of options")
        return cls(**{**values, "config": RunConfig.from_mapping(config)})

    def to_text(self) -> str:
        """The options as JSON, the same text for the same options."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        del values["is_local"]
        return json.dumps({**values, "config": self.config.to_mapping()}, sort_keys=True)


@dataclass(frozen=True)
class ClientOptions:
    """What a client is told of a run.

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
        return {key: getattr(self.config, key) for key in ROUND_OPTIONS}

    def to_text(self) -> str:
        """The options as JSON, the same text for the same options."""
        common = {"test": self.config.test, "message_steps": self.message_steps}
        return json.dumps({**common, **self.states, **self.rounds}, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> ClientOptions:
        """Undo `to_text`.

        Raises:
            ConfigError: they cannot be read, or hold something that a client is not told.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            raise ConfigError("the options are not valid JSON") from None
        if not isinstance(values, dict):
            raise ConfigError("the options are not a table")
        size = values.pop("message_steps", None)
        if type(size) is not int or size < 1:
            raise ConfigError("message_steps must be a whole number of at least 1")
        known = {"test", *STATE_OPTIONS, *(ROUND_OPTIONS if "solver" in values else ())}
        if set(values) != known or isinstance(values["state_dim"], dict):
            raise ConfigError("the options are not those that a client is told")
        config = RunConfig.from_mapping({"solver": "none", **values})
        _check_window(config)
        return cls(config, size)


def _check_window(config: RunConfig) -> None:
    if config.training_solver == "sgd" and config.window == "full":
        raise ConfigError("window='full' is for one process; use solver='newton', or a number")
