r"""How much of a client's measurement noise the spectrum of its own states allows.

Identification calls everything noise that the states do not explain, a sensor's own slow movement
included; only its white part may be taken out of the states' moments. The share c of the states'
error covariance E that can be white comes from their spectrum (`linalg.noise_floor`).

The model is then changed in the directions of the states alone,

$$R_c = R - (1 - c)\, C E C^\top,$$

which leaves the least-squares states as they are, makes their error covariance cE, and together
with \(G_0 = E[ss^\top] - cE\) leaves the covariance of the sensors that the model implies
unchanged (cR would shrink it in the directions that no state explains).
"""

from __future__ import annotations

import numpy as np

from fedgranger.client.params import LocalModel
from fedgranger.client.present_sensors import FilledRows, SensorModel, sensor_model
from fedgranger.client.state_noise import state_readout
from fedgranger.linalg.noise_floor import LagMoments, NoiseFloor, noise_floor, order_for
from fedgranger.linalg.psd import symmetrise
from fedgranger.linalg.unbroken_steps import unbroken_steps

CHUNK_STEPS = 16_384


def client_noise_floor(
    rows: FilledRows, segment_starts: np.ndarray, sensors: SensorModel
) -> NoiseFloor:
    """Share of E that the spectrum of the client's least-squares states allows.

    Of rows that lack sensors E is the mean (`present_sensors`). Too short a recording contradicts
    nothing: the share is then 1.
    """
    W = state_readout(sensors.observation_matrix, sensors.measurement_cov).weights
    E, values, there = rows.error_cov, rows.data.values, rows.data.row_observed
    states = np.zeros((len(values), len(E)))
    for k in range(0, len(states), CHUNK_STEPS):
        at = slice(k, k + CHUNK_STEPS)
        y = np.where(there[at, None], (values[at] - sensors.centre) / sensors.scale, 0.0)
        states[at] = y @ W.T
    lags = order_for(int(there.sum()), len(E))
    while lags > 0:
        moments = state_lag_moments(states, there, segment_starts, lags)
        if order_for(moments.num_windows, len(E)) >= lags:
            return noise_floor(moments, E)
        lags -= 1  # gaps leave too few unbroken stretches of that length
    return NoiseFloor(1.0, 1.0, 1.0)


def noise_share(rows: FilledRows, segment_starts: np.ndarray, model: LocalModel) -> float:
    """What a client says of its noise: `messages.StateHello`."""
    if not model.is_declared:
        return model.noise_share
    return client_noise_floor(rows, segment_starts, sensor_model(model)).share


def state_lag_moments(
    states: np.ndarray, complete: np.ndarray, segment_starts: np.ndarray, lags: int
) -> LagMoments:
    """Moments over all unbroken stretches of `lags` + 1 complete steps."""
    p = states.shape[1]
    unbroken = unbroken_steps(np.zeros(1, dtype=np.int64), complete[:, None], segment_starts)
    last = np.flatnonzero(unbroken[:, 0] > lags)
    total = np.zeros(((lags + 1) * p, (lags + 1) * p))
    for k in range(0, len(last), CHUNK_STEPS):
        at = last[k : k + CHUNK_STEPS]
        window = np.concatenate([states[at - j] for j in range(lags + 1)], axis=1)
        total += window.T @ window
    total /= max(len(last), 1)
    return LagMoments(total[p:, p:], total[:p, p:], total[:p, :p], len(last))


def limited_noise(
    observation_matrix: np.ndarray, measurement_cov: np.ndarray, share: float
) -> np.ndarray:
    """Return R − (1 − c) C E Cᵀ."""
    if share >= 1:
        return measurement_cov
    C = observation_matrix
    E = state_readout(C, measurement_cov).error_cov
    return symmetrise(measurement_cov - (1 - share) * C @ E @ C.T)


def share_in_words(client: str, share: float) -> str:
    """A sentence on what a share means."""
    percent = f"{100 * share:.0f} %" if share >= 0.01 else "less than 1 %"
    return (
        f"of the scatter among {client}'s sensors {percent} can be white noise, as their states' "
        "spectrum shows; only that is taken out of the states"
    )
