"""How many bytes the messages of a run have, without their envelopes."""

from __future__ import annotations

from fedgranger.config import RunConfig

PASS_REPORT_BYTES = 16
"""Root mean squares of (θ − θ before the pass) y and of θ y."""


def message_bytes(state_dim: int) -> tuple[int, int]:
    """Payload bytes per time step: (up, down) for one client with that many states.

    Example:
        >>> message_bytes(2)
        (33, 16)
    """
    return 2 * 8 * state_dim + 1, 8 * state_dim


def hello_bytes(state_dim: int, num_periods: int = 0) -> tuple[int, int]:
    """Payload bytes of a `ClientHello` and of a `StateHello`.

    Example:
        >>> hello_bytes(2)
        (40, 89)
    """
    return 8 * (state_dim**2 + 1), 8 * (2 * state_dim**2 + 3 + num_periods) + 1


def state_bytes(state_dim: int) -> int:
    """Payload bytes per time step of a `StateMessage`; a `MonitorMessage` has 8 more.

    Example:
        >>> state_bytes(2)
        17
    """
    return 8 * state_dim + 1


def run_bytes(
    config: RunConfig,
    state_dim: int,
    num_periods: int,
    num_steps: int,
    rounds: int,
    rounds_per_pass: int,
) -> dict[str, int]:
    """What a client with so many states sends and gets: per training step, and in all."""
    up, down = message_bytes(state_dim)
    hello, state_hello = hello_bytes(state_dim, num_periods)
    for_tests = state_hello + state_bytes(state_dim) * num_steps if config.test != "none" else 0
    if config.solver == "none":
        up = down = hello = 0
    num_pairs, filtered = num_steps - 1, 8 * state_dim
    if config.training_solver == "newton":  # filtered states only once; one more message up
        passes = rounds
        up_training = filtered * num_pairs + (up - filtered) * (passes + 1) * num_pairs
    elif config.training_solver == "neural":  # the last round is not answered
        passes = config.most_passes if rounds else 0
        up_training = up * passes * num_pairs
    else:
        passes = rounds // rounds_per_pass
        up_training = up * passes * num_pairs + PASS_REPORT_BYTES * passes
    return {
        "once": hello,
        "edge_tests": for_tests,
        "up_per_step": up,
        "down_per_step": down,
        "up_total": hello + for_tests + up_training,
        "down_total": down * passes * num_pairs,
    }
