"""The complete list of what leaves a site.

| kind | direction | when | content |
|---|---|---|---|
| `offer` | down | at every start | the options a client needs, a nonce |
| `range` | up | answer | first and last time, interval, gaps, clock, version, progress, data hash |
| `begin` | down | at every start | the common time axis, the round to go on from |
| `hello` | up | answer | `StateHello`, with the periods it took out of its data, in steps |
| `join` | down | at every start | how many states all clients have |
| `upload` | down | edge tests | which time steps are wanted |
| `states` | up | answer | `StateMessage` |
| `translate` | down | after the tests, for each side | `EdgeMessage` of the edges it is a side of |
| `sensors` | up | answer | nothing; where its policy shares sensors: `ShownSensor` of each edge |
| `finish` | down | at the end | the edges that were found |
| `done` | up | answer | nothing |
| `refusal` | up | answer | why the client does not answer, one sentence |

That is the default run between parties. FedGC's rounds are asked for by name and add:

| kind | direction | when | content |
|---|---|---|---|
| `train` | down | at every start | nothing |
| `model` | up | answer | `ClientHello` |
| `step` | down | every round | `ServerMessage` of the round before; which states are wanted |
| `message` | up | answer | `ClientMessage`; after a pass also how far θy moved, and its size |

Every round shows the server p more combinations of a client's d sensors: after about d/p rounds it
holds all of them up to a linear map. A site's policy allows no round unless the site says so.

Sites that watch their own new data for root causes (`federation watch`, and `watch` in the site's
policy) add:

| kind | direction | when | content |
|---|---|---|---|
| `watch` | down | at every start | a nonce |
| `news` | up | answer | time axis of the new data, clock, version; upper end of its normal range |
| `follow` | down | at every start | the common time axis, time steps per message |
| `report` | down | per message | which time steps are wanted |
| `monitor` | up | answer | `MonitorMessage` |
| `alarm` | down | when one begins or its ranking has changed | time, suspects and the evidence |

`follow` and `alarm` are answered with `done`. A site reports on every new time step once: the same
question again gets the same numbers, another one none.

No message holds measurements, sensor names, the observation matrix, noise covariances or the
augmentation, and none brings a client another client's states; only a site whose policy has
`share_sensors` tells names, scales and rows of the sensors behind its edges. `CONTENTS` lists every
field; what it does not list is refused on both sides. All numbers are float64, counts int64. With a
leading client axis the array types carry the messages of all clients at once. A run in one process
also keeps what a server would not see (θ, losses, step sizes, notes on sensors, how well local
models fit, what repeats in every sensor and what is normal for it) in its run folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, Bool, Float, Int

PROTOCOL_VERSION = 8
"""Raised whenever a kind or a field changes."""
OLDEST_PROTOCOL = 8
"""The oldest version of the other side that this side understands."""
SHOWN_SENSORS = 3
"""Names behind each side of an edge, where a site shares them."""
LARGEST_NUMBER = 1e9
"""States and gradients are in units of the sensors' standard deviations; this is far outside."""


class Content(NamedTuple):
    """Fields of one kind of message: scalars by type, arrays by type and axes.

    `f8` is float64, `i8` int64 and `u1` a flag.
    """

    values: Mapping[str, type]
    arrays: Mapping[str, tuple[str, str]] = {}


_TIME_AXIS = {"time_kind": str, "first": str, "interval": str}
_OWN_TIME = {**_TIME_AXIS, "last": str, "clock": float, "version": str, "epoch": int}
_STRETCHES = {"stretches": ("i8", "stretch end")}
_STATES, _FLAGS = ("f8", "time client_state"), ("u1", "time")
_SQUARE = ("f8", "client_state client_state")
CONTENTS: Mapping[str, Content] = {
    "offer": Content({"nonce": str, "options": str}),
    "range": Content({**_OWN_TIME, "rounds": str, "data": str}, _STRETCHES),
    "begin": Content({"epoch": int, "round": int, **_TIME_AXIS}, _STRETCHES),
    "hello": Content(
        {"own_lags": int, "is_declared": bool, "noise_share": float, "clipped_share": float},
        {"error_cov": _SQUARE, "periods": ("i8", "period"), "added_cov": _SQUARE},
    ),
    "join": Content({"epoch": int, "total_dim": int}),
    "train": Content({"epoch": int}),
    "model": Content({}, {"self_transition": _SQUARE, "state_gain": ("f8", "")}),
    "step": Content(
        {
            "epoch": int,
            "round": int,
            "learn_piece": int,
            "learn_pieces": int,
            "want_piece": int,
            "want_filtered": bool,
        },
        {"gradients": _STATES},
    ),
    "message": Content(
        {"round": int, "piece": int, "has_report": bool, "change": float, "size": float},
        {"filtered_states": _STATES, "augmented_states": _STATES, "is_observed": _FLAGS},
    ),
    "upload": Content({"epoch": int, "piece": int}),
    "states": Content({"piece": int}, {"states": _STATES, "is_observed": _FLAGS}),
    "translate": Content(
        {"epoch": int, "side": str, "edges": str, "blocks": int, "confidence": float},
        {
            "cov": _SQUARE,
            "directions": ("f8", "edge client_state"),
            "courses": ("f8", "edge step client_state"),
            "course_covs": ("f8", "edge step client_state client_state"),
        },
    ),
    "sensors": Content({"sensors": str}, {"rows": ("f8", "edge client_state")}),
    "finish": Content({"epoch": int, "edges": str}),
    "watch": Content({"nonce": str}),
    "news": Content({**_OWN_TIME, "threshold": float}, _STRETCHES),
    "follow": Content({"epoch": int, **_TIME_AXIS, "steps": int}, _STRETCHES),
    "report": Content({"epoch": int, "piece": int}),
    "monitor": Content(
        {"piece": int}, {"states": _STATES, "surprise": ("f8", "time"), "is_observed": _FLAGS}
    ),
    "alarm": Content({"epoch": int, "alarm": str}),
    "done": Content({}),
    "refusal": Content({"code": str, "sentence": str}),
}


class ClientHello(eqx.Module):
    """Sent once, before the first round of FedGC.

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
    """Sent down once per round: derivatives of the server loss by h_a, per time step."""

    gradients: Float[Array, "*batch window state_dim"]


class StateHello(eqx.Module):
    """Sent once, before the states of the edge tests.

    Attributes:
        error_cov: E = (CᵀR⁻¹C)⁻¹, what measurement noise adds to the states below; where rows
            lack sensors, the mean over the rows that are there. When they lacked which is not sent.
        own_lags: how many steps back its own past matters to the client.
        periods: whole steps after which what the client took out of its data repeats, so that
            the server can shift clocks by whole periods; empty when it took nothing out.
        is_declared: somebody at the site declared the noise, so E is not to be changed.
        noise_share: share of a declared E that the spectrum of its states has room for; of an
            identified one, the share that was kept for that reason.
        added_cov: N, covariance of the noise that the client added to the states; zero where it
            added none.
        clipped_share: share of the states that were shortened to the bound of a private run, with
            noise of its own.
    """

    error_cov: Float[Array, "state_dim state_dim"]
    own_lags: Int[Array, ""]
    periods: Int[Array, " num_periods"]
    is_declared: Bool[Array, ""]
    noise_share: Float[Array, ""]
    added_cov: Float[Array, "state_dim state_dim"]
    clipped_share: Float[Array, ""]


class StateMessage(eqx.Module):
    """Sent once per time step for the edge tests; needs no round and no answer.

    Attributes:
        states: least-squares states (CᵀR⁻¹C)⁻¹CᵀR⁻¹y, in a private run shortened and with noise;
            zero where missing.
        is_observed: the measurement was there, or enough of its sensors to tell the state.
    """

    states: Float[Array, "*batch window state_dim"]
    is_observed: Bool[Array, "*batch window"]


class EdgeMessage(NamedTuple):
    """Sent down after the tests: what the edges of a client do, along its own states.

    Beside it goes, for every edge, the client at its other side, how much of the effect's variance
    and prediction the cause makes up, and that client's sensor where its site shares it.

    Attributes:
        cov: of what is new in a cause's states; of an effect's states.
        directions: covariance of these with the edge's strongest shock, or with its response.
        courses: of a cause, by step: how far the effect moves for every unit of a state, in its
            standard deviations or its sensor's; of an effect: how its states move after the
            strongest shock of the cause, or after one in its sensor.
        course_covs: their errors.
    """

    cov: Float[np.ndarray, "state_dim state_dim"]
    directions: Float[np.ndarray, "edge state_dim"]
    courses: Float[np.ndarray, "edge step state_dim"]
    course_covs: Float[np.ndarray, "edge step state_dim state_dim"]


class Sensor(NamedTuple):
    """A sensor as others are told of it: its name, whether its changes were taken, its s.d."""

    name: str
    is_change: bool
    scale: float


class ShownSensor(NamedTuple):
    """The sensor that shows an edge best; leaves a site only where its policy shares sensors.

    Attributes:
        sensor: its name, whether its changes were taken, and its standard deviation.
        row: of a cause: what the states do when the sensor rises by that; of an effect: how it
            follows its states, in units of that.
        behind: names of the (three) sensors that follow the edge most closely, and their
            correlations.
    """

    sensor: Sensor
    row: np.ndarray
    behind: tuple[tuple[str, float], ...]


class MonitorMessage(eqx.Module):
    """One client's view of new samples: its states, and how surprising each step was to itself.

    Attributes:
        states: least-squares states; zero where a step was not observed.
        surprise: energy of its own prediction error, 1 on average in normal operation; NaN for a
            step without a predecessor (on the wire 0: the flags tell).
        is_observed: the step was there, or enough of its sensors to tell the state.
    """

    states: Float[Array, "time state_dim"]
    surprise: Float[Array, " time"]
    is_observed: Bool[Array, " time"]
