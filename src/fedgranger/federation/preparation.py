"""From a party's data to what it may be asked for: its states, and its part of the rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from fedgranger.client.learner import Learner, make_learner
from fedgranger.client.params import LocalModel
from fedgranger.client.prepared_client import identify_client, initial_augmentation, prepare_client
from fedgranger.client.season import Season, take_out
from fedgranger.client.state_noise import state_hello, state_message
from fedgranger.config import RunConfig
from fedgranger.data.panel import ClientData
from fedgranger.data.time_axis import LocalSeries, TimeGrid, grid_time, on_grid
from fedgranger.federation.options import ClientOptions
from fedgranger.inference.states import CHUNK_STEPS

__all__ = ["Preparation", "Prepared", "Start", "prepare_party", "seeded_preparation"]

Start = Callable[[tuple[int, int]], np.ndarray]
"""θ⁰ by its shape."""


class Prepared(NamedTuple):
    """A party's data on the common time axis, and what it can be asked for.

    Attributes:
        data: on the common axis, without what repeats.
        model: the local model; stays here.
        states: least-squares states, zero where missing.
        is_observed: the measurement was there.
        error_cov: of the states.
        own_lags: how far back its own past matters to it.
        learner: its part of FedGC's rounds; None when the run has none.
        client_hello: what it says before the first round.
        season: what repeats and was removed; of it only the whole steps leave.
        notes: sentences on the season, for the people at the site.
    """

    data: ClientData
    model: LocalModel
    states: np.ndarray
    is_observed: np.ndarray
    error_cov: np.ndarray
    own_lags: int
    learner: Learner | None
    client_hello: dict[str, np.ndarray]
    season: Season
    notes: tuple[str, ...]


Preparation = Callable[[LocalSeries, TimeGrid, ClientOptions, Start], Prepared]


def prepare_party(
    series: LocalSeries, grid: TimeGrid, options: ClientOptions, start: Start
) -> Prepared:
    """Put the data on the common time axis, take out what repeats, identify.

    Filtering is for FedGC's rounds only.
    """
    config, num_pairs = options.config, grid.num_steps - 1
    window = num_pairs if config.window == "full" else min(config.window, num_pairs)
    starts = grid.segment_starts
    with jax.enable_x64(True), threadpool_limits(1):  # as in one process, to the last bit
        data, season, notes = take_out(
            on_grid(series, grid), grid_time(grid), config, interval=float(grid.interval)
        )
        model = identify_client(data, starts, config)
        told = state_hello(data, model, starts, season.periods)
        states, observed = _states(data, model)
        learner, hello = None, {}
        if config.solver != "none":
            site = prepare_client(data, starts, config, window, model)
            theta = start(model.augmentation_shape)
            learner = make_learner(site, config, window, options.message_steps, theta)
            hello = {
                "self_transition": np.asarray(site.hello.self_transition),
                "state_gain": np.asarray(site.hello.state_gain),
            }
    error_cov, own_lags = np.asarray(told.error_cov), int(told.own_lags)
    return Prepared(
        data, model, states, observed, error_cov, own_lags, learner, hello, season, notes
    )


def seeded_preparation(config: RunConfig) -> Preparation:
    """The same with θ⁰ from the run's seed and prior, as in one process: for simulations only."""

    def prepare(
        series: LocalSeries, grid: TimeGrid, options: ClientOptions, start: Start
    ) -> Prepared:
        del start
        return prepare_party(
            series,
            grid,
            options,
            lambda shape: initial_augmentation(series.client.name, shape, config),
        )

    return prepare


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
