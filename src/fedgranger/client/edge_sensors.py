r"""Which of a client's sensors show an edge best, and what they have to do with its states.

Sensor i of a client is \(y_i = \text{scale}_i\, C_i s\) beside its noise. A shock that raises
sensor j of the cause by one unit moves its states as such shocks usually do,

$$\delta_j = \frac{u_j}{\text{scale}_j}, \qquad u_j = \frac{\Sigma C_j^\top}{C_j \Sigma C_j^\top},$$

with Σ the covariance of what is new in the states (generalised impulse responses, Pesaran and Shin
1998: the other sensors of the cause move along). Sensor i of the effect then changes by
\(\text{scale}_i\, C_i \Psi_h \delta_j\) after h steps. Of the cause the sensor is shown that
follows the edge's strongest shock most closely, of the effect the one that moves most against its
own standard deviation.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fedgranger.client.params import LocalModel
from fedgranger.data.client_data import ClientData
from fedgranger.messages import SHOWN_SENSORS, EdgeMessage, Sensor, ShownSensor
from fedgranger.text import with_unit


def shown_sensors(
    data: ClientData, model: LocalModel, message: EdgeMessage, *, is_cause: bool
) -> list[ShownSensor]:
    """The sensor that shows each edge best on this side: its row is u_j, or C_i of an effect."""
    C, cov = model.observation_matrix, message.cov
    out = []
    for direction, course in zip(message.directions, message.courses, strict=True):
        found = sensor_correlations(model, cov, direction)
        if is_cause:
            place = int(np.abs(found).argmax())
            row = unit_shock(model, cov, place)
        else:
            place = int(np.abs(C @ course.T).max(axis=1).argmax())
            row = C[place]
        order = np.argsort(-np.abs(found), kind="stable")[:SHOWN_SENSORS]
        name = data.sensors[place]
        is_change, scale = name in data.treatment.differenced, float(model.scale[place])
        out.append(
            ShownSensor(
                Sensor(with_unit(name, data.units), is_change, scale),
                row,
                tuple((data.sensors[k], round(float(found[k]), 3)) for k in order),
            )
        )
    return out


def sensor_correlations(
    model: LocalModel, cov: Float[np.ndarray, "p p"], direction: Float[np.ndarray, " p"]
) -> Float[np.ndarray, " sensor"]:
    """Correlation of every sensor, with its noise, with a unit combination of states.

    `cov` is that of the states or of what is new in them, `direction` their covariance with the
    combination.
    """
    C, noise = model.observation_matrix, np.diag(model.measurement_cov)
    variance = np.einsum("ij,jk,ik->i", C, cov, C) + noise
    return C @ direction / np.sqrt(np.maximum(variance, np.finfo(float).tiny))


def unit_shock(
    model: LocalModel, shock_cov: Float[np.ndarray, "p p"], sensor: int
) -> Float[np.ndarray, " p"]:
    """What the states do when one sensor is raised by its standard deviation: its u."""
    row = model.observation_matrix[sensor]
    variance = row @ shock_cov @ row
    return shock_cov @ row / variance if variance > 0 else np.zeros(len(row))
