"""A site's policy: what it lets out, whatever a run asks for.

It lies in the client's own kit as `policy.toml`. Nothing that arrives from outside can change it,
and without it a client takes no part. Every refusal names the policy's own limit and nothing of
the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np

from fedgranger.config import NEIGHBOURS, read_toml
from fedgranger.data.time_axis import LocalSeries
from fedgranger.edge_test_kinds import AUTO_TESTS, STATE_TESTS
from fedgranger.errors import ConfigError, DataError, FedGrangerError
from fedgranger.federation.agreed_options import ClientOptions
from fedgranger.option_fields import check_choice, unknown_key
from fedgranger.privacy.sensitivity import Neighbours
from fedgranger.text import counted

POLICY_FILE = "policy.toml"
UNLIMITED: Mapping[str, Any] = {
    "largest_state_dim": 10**6,
    "smallest_sensors_per_state": 1,
    "standardise": False,
    "rounds": 10**9,
    "questions": 10**6,
    "runs_per_day": 10**6,
    "largest_message_steps": 10**9,
    "watch": True,
    "share_sensors": True,
}
"""For simulations, in which nobody has anything to protect."""
NANOSECOND_YEARS = range(1678, 2262)


class PolicyError(FedGrangerError):
    """The site's policy does not allow what was asked for; the sentence holds nothing private."""


@dataclass(frozen=True)
class SitePolicy:
    """What a site lets out; `policy.toml` beside this module explains every key.

    A question that fails counts like a run of the day. Times are empty for no limit.
    """

    largest_state_dim: int = 4
    smallest_sensors_per_state: float | int = 2.0
    standardise: bool = True
    tests: tuple[str, ...] = STATE_TESTS
    rounds: int = 0
    questions: int = 1
    runs_per_day: int = 24
    first_time: str | int | float = ""
    last_time: str | int | float = ""
    ask: bool = False
    largest_message_steps: int = 50_000
    watch: bool = False
    share_sensors: bool = False
    epsilon: float | int = math.inf
    delta: float | int = 1e-5
    neighbours: str = "event"
    neighbour_steps: int = 1
    covered_only: bool = False

    def __post_init__(self) -> None:
        """Check every value; the message names the key, the value and what is allowed."""
        for name, least in (
            ("largest_state_dim", 1),
            ("rounds", 0),
            ("questions", 1),
            ("runs_per_day", 1),
            ("largest_message_steps", 1),
            ("neighbour_steps", 1),
        ):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ConfigError(f"{name} is {value!r}; it must be a whole number >= {least}")
        for name in ("standardise", "ask", "watch", "share_sensors", "covered_only"):
            if type(getattr(self, name)) is not bool:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must be true or false")
        ratio = self.smallest_sensors_per_state
        if type(ratio) not in (int, float) or not math.isfinite(ratio) or ratio < 1:
            raise ConfigError(
                f"smallest_sensors_per_state is {ratio!r}; it must be a number of at least 1"
            )
        object.__setattr__(self, "smallest_sensors_per_state", float(ratio))
        for name, largest in (("epsilon", math.inf), ("delta", 1.0)):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 < value <= largest:
                raise ConfigError(f"{name} is {value!r}; it must be a number above 0")
            object.__setattr__(self, name, float(value))
        check_choice("neighbours", self.neighbours, NEIGHBOURS)
        if not isinstance(self.tests, tuple):
            raise ConfigError(f"tests is {self.tests!r}; it must be a list of names")
        for name in self.tests:
            check_choice("an entry of tests", name, STATE_TESTS)
        for name in ("first_time", "last_time"):
            _moment(name, getattr(self, name))

    @property
    def near(self) -> Neighbours:
        """Which records the budget is about."""
        steps = self.neighbour_steps if self.neighbours == "window" else 1
        return Neighbours(self.neighbours, steps)

    def largest_for(self, num_sensors: int) -> int:
        """The most states that may leave a site with so many sensors."""
        return min(self.largest_state_dim, int(num_sensors / self.smallest_sensors_per_state))

    def check_options(
        self, options: ClientOptions, num_sensors: int, *, is_declared: bool = False
    ) -> None:
        """Refuse options that ask for too much, before anything is computed, naming the limit.

        `is_declared`: the site declares its local model.
        """
        config, largest = options.config, self.largest_for(num_sensors)
        if largest < 1:
            raise PolicyError("its policy lets no state out")
        wanted = 2 if config.state_model == "paper" else config.state_dim
        if isinstance(wanted, int) and wanted > largest:
            raise PolicyError(
                f"its policy allows fewer than the {wanted} states that were asked for; use fewer, "
                "or state_dim='auto'"
            )
        if self.standardise and not config.standardise:
            raise PolicyError("its policy lets out standardised states only; use standardise=true")
        wanted_tests = {"auto": AUTO_TESTS, "none": ()}.get(config.test, (config.test,))
        for name in wanted_tests:
            if name not in self.tests:
                raise PolicyError(f"its policy does not allow the test '{name}'")
        if config.solver != "none" and self.rounds == 0:
            raise PolicyError(
                "its policy allows no rounds of FedGC; use solver='none', or ask the site to raise "
                "'rounds'"
            )
        if config.client_terms is None and (self.epsilon < math.inf or self.covered_only):
            raise PolicyError(
                "its policy lets states out with noise only; use privacy='to-server' and epsilon "
                f"at most {self.epsilon:g}"
            )
        if self.covered_only and not (is_declared and config.period == "none"):
            raise PolicyError(
                "its policy lets out only what its privacy budget covers: the site must declare "
                "its local model, and the run must have period='none'"
            )
        if options.message_steps > self.largest_message_steps:
            raise PolicyError(
                f"its policy allows {counted(self.largest_message_steps, 'time step')} per "
                "message, not "
                f"{options.message_steps}; use a smaller message_steps"
            )

    def within(self, series: LocalSeries) -> LocalSeries:
        """The rows that the policy lets be used.

        Raises:
            DataError: fewer than two are left, or the limits do not fit the time column.
        """
        time, client = series.time, series.client
        keep = np.ones(len(time), dtype=np.bool_)
        for name, sign in (("first_time", 1), ("last_time", -1)):
            value = getattr(self, name)
            if value == "":
                continue
            is_stamp = isinstance(value, str)
            if is_stamp != (time.dtype.kind == "M"):
                raise DataError(
                    f"client '{client.name}': {name} is {value!r} in its policy, but the time "
                    f"column holds {'numbers' if is_stamp else 'time stamps'}; write it alike"
                )
            bound = _moment(name, value)
            keep &= (time >= bound) if sign > 0 else (time <= bound)
        if keep.all():
            return series
        if keep.sum() < 2:
            raise DataError(
                f"client '{client.name}': its policy's first_time and last_time leave "
                f"{int(keep.sum())} of {len(time)} rows; at least two are needed"
            )
        cut = replace(client, values=client.values[keep], observed=client.observed[keep])
        return series._replace(client=cut, time=time[keep])


def read_policy(path: Path) -> SitePolicy:
    """Read a site's policy.

    Raises:
        ConfigError: there is none, or it holds something that is not allowed.
    """
    if not path.is_file():
        raise ConfigError(f"{path}: no policy; without it the client takes no part")
    values = read_toml(path)
    try:
        return _from_mapping(values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _from_mapping(values: Mapping[str, Any]) -> SitePolicy:
    known = [field.name for field in fields(SitePolicy)]
    out: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise ConfigError(unknown_key(key, known))
        out[key] = value
        if isinstance(value, list):
            out[key] = tuple(value)
        elif isinstance(value, date):  # TOML has dates of its own; datetime is one of them
            out[key] = value.isoformat()
    return SitePolicy(**out)


def _moment(name: str, value: Any) -> Any:
    """A limit in the units of a time column: a time stamp (UTC) or a number."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{name} is {value!r}; it must be a time stamp or a number")
    if not isinstance(value, str):
        return value
    if not value:
        return None
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            moment = (moment - moment.utcoffset()).replace(tzinfo=None)  # type: ignore[operator]
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{name} is {value!r}; write it like 2026-01-31T12:00:00, or as a number"
        ) from None
    if moment.year not in NANOSECOND_YEARS:
        raise ConfigError(f"{name} is {value!r}; the year must be within 1678 and 2261")
    return np.datetime64(moment, "ns")


def policy_text() -> str:
    """The default policy as TOML, with a comment on every line that a site may want to change."""
    return Path(__file__).with_name(POLICY_FILE).read_text("utf-8")
