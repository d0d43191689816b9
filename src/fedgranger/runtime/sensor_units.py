r"""What is new in a client per step, in the units of one of its sensors.

The positive control is given in innovation s.d. of the effect. Where the effect's local model is
known (a run in one process), its states reach sensor i through row i of C and the sensor's scale,
so one innovation s.d. is

$$\text{scale}_i \sqrt{C_i \Sigma C_i^\top}$$

in the sensor's own units, with Σ the covariance of what is new in the states. The sensor that the
states explain best stands for the client. The server of a federated run knows no sensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedgranger.client.params import LocalModel


def sensor_innovation(model: LocalModel, innovation_cov: np.ndarray, sensor: int) -> float:
    """One innovation s.d. of the client, seen by that sensor, in the sensor's units."""
    row = model.observation_matrix[sensor]
    return float(model.scale[sensor] * np.sqrt(max(row @ innovation_cov @ row, 0.0)))


def add_sensor_units(
    facts: dict[str, Any], models: Mapping[str, LocalModel], clients: Mapping[str, Any]
) -> None:
    """Add `innovation_sensor` to the facts of a test, and of the other one beside it.

    Args:
        facts: of a test; without `innovation_cov` nothing is added.
        models: local model of every client.
        clients: their part of the manifest, with `local_fit` and `treatment`.
    """
    if facts.get("beside"):
        add_sensor_units(facts["beside"], models, clients)
    covs = facts.get("innovation_cov")
    if not covs:
        return
    facts["innovation_sensor"] = {}
    for name, cov in covs.items():
        sensors = clients[name]["local_fit"]["sensors"]
        shares = [-np.inf if row["explained"] is None else row["explained"] for row in sensors]
        best = int(np.argmax(shares))
        sensor = sensors[best]["name"]
        facts["innovation_sensor"][name] = {
            "sensor": sensor,
            "innovation": float(f"{sensor_innovation(models[name], np.array(cov), best):.6g}"),
            "is_change": sensor in clients[name]["treatment"]["differenced"],
        }
