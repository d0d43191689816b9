"""What the parties of a run agree on: its options, told by the server in its offer."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from typing import Any

from fedgranger.config import RunConfig, check_choice, unknown_key
from fedgranger.errors import ConfigError

__all__ = ["FederationOptions"]


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
    """

    config: RunConfig
    message_steps: int = 50_000
    wait_seconds: float | int = 600.0
    on_missing: str = "stop"
    clock_seconds: float | int = 60.0

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
        if self.config.test == "asymptotic" or self.config.uncertainty != "none":
            raise ConfigError(
                "test='asymptotic' and uncertainty need all data in one place; a federated run has "
                "test='debiased' or 'none'"
            )
        if self.config.solver == "sgd" and self.config.window == "full":
            raise ConfigError("window='full' is for one process; use solver='newton', or a number")

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> FederationOptions:
        """Build from plain values; `config` is a mapping."""
        known = [field.name for field in fields(cls)]
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
        return json.dumps({**values, "config": self.config.to_mapping()}, sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> FederationOptions:
        """Undo `to_text`."""
        try:
            values = json.loads(text)
        except ValueError:
            raise ConfigError("the options are not valid JSON") from None
        if not isinstance(values, dict):
            raise ConfigError("the options are not a table")
        return cls.from_mapping(values)
