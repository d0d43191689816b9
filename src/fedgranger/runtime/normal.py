"""Learn what is normal at the end of a fit, for root-cause analysis later."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedgranger.client.monitor import fit_monitor
from fedgranger.data.panel import Panel, step_lengths
from fedgranger.errors import FedGrangerError
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.inference.reference import Reference, learn_reference
from fedgranger.inference.states import StateSource
from fedgranger.normal_operation import Monitor
from fedgranger.runtime.setup import Setup

__all__ = ["learn_normal"]


def learn_normal(
    panel: Panel, setup: Setup, source: StateSource, inference: EdgeInference | None
) -> tuple[dict[str, Monitor], Reference | None, dict[str, Any]]:
    """Fit every client's monitor and the server's reference; say why when that is not possible.

    Args:
        panel: the data, seasons taken out.
        setup: the clients.
        source: their states.
        inference: with tested edges only their causes may explain a client; without, all others.
    """
    models = {client.name: client.model for client in setup.client_data}
    try:
        monitors = {
            name: fit_monitor(panel[name], panel.segment_starts, model)
            for name, model in models.items()
        }
        allowed = None if inference is None else _tested(inference, setup.names)
        reference = learn_reference(source, allowed)
    except FedGrangerError as error:
        return {}, None, {"reason": str(error)}
    facts = {
        "explained_by": "all clients" if allowed is None else "edges",
        "interval": float(np.median(step_lengths(panel.time))),
    }
    return monitors, reference, facts


def _tested(inference: EdgeInference, names: tuple[str, ...]) -> np.ndarray:
    place = {name: k for k, name in enumerate(names)}
    allowed = np.zeros((len(names), len(names)), dtype=np.bool_)
    found = inference.edges.loc[inference.edges["is_edge"].fillna(False).astype(bool)]
    for cause, effect in zip(found["cause"], found["effect"], strict=True):
        allowed[place[effect], place[cause]] = True
    return allowed
