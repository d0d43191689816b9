"""Studies of noise that clients add to their states: what a run tests when they do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from fedgranger.client.client_side import set_up_client
from fedgranger.client.params import LocalModel
from fedgranger.client.state_noise import own_order
from fedgranger.config import RunConfig
from fedgranger.data.align import regular_panel
from fedgranger.data.finishing import with_findings
from fedgranger.data.panel import Panel
from fedgranger.federation.direct import source_of_clients
from fedgranger.federation.protocol import Tested, run_tests
from fedgranger.inference.states import CHUNK_STEPS, StateChunk, StateSource

STREAM = 5
"""Keeps the noise apart from other draws of the same seed."""


def with_added_noise(source: StateSource, level: float, seed: int) -> StateSource:
    """Add Gaussian noise whose s.d. is `level` times each state's; its covariance is known.

    How far back a client's own past matters is found on the noisy states, which tell nothing more
    than they do anyway.
    """
    if not level:
        return source
    chunks, rng = list(source.chunks()), np.random.default_rng([STREAM, seed])
    states = np.concatenate([chunk.states for chunk in chunks])
    observed = np.concatenate([chunk.observed for chunk in chunks])
    starts = np.concatenate([chunk.starts for chunk in chunks])
    there = observed[:, source.owner]
    spread = level * np.std(states, axis=0, where=there)
    states = np.where(there, states + rng.normal(size=states.shape) * spread, 0.0)
    own = [np.flatnonzero(source.owner == m) for m in range(len(source.dims))]
    return source._replace(
        chunks=lambda: _chunks(states, observed, starts),
        added_covs=tuple(np.diag(spread[k] ** 2) for k in own),
        own_lags=tuple(own_order(states[:, k], observed[:, m], starts) for m, k in enumerate(own)),
    )


def infer_with_added_noise(
    panel: Panel,
    config: RunConfig,
    level: float,
    seed: int,
    models: Mapping[str, LocalModel] | None = None,
) -> Tested:
    """The edge tests of a fit whose clients add noise to their states; FedGC is not trained."""
    with jax.enable_x64(True), threadpool_limits(1):
        source = sent_states(panel, config, models or {})
        return run_tests(config, with_added_noise(source, level, seed))


def sent_states(panel: Panel, config: RunConfig, models: Mapping[str, LocalModel]) -> StateSource:
    """The states that the clients of a fit send, as its server has them."""
    regular = regular_panel(with_findings(panel))
    panel, names = regular.panel, tuple(sorted(panel.names))
    starts = panel.segment_starts
    sides = [
        set_up_client(
            panel[name],
            panel.time,
            starts,
            config,
            interval=regular.interval,
            model=models.get(name),
            is_filtered=False,
        )
        for name in names
    ]
    return source_of_clients(sides)


def _chunks(states: np.ndarray, observed: np.ndarray, starts: np.ndarray) -> Iterator[StateChunk]:
    for first in range(0, len(starts), CHUNK_STEPS):
        rows = slice(first, first + CHUNK_STEPS)
        yield StateChunk(states[rows], observed[rows], starts[rows])
