"""The clients' one upload for the edge tests, as the server sees it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedgranger.client.noise_limit import noise_share
from fedgranger.client.params import LocalModel
from fedgranger.client.present_sensors import FilledRows, fill_rows, sensor_model
from fedgranger.client.state_noise import state_hello, state_message
from fedgranger.data.panel import Panel
from fedgranger.inference.states import CHUNK_STEPS, StateChunk, StateSource
from fedgranger.messages import StateHello


def state_source(panel: Panel, models: Mapping[str, LocalModel]) -> StateSource:
    """Every client's `StateMessage`s side by side, sorted by name; `panel` is without seasons."""
    names, starts = tuple(sorted(panel.names)), panel.segment_starts
    rows = {name: fill_rows(panel[name], sensor_model(models[name])) for name in names}
    chunks = []
    for start in range(0, panel.num_steps, CHUNK_STEPS):
        stop = min(start + CHUNK_STEPS, panel.num_steps)
        messages = [state_message(rows[name].data, models[name], start, stop) for name in names]
        states = np.concatenate([np.asarray(message.states) for message in messages], axis=1)
        observed = np.stack([np.asarray(message.is_observed) for message in messages], axis=1)
        chunks.append(StateChunk(states, observed, starts[start:stop]))
    hellos = [_hello(rows[name], models[name], starts) for name in names]
    return StateSource(
        names,
        tuple(models[name].state_dim for name in names),
        tuple(np.asarray(hello.error_cov) for hello in hellos),
        lambda: iter(chunks),
        panel.num_steps,
        tuple(int(hello.own_lags) for hello in hellos),
        declared=tuple(name for name in names if models[name].is_declared),
        noise_shares=tuple(float(hello.noise_share) for hello in hellos),
    )


def _hello(rows: FilledRows, model: LocalModel, starts: np.ndarray) -> StateHello:
    message = state_message(rows.data, model, 0, len(rows.data.values))
    none, share = np.zeros(0, dtype=np.int64), noise_share(rows, starts, model)
    declared = model.is_declared
    return state_hello(message, rows.error_cov, starts, none, share, is_declared=declared)
