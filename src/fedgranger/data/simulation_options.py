"""The options of `synthetic.simulate`, each declared once, and named scenarios."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedgranger.errors import ConfigError
from fedgranger.option_fields import choice, flag, number, special, text, whole
from fedgranger.option_sets import Options

HUB: dict[str, Any] = {
    "num_clients": 4,
    "edges": [("client1", "client2"), ("client1", "client3"), ("client1", "client4")],
    "state_dims": 1,
    "sensor_dims": 4,
    "spectral_radius": 0.97,
    "outage_client": "client1",
}
"""One slow client drives three others, and it is the one that is off."""

SCENARIOS: dict[str, dict[str, Any]] = {
    "base": {},
    "noise5": {"measurement_var": 0.5},
    "correlated": {"process_correlation": 0.5},
    "student4": {"student_df": 4.0},
    "missing10": {"missing_share": 0.1},
    "mixed": {"state_dims": [1, 2, 3, 1, 2, 3], "sensor_dims": [3, 5, 8, 6, 12, 10]},
    "nearunit": {"spectral_radius": 0.98},
    "twenty": {"num_clients": 20, "edges": 38},
    "loop1": {"reading_feedback": 1.0, "measurement_var": 1.0},
    "loop3": {"reading_feedback": 1.0, "measurement_var": 3.0},
    "declaredhalf": {"measurement_var": 3.0},
    "declaredtwice": {"measurement_var": 3.0},
    "outage10": {"outage_share": 0.1},
    "outage50": {"outage_share": 0.5},
    "outagehub10": {**HUB, "outage_share": 0.1},
    "outagehub50": {**HUB, "outage_share": 0.5},
    "gaps20": {**HUB, "outage_share": 0.1, "outage_steps": 20},
    "deadtime6": {"dead_time": 6},
    "onesensor": {"state_dims": 1, "sensor_dims": 1},
    "unit1e5": {"unit_factor": 1e5},
    "counter": {"counter": True},
    "daily": {"cycle_size": 1.0, "cycle_period": 24.0},
}
"""What differs from six clients with two states and eight sensors, nine of thirty edges."""

DECLARED_NOISE: dict[str, float] = {"declaredhalf": 0.5, "declaredtwice": 2.0}
"""Scenarios whose local models are given with this multiple of the true R."""


def _numbers(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """One number, or one per client separated by commas."""

    def parse(words: str) -> Any:
        try:
            values = [kind(part) for part in words.split(",")]
        except ValueError:
            return words
        return values[0] if len(values) == 1 else values

    return parse


def _per_client(name: str, value: Any) -> Any:
    parts = value if isinstance(value, list | tuple | np.ndarray) else [value]
    if not all(isinstance(part, int | float | np.number) for part in parts):
        raise ConfigError(f"{name} is {value!r}; give one number, or one for each client")
    return value


def _parse_edges(words: str) -> Any:
    if words.strip().lstrip("-").isdigit():
        return int(words)
    return [tuple(side.strip() for side in part.split("->")) for part in words.split(",")]


def _edges(name: str, value: Any) -> int | list[tuple[str, str]] | None:
    if value is None or isinstance(value, int):
        return value
    for pair in value if isinstance(value, list | tuple) else [value]:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise ConfigError(
                f"{name} has the entry {pair!r}; give a number or pairs like client1->client2"
            )
    return [(str(cause), str(effect)) for cause, effect in value]


def _covariance(name: str, value: Any) -> float | np.ndarray:
    if isinstance(value, np.ndarray) or (isinstance(value, int | float) and value == value):
        return value
    raise ConfigError(f"{name} must be a positive number or a positive definite matrix")


DYNAMICS = ("linear", "quadratic", "nonlinear-var", "lorenz96", "lotka-volterra")


@dataclass(frozen=True)
class SystemOptions(Options):
    """The system behind the measurements."""

    subject = "system"
    dynamics: str = choice(
        "linear",
        DYNAMICS,
        "how states move: linear, or a nonlinear system that takes only clients, steps, edges, "
        "sensor_dims, measurement_var, missing_share and seed of the other options",
    )
    num_clients: int = whole(6, "number of clients", least=1, word="clients", everyday=True)
    state_dims: int | Sequence[int] = special(
        2, "states per client: one number or one each, such as 1,2,3", _per_client, _numbers(int)
    )
    sensor_dims: int | Sequence[int] = special(
        8, "sensors per client: one number or one each, such as 3,8,12", _per_client, _numbers(int)
    )
    edges: int | Sequence[tuple[str, str]] | None = special(
        None,
        "how many random edges, or pairs such as client1->client2,client1->client3; 30 % of all "
        "pairs unless given",
        _edges,
        _parse_edges,
        everyday=True,
    )
    spectral_radius: float | int = number(
        0.9, "of the whole transition matrix; a stable one is below 1", least=0, below=1
    )
    process_cov: float | np.ndarray = special(
        1.0, "variance of the process noise", _covariance, _numbers(float)
    )
    process_correlation: float | int = number(
        0.0, "common correlation of all process noises, also across clients", least=0, below=1
    )
    reading_feedback: float | int = number(
        0.0,
        "share of every influence, within and across clients, that acts through the sensors' "
        "readings (a controller) instead of the states; with it sensor noise enters the dynamics",
        least=0,
        below=1 + 1e-12,
    )
    dead_time: int = whole(
        0,
        "steps that an edge takes beyond the usual one; where that would take the system over its "
        "spectral radius, the whole transition is shrunk",
    )
    unit_factor: float | int = number(
        1.0, "the first client's first sensor is recorded in a unit this much smaller", above=0
    )


@dataclass(frozen=True)
class RecordingOptions(Options):
    """What is recorded of it."""

    subject = "recording"
    num_steps: int = whole(5000, "time steps", least=2, word="steps", everyday=True)
    measurement_var: float | Sequence[float] = special(
        0.1,
        "measurement variance of a sensor: one number or one per client",
        _per_client,
        _numbers(float),
    )
    measurement_correlation: float | int = number(
        0.0, "common correlation of all measurement noises, across clients", least=0, below=1
    )
    student_df: float | int | None = number(
        None, "degrees of freedom of Student-t noise; Gaussian without", above=2, words=(None,)
    )
    mean_shifts: int = whole(0, "how often one client's sensors jump to another level for good")
    shift_size: float | int = number(
        3.0, "size of those jumps, in standard deviations of the sensor"
    )
    missing_share: float | int = number(
        0.0, "share of a client's time steps that are missing", least=0, below=1
    )
    outage_share: float | int = number(
        0.0,
        "share of the time steps, in one block, for which one client is off",
        least=0,
        below=1,
    )
    outage_client: str | None = text(None, "which client; a random one unless given")
    outage_steps: int | None = whole(
        None, "length of a block, when there are to be several", least=1, words=(None,)
    )
    counter: bool = flag(False, "the first client has one more sensor, the total of its first")
    cycle_size: float | int = number(
        0.0,
        "amplitude of a cycle in all clients' states, in their standard deviations",
        least=0,
    )
    cycle_period: float | int = number(24.0, "its period in time steps", above=0)
    seed: int = whole(0, "of the system and of the noise", everyday=True)
    scenario: str | None = text(
        None,
        f"one of {', '.join(SCENARIOS)}; the options it sets replace those given",
        everyday=True,
    )


@dataclass(frozen=True)
class SimulationOptions(RecordingOptions, SystemOptions):
    """Options of `fedgranger.simulate`; the same names are options of the command."""
