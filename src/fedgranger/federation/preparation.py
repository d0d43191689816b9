"""What a client of a federation prepares from its own file once the common time axis is known."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from fedgranger.client.client_side import ClientSide, resolve_window, set_up_client
from fedgranger.client.learner import make_learner
from fedgranger.client.prepared_client import initial_augmentation
from fedgranger.config import RunConfig
from fedgranger.data.time_axis import LocalSeries, TimeGrid, grid_time, on_grid
from fedgranger.federation.agreed_options import ClientOptions

Start = Callable[[tuple[int, int]], np.ndarray]
"""θ⁰ by its shape."""
Preparation = Callable[[LocalSeries, TimeGrid, ClientOptions, Start], ClientSide]


def prepare_party(
    series: LocalSeries, grid: TimeGrid, options: ClientOptions, start: Start
) -> ClientSide:
    """Put the data on the common time axis and prepare; filter only for FedGC's rounds."""
    config = options.config
    with jax.enable_x64(True), threadpool_limits(1):  # as in one process, to the last bit
        found = set_up_client(
            on_grid(series, grid),
            grid_time(grid),
            grid.segment_starts,
            config,
            interval=float(grid.interval),
            is_filtered=config.solver != "none",
        )
        if found.for_rounds is None:
            return found
        window = resolve_window(config, grid.num_steps - 1)
        theta = start(found.model.augmentation_shape)
        learner = make_learner(found.for_rounds, config, window, options.message_steps, theta)
        return found._replace(learner=learner)


def seeded_preparation(config: RunConfig) -> Preparation:
    """The same with θ⁰ from the run's seed and prior, as in one process: for simulations only."""

    def prepare(
        series: LocalSeries, grid: TimeGrid, options: ClientOptions, start: Start
    ) -> ClientSide:
        del start
        return prepare_party(
            series,
            grid,
            options,
            lambda shape: initial_augmentation(series.client.name, shape, config),
        )

    return prepare
