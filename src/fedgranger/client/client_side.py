"""From a client's data on the common time axis to everything that it may be asked for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgranger.client.kalman import CHUNK_STEPS
from fedgranger.client.learner import Learner
from fedgranger.client.noise_limit import noise_share
from fedgranger.client.params import LocalModel
from fedgranger.client.prepared_client import PreparedClient, identify_client, prepare_client
from fedgranger.client.season import period_steps, take_out
from fedgranger.client.state_noise import state_hello, state_message
from fedgranger.config import RunConfig
from fedgranger.data.panel import ClientData, step_lengths
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.messages import StateHello, StateMessage
from fedgranger.normal_operation import Season


class ClientSide(NamedTuple):
    """A client's data on the common time axis, and what it can be asked for.

    Attributes:
        data: on the common axis, without what repeats.
        model: the local model; stays here.
        states: least-squares states, zero where missing.
        is_observed: the measurement was there.
        hello: what it sends before them.
        season: what repeats and was removed; of it only the whole steps leave.
        starts: steps that do not follow their predecessor.
        interval: ticks per step.
        notes: sentences on the season, for the people at the site.
        for_rounds: filtered states and step sizes, for FedGC's rounds; None when the run has none.
        learner: its part of the rounds, with its θ⁰; None until it is made.
    """

    data: ClientData
    model: LocalModel
    states: np.ndarray
    is_observed: np.ndarray
    hello: StateHello
    season: Season
    starts: np.ndarray
    interval: float
    notes: tuple[str, ...]
    for_rounds: PreparedClient | None
    learner: Learner | None = None


def set_up_client(
    data: ClientData,
    time: np.ndarray,
    starts: np.ndarray,
    config: RunConfig,
    *,
    interval: float | None = None,
    model: LocalModel | None = None,
    is_filtered: bool = True,
) -> ClientSide:
    """Take out what repeats, identify unless the local model is known, and compute the states.

    The data are on the common time axis; without an interval (ticks per step) the median step is
    used. With `is_filtered` filtered states are wanted too, for FedGC's rounds.
    """
    data, season, notes = take_out(data, time, config, interval=interval)
    model = model or identify_client(data, starts, config)
    states, observed = _states(data, model)
    share = noise_share(data, starts, model)
    whole = StateMessage(jax_array(states), jax_array(observed))
    window = resolve_window(config, len(time) - 1)
    return ClientSide(
        data,
        model,
        states,
        observed,
        hello=state_hello(whole, model, starts, period_steps(season), share),
        season=season,
        starts=starts,
        interval=float(np.median(step_lengths(time))),
        notes=notes,
        for_rounds=prepare_client(data, starts, config, window, model) if is_filtered else None,
    )


def resolve_window(config: RunConfig, num_pairs: int) -> int:
    """Time steps per round: the option, or all of them."""
    return max(num_pairs, 1) if config.window == "full" else min(config.window, num_pairs)


def _states(data: ClientData, model: LocalModel) -> tuple[np.ndarray, np.ndarray]:
    """All states at once, so that the size of messages cannot change a bit of them."""
    parts = [
        state_message(data, model, begin, min(begin + CHUNK_STEPS, len(data.values)))
        for begin in range(0, len(data.values), CHUNK_STEPS)
    ]
    return (
        np.concatenate([np.asarray(part.states) for part in parts]),
        np.concatenate([np.asarray(part.is_observed) for part in parts]),
    )
