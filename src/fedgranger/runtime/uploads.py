"""The clients' one upload for the edge tests, as the server sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from fedgranger.client.params import LocalModel
from fedgranger.client.state_noise import state_hello, state_message
from fedgranger.data.panel import Panel
from fedgranger.inference.states import CHUNK_STEPS, StateChunk, StateSource

KEPT_BYTES = 64 * 2**20
"""States up to this size are kept between passes instead of being computed again."""


def state_source(
    panel: Panel, models: Mapping[str, LocalModel], periods: Mapping[str, np.ndarray] | None = None
) -> StateSource:
    """Read every client's `StateMessage`s chunk by chunk, as often as asked; sorted by name.

    Args:
        panel: the data, seasons taken out.
        models: every client's local model.
        periods: whole steps after which what a client took out repeats, by client.
    """
    names = tuple(sorted(panel.names))
    starts = panel.segment_starts

    def read() -> Iterator[StateChunk]:
        for start in range(0, panel.num_steps, CHUNK_STEPS):
            stop = min(start + CHUNK_STEPS, panel.num_steps)
            messages = [state_message(panel[name], models[name], start, stop) for name in names]
            yield StateChunk(
                np.concatenate([np.asarray(message.states) for message in messages], axis=1),
                np.stack([np.asarray(message.is_observed) for message in messages], axis=1),
                starts[start:stop],
            )

    dims = tuple(models[name].state_dim for name in names)
    kept: list[StateChunk] = []

    def chunks() -> Iterator[StateChunk]:
        if 8 * sum(dims) * panel.num_steps > KEPT_BYTES:
            return read()
        if not kept:
            kept.extend(read())
        return iter(kept)

    steps = {} if periods is None else periods
    hellos = [state_hello(panel[name], models[name], starts, steps.get(name)) for name in names]
    return StateSource(
        names,
        dims,
        tuple(np.asarray(hello.error_cov) for hello in hellos),
        chunks,
        panel.num_steps,
        tuple(int(hello.own_lags) for hello in hellos),
        tuple(int(step) for hello in hellos for step in np.asarray(hello.periods)),
        tuple(name for name in names if models[name].is_declared),
    )
