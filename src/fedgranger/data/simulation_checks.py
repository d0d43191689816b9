"""Checks of the options of `synthetic.simulate`: every mistake is one sentence."""

from __future__ import annotations

import numpy as np

from fedgranger.errors import ConfigError

__all__ = ["check_disturbances", "check_noise", "check_outage", "check_shares"]


def check_noise(
    num_steps: int,
    measurement_correlation: float,
    student_df: float | None,
    mean_shifts: int,
    shift_size: float,
    seed: int,
) -> None:
    """Refuse lengths, noises and jumps that cannot be simulated."""
    if num_steps < 2:
        raise ConfigError(f"num_steps is {num_steps}; at least 2 are needed")
    if not 0 <= measurement_correlation < 1:
        raise ConfigError(
            f"measurement_correlation is {measurement_correlation}; it must be 0 to below 1"
        )
    if student_df is not None and not student_df > 2:
        raise ConfigError(f"student_df is {student_df}; it must exceed 2 to have a variance")
    if mean_shifts < 0:
        raise ConfigError(f"mean_shifts is {mean_shifts}; it must be 0 or more")
    if not np.isfinite(shift_size):
        raise ConfigError(f"shift_size is {shift_size}; it must be a finite number")
    if seed < 0:
        raise ConfigError(f"seed is {seed}; it must be 0 or more")


def check_shares(missing_share: float, outage_share: float, reading_feedback: float) -> None:
    """Refuse shares outside 0 to 1."""
    for name, value in (("missing_share", missing_share), ("outage_share", outage_share)):
        if not 0 <= value < 1:
            raise ConfigError(f"{name} is {value}; it must be 0 to below 1")
    if not 0 <= reading_feedback <= 1:
        raise ConfigError(f"reading_feedback is {reading_feedback}; it must be 0 to 1")


def check_outage(clients: tuple[str, ...], client: str | None, steps: int | None) -> None:
    """Refuse an outage of a client that does not exist, or of no length."""
    if client is not None and client not in clients:
        raise ConfigError(f"outage_client is {client!r}; the clients are {', '.join(clients)}")
    if steps is not None and steps < 1:
        raise ConfigError(f"outage_steps is {steps}; it must be 1 or more")


def check_disturbances(
    dead_time: int, unit_factor: float, cycle_size: float, cycle_period: float
) -> None:
    """Refuse delays, units and cycles that make no sense."""
    if dead_time < 0:
        raise ConfigError(f"dead_time is {dead_time}; it must be 0 or more")
    for name, value in (("unit_factor", unit_factor), ("cycle_period", cycle_period)):
        if not (value > 0 and np.isfinite(value)):
            raise ConfigError(f"{name} is {value}; it must be a positive number")
    if not (cycle_size >= 0 and np.isfinite(cycle_size)):
        raise ConfigError(f"cycle_size is {cycle_size}; it must be 0 or more")
