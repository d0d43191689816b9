"""From a client's data on the common time axis to everything that it may be asked for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgranger.client.kalman import CHUNK_STEPS
from fedgranger.client.learner import Learner, NewtonLearner, SgdLearner
from fedgranger.client.neural_learner import NeuralLearner, network_shape
from fedgranger.client.noise_limit import noise_share
from fedgranger.client.nonlinear_states import own_model
from fedgranger.client.params import LocalModel
from fedgranger.client.prepared_client import PreparedClient, identify_client, prepare_client
from fedgranger.client.present_sensors import FilledRows, fill_rows, sensor_model
from fedgranger.client.private_learner import PrivateLearner
from fedgranger.client.private_states import PrivateStates, protect_states
from fedgranger.client.season import period_steps, take_out
from fedgranger.client.state_noise import state_hello, state_message
from fedgranger.config import RunConfig
from fedgranger.data.client_data import ClientData, step_lengths
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.messages import StateHello, StateMessage
from fedgranger.normal_operation import Season
from fedgranger.privacy.release import SecretNoise


class ClientSide(NamedTuple):
    """A client's data on the common time axis, and what it can be asked for.

    Attributes:
        data: on the common axis, without what repeats.
        rows: the same, filled where the sensors that are there tell the state of a row.
        model: the local model; stays here.
        states: least-squares states as they are sent, in a private run with noise; zero where
            missing.
        is_observed: the measurement was there, or enough of its sensors.
        hello: what it sends before them.
        season: what repeats and was removed; of it only the whole steps leave.
        starts: steps that do not follow their predecessor.
        interval: ticks per step.
        notes: sentences on the season and on missing sensors, for the people at the site.
        for_rounds: filtered states and step sizes, for FedGC's rounds; None when the run has none.
        learner: its part of the rounds, with its θ⁰; None until it is made.
        protected: how the states were clipped and what noise they got; None without privacy.
    """

    data: ClientData
    rows: FilledRows
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
    protected: PrivateStates | None = None


def set_up_client(
    data: ClientData,
    time: np.ndarray,
    starts: np.ndarray,
    config: RunConfig,
    *,
    interval: float | None = None,
    model: LocalModel | None = None,
    is_filtered: bool = True,
    noise: SecretNoise | None = None,
) -> ClientSide:
    """Take out what repeats, identify unless the local model is known, and compute the states.

    The data are on the common time axis; without an interval (ticks per step) the median step is
    used. With `is_filtered` filtered states are wanted too, for FedGC's rounds. `noise` is what
    only this client can draw; a private run needs it.
    """
    data, season, notes = take_out(data, time, config, interval=interval)
    model = model or identify_client(data, starts, config)
    rows = fill_rows(data, sensor_model(model))
    states, observed = _states(rows.data, model)
    terms, sent = config.client_terms, None
    if terms is None:
        share = noise_share(rows, starts, model)
    else:  # from here on nothing sees the states without noise
        sizes = terms.sizes(
            model.state_dim,
            len(states),
            has_tests=config.test != "none",
            has_rounds=config.solver != "none",
        )
        share = 1.0 if model.is_declared else model.noise_share
        if noise is None:
            raise RuntimeError("a private run needs a source of noise")
        if config.test == "none":
            states = np.zeros_like(states)
        else:
            sent = protect_states(states, observed, model, terms, sizes, noise, data.treatment)
            states = sent.states
    whole = StateMessage(jax_array(states), jax_array(observed))
    window = config.round_steps(len(time) - 1)
    return ClientSide(
        data,
        rows,
        model,
        states,
        observed,
        hello=state_hello(
            whole,
            rows.error_cov,
            starts,
            period_steps(season),
            share,
            is_declared=model.is_declared,
            added_cov=None if sent is None else sent.added_cov,
            clipped_share=0.0 if sent is None else sent.clipped_share,
        ),
        season=season,
        starts=starts,
        interval=float(np.median(step_lengths(time))),
        notes=(*notes, rows.note) if rows.note else notes,
        for_rounds=prepare_client(data, starts, config, window, model) if is_filtered else None,
        protected=sent,
    )


def with_learner(
    side: ClientSide,
    config: RunConfig,
    message_steps: int,
    start: np.ndarray,
    noise: SecretNoise | None = None,
) -> ClientSide:
    """Add the client's part of FedGC's rounds, from this θ⁰."""
    prepared = side.for_rounds
    if prepared is None:
        return side
    if config.training_solver == "neural":
        own = own_model(prepared, side.data, side.starts, config)
        learner = NeuralLearner(own.prepared, config, start, side.starts, own.predict)
        notes = (*side.notes, *own.notes)
        return side._replace(learner=learner, for_rounds=own.prepared, notes=notes)
    if config.client_terms is None:
        if config.training_solver == "newton":
            return side._replace(learner=NewtonLearner(prepared, config, message_steps, start))
        window = config.round_steps(len(side.starts) - 1)
        return side._replace(learner=SgdLearner(prepared, config, window, start))
    if noise is None:
        raise RuntimeError("a private run needs a source of noise")
    learner = PrivateLearner(
        side.rows.data, side.starts, prepared, config, message_steps, start, noise
    )
    prepared = prepared._replace(hello=learner.hello())
    return side._replace(learner=learner, for_rounds=prepared)


def start_shape(model: LocalModel, config: RunConfig) -> tuple[int, ...]:
    """Shape of θ⁰: states by sensors, or the weights of a network as one vector."""
    if config.training_solver == "neural":
        return (network_shape(model.num_sensors, model.state_dim, config).num_weights,)
    return model.augmentation_shape


def _states(data: ClientData, model: LocalModel) -> tuple[np.ndarray, np.ndarray]:
    """All states at once, so that the size of messages cannot change a bit of them."""
    parts = [
        state_message(data, model, begin, begin + CHUNK_STEPS)
        for begin in range(0, len(data.values), CHUNK_STEPS)
    ]
    return (
        np.concatenate([np.asarray(part.states) for part in parts]),
        np.concatenate([np.asarray(part.is_observed) for part in parts]),
    )
