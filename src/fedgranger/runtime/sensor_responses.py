r"""What an edge does, in sensors and their units: computed where both local models are known.

Sensor i of a client is \(y_i = \text{scale}_i\, C_i s\) beside its noise. A shock that raises
sensor j of the cause by one unit moves its states as such shocks usually do,

$$\delta_j = \frac{\Sigma C_j^\top}{\text{scale}_j\, C_j \Sigma C_j^\top},$$

with Σ the covariance of what is new in the states (generalised impulse responses, Pesaran and Shin
1998: the other sensors of the cause move along). Sensor i of the effect then changes by
\(\text{scale}_i\, C_i \Psi_h \delta_j\) after h steps. Of the cause the sensor is shown that
follows the edge's strongest shock most closely, of the effect the one that moves most against its
own standard deviation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedgranger.client.params import LocalModel
from fedgranger.inference.edge_response import Curve, EdgeResponse, band

SHOWN_SENSORS = 3


class SensorResponse(NamedTuple):
    """How one sensor of the effect follows one of the cause that rose by one unit."""

    cause_sensor: int
    effect_sensor: int
    curve: Curve


def sensor_response(
    response: EdgeResponse, cause: LocalModel, effect: LocalModel, confidence: float
) -> SensorResponse:
    """The response of the two sensors that show the edge best."""
    _, shock = response.directions()
    j = closest_sensor(cause, response.shock_cov, shock)
    delta = unit_shock(cause, response.shock_cov, j)
    largest = np.abs(effect.observation_matrix @ (response.values[0] @ delta).T).max(axis=1)
    i = int(largest.argmax())
    return SensorResponse(j, i, response_between(response, cause, effect, j, i, confidence))


def response_between(
    response: EdgeResponse,
    cause: LocalModel,
    effect: LocalModel,
    cause_sensor: int,
    effect_sensor: int,
    confidence: float,
) -> Curve:
    """How a sensor of the effect follows a sensor of the cause that rose by one unit."""
    readout = effect.scale[effect_sensor] * effect.observation_matrix[effect_sensor]
    delta = unit_shock(cause, response.shock_cov, cause_sensor)
    return band(response.along(readout, delta), confidence)


def closest_sensor(model: LocalModel, shock_cov: np.ndarray, shock: np.ndarray) -> int:
    """The sensor whose news, with its noise, is correlated most with the size of a shock."""
    return int(np.abs(sensor_correlations(model, shock_cov, shock)).argmax())


def sensor_correlations(model: LocalModel, cov: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Correlation of every sensor with a unit combination of states.

    `cov` is that of the states or of what is new in them, `direction` their covariance with the
    combination.
    """
    C, noise = model.observation_matrix, np.diag(model.measurement_cov)
    variance = np.einsum("ij,jk,ik->i", C, cov, C) + noise
    return C @ direction / np.sqrt(np.maximum(variance, np.finfo(float).tiny))


def unit_shock(model: LocalModel, shock_cov: np.ndarray, sensor: int) -> np.ndarray:
    """δ of one sensor: what the states do when it is raised by one unit."""
    row = model.observation_matrix[sensor]
    return shock_cov @ row / (model.scale[sensor] * (row @ shock_cov @ row))


def response_facts(
    responses: dict[tuple[str, str], EdgeResponse],
    models: dict[str, LocalModel],
    sensors: Mapping[str, Sequence[str]],
    differenced: Mapping[str, Collection[str]],
    confidence: float,
) -> dict[str, dict[str, Any]]:
    """For the manifest: the two sensors of every edge and the response between them.

    `sensors` are the names of every client's, `differenced` those whose changes were taken.
    """
    out = {}
    for (cause, effect), response in responses.items():
        found = sensor_response(response, models[cause], models[effect], confidence)
        sides = ((cause, found.cause_sensor), (effect, found.effect_sensor))
        names = [sensors[name][place] for name, place in sides]
        pairs = zip((cause, effect), names, strict=True)
        changes = [sensor in differenced[name] for name, sensor in pairs]
        out[f"{cause} -> {effect}"] = found.curve.facts() | {
            "cause_sensor": names[0],
            "effect_sensor": names[1],
            "is_change": changes,
            **_sensors_behind(response, (cause, effect), models, sensors),
        }
    return out


def _sensors_behind(
    response: EdgeResponse,
    edge: tuple[str, str],
    models: dict[str, LocalModel],
    sensors: Mapping[str, Sequence[str]],
) -> dict[str, list[tuple[str, float]]]:
    """The sensors that follow the two sides of an edge most closely, with their correlations."""
    readout, shock = response.directions()
    sides = ((response.shock_cov, shock), (response.state_cov, response.state_cov @ readout))
    out = {}
    for side, name, (cov, direction) in zip(("cause", "effect"), edge, sides, strict=True):
        found = sensor_correlations(models[name], cov, direction)
        order = np.argsort(-np.abs(found), kind="stable")[:SHOWN_SENSORS]
        out[f"{side}_sensors"] = [(sensors[name][k], round(float(found[k]), 3)) for k in order]
    return out
