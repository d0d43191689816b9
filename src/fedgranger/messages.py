"""The complete list of what leaves a site.

| message | direction | when | content |
|---|---|---|---|
| `ClientHello` | up | once | A_mm (p x p), one number on the size of its states |
| `ClientMessage` | up | every round | filtered and augmented state per time step, a flag |
| `ServerMessage` | down | every round | gradient of the server loss per time step |
| `PassReport` | up | every pass | size and change of its correction θy, for the stopping rule |
| `StateHello` | up | once, edge tests | error covariance of its states (p x p) |
| `StateMessage` | up | once per step, edge tests | least-squares state, a flag |

Measurements, sensor names, the observation matrix, noise covariances and the augmentation never
leave a client; a client never sees another client's states. All numbers are float64. With a
leading client axis the same types carry the messages of all clients at once. Besides, the parties
must agree on the common time stamps before they start. A run in one process also keeps what a
server would not see (θ, losses, step sizes, notes on sensors) in its run folder.
"""

from __future__ import annotations

import equinox as eqx
from jaxtyping import Array, Bool, Float

__all__ = [
    "PASS_REPORT_BYTES",
    "SCHEMA_VERSION",
    "ClientHello",
    "ClientMessage",
    "PassReport",
    "ServerMessage",
    "StateHello",
    "StateMessage",
    "hello_bytes",
    "message_bytes",
    "state_bytes",
]

SCHEMA_VERSION = 1


class ClientHello(eqx.Module):
    """Sent once, before the first round.

    Attributes:
        self_transition: A_mm, needed for the server's prediction.
        state_gain: largest eigenvalue of the windowed moments of the filtered state
            (`linalg.spectral.window_moments`); bounds the server's stable step size.
    """

    self_transition: Float[Array, "state_dim state_dim"]
    state_gain: Float[Array, ""]


class ClientMessage(eqx.Module):
    """Sent up once per round, for the time steps of its window.

    Attributes:
        filtered_states: h_c, the Kalman state.
        augmented_states: h_a = h_c + θ y; equal to h_c where the measurement is missing.
        is_observed: the measurement was there, so h_a carries information.
    """

    filtered_states: Float[Array, "*batch window state_dim"]
    augmented_states: Float[Array, "*batch window state_dim"]
    is_observed: Bool[Array, "*batch window"]


class ServerMessage(eqx.Module):
    """Sent down once per round.

    Attributes:
        gradients: derivative of the server loss with respect to h_a, per time step.
    """

    gradients: Float[Array, "*batch window state_dim"]


class PassReport(eqx.Module):
    """Sent up once per pass over the data.

    Attributes:
        change: root mean square of (θ − θ before the pass) y.
        size: root mean square of θ y.
    """

    change: Float[Array, ""]
    size: Float[Array, ""]


class StateHello(eqx.Module):
    """Sent once, before the states of the edge tests.

    Attributes:
        error_cov: E = (CᵀR⁻¹C)⁻¹, what measurement noise adds to the states below.
    """

    error_cov: Float[Array, "state_dim state_dim"]


class StateMessage(eqx.Module):
    """Sent once per time step for the edge tests; needs no round and no answer.

    Attributes:
        states: least-squares states (CᵀR⁻¹C)⁻¹CᵀR⁻¹y; zero where missing.
        is_observed: the measurement was there.
    """

    states: Float[Array, "*batch window state_dim"]
    is_observed: Bool[Array, "*batch window"]


def message_bytes(state_dim: int) -> tuple[int, int]:
    """Payload bytes per time step: (up, down) for one client with that many states.

    Example:
        >>> message_bytes(2)
        (33, 16)
    """
    return 2 * 8 * state_dim + 1, 8 * state_dim


def hello_bytes(state_dim: int) -> tuple[int, int]:
    """Payload bytes of a `ClientHello` and of a `StateHello`.

    Example:
        >>> hello_bytes(2)
        (40, 32)
    """
    return 8 * (state_dim**2 + 1), 8 * state_dim**2


PASS_REPORT_BYTES = 16


def state_bytes(state_dim: int) -> int:
    """Payload bytes per time step of a `StateMessage`.

    Example:
        >>> state_bytes(2)
        17
    """
    return 8 * state_dim + 1
