"""What happens to simulated sensors besides the system: units, cycles, counters, jumps, outages.

None of it changes which client drives which.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedgranger.data.simulation_options import SimulationOptions
from fedgranger.data.truth import Truth
from fedgranger.errors import ConfigError

COUNTER = "counter"
Parts = dict[str, np.ndarray]


def change_unit(truth: Truth, factor: float) -> Truth:
    """The first sensor of the first client in another unit: its row of C and of R follow."""
    name = truth.clients[0]
    C, R = truth.observation_matrices[name].copy(), truth.measurement_covs[name].copy()
    C[0] *= factor
    R[0] *= factor
    R[:, 0] *= factor
    return replace(
        truth,
        observation_matrices={**truth.observation_matrices, name: C},
        measurement_covs={**truth.measurement_covs, name: R},
    )


def add_cycle(
    parts: Parts, truth: Truth, size: np.ndarray, period: float, rng: np.random.Generator
) -> None:
    """Add a sine wave of one period and this size to the states, per client with its own phase.

    The states are then those of the same system under a common periodic input.
    """
    for name, part in parts.items():
        phase = rng.uniform(0, 2 * np.pi)
        wave = np.sin(2 * np.pi * np.arange(len(part)) / period + phase)
        part += np.outer(wave, truth.observation_matrices[name] @ size[truth.rows(name)])


def add_mean_shifts(parts: Parts, number: int, size: float, rng: np.random.Generator) -> None:
    """Let one client's sensors jump to another level for good, as often as asked."""
    for _ in range(number):
        name = rng.choice(list(parts))
        num_steps = len(parts[name])
        start = int(rng.integers(1, max(num_steps, 2)))
        jump = rng.choice([-1.0, 1.0], size=parts[name].shape[1]) * parts[name].std(axis=0)
        parts[name][start:] += size * jump


def add_counter(parts: Parts) -> str:
    """Give the first client a counter and return the client.

    The counter is the running total of its first sensor, counted from that sensor's lowest
    reading: like a meter it never falls.
    """
    name = next(iter(parts))
    flow = parts[name][:, 0] - parts[name][:, 0].min()
    parts[name] = np.column_stack([parts[name], np.cumsum(flow)])
    return name


def observed_steps(
    names: tuple[str, ...], asked: SimulationOptions, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Which time steps of each client were recorded.

    Single steps are missing at random at every client; in an outage one client (a random one
    unless it is named) is off for one block of rows, or for several of `outage_steps` rows.
    """
    off, num_steps = asked.outage_client, asked.num_steps
    if off is not None and off not in names:
        raise ConfigError(f"outage_client is {off!r}; the clients are {', '.join(names)}")
    out = {}
    for name in names:
        out[name] = np.ones(num_steps, dtype=np.bool_)
        if asked.missing_share:
            out[name] = rng.random(num_steps) >= asked.missing_share
    if asked.outage_share:
        length = round(asked.outage_share * num_steps)
        block = length if asked.outage_steps is None else min(asked.outage_steps, length)
        count = round(length / block) if block else 0
        starts = np.sort(rng.integers(0, num_steps - count * block + 1, size=count))
        name = str(rng.choice(names)) if off is None else off
        for start in starts + block * np.arange(count):
            out[name][start : start + block] = False
    return out
