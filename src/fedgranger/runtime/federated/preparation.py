"""From a party's file to a party that is ready to learn."""

from __future__ import annotations

import jax
import numpy as np

from fedgranger.client.site import set_up_site
from fedgranger.client.state_noise import state_hello
from fedgranger.runtime.federated.learners import make_learner
from fedgranger.runtime.federated.options import FederationOptions
from fedgranger.runtime.federated.party import Prepared
from fedgranger.runtime.federated.timing import LocalSeries, TimeGrid, on_grid

__all__ = ["prepare_party"]


def prepare_party(series: LocalSeries, grid: TimeGrid, options: FederationOptions) -> Prepared:
    """Put the data on the common time axis, identify, filter, and build the learner."""
    config, num_pairs = options.config, grid.num_steps - 1
    window = num_pairs if config.window == "full" else min(config.window, num_pairs)
    starts = np.zeros(grid.num_steps, dtype=np.bool_)
    starts[:1] = True
    with jax.enable_x64(True):
        data = on_grid(series, grid)
        site = set_up_site(data, starts, config, window)
        learner = make_learner(site, config, window, options.message_steps)
        hello = {
            "self_transition": np.asarray(site.hello.self_transition),
            "state_gain": np.asarray(site.hello.state_gain),
            "error_cov": np.asarray(state_hello(site.stream.model).error_cov),
        }
    return Prepared(site, data, learner, hello)
