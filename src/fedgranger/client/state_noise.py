r"""Least-squares states of a client and what measurement noise does to their moments.

With \(s = (C^\top R^{-1} C)^{-1} C^\top R^{-1} y\) the client sees \(s = h + \text{error}\), the
error white in time with covariance \(E = (C^\top R^{-1} C)^{-1}\).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.linalg

from fedgranger.client.own_past import own_order
from fedgranger.client.params import LocalModel
from fedgranger.data.panel import ClientData
from fedgranger.linalg.psd import symmetrise
from fedgranger.messages import StateHello, StateMessage


class StateReadout(NamedTuple):
    """Matrix that maps measurements to least-squares states, and their error covariance."""

    weights: np.ndarray
    error_cov: np.ndarray


def state_readout(observation_matrix: np.ndarray, measurement_cov: np.ndarray) -> StateReadout:
    """Return (CᵀR⁻¹C)⁻¹CᵀR⁻¹ and (CᵀR⁻¹C)⁻¹; with R = 0 the pseudo-inverse and zero."""
    C, R = observation_matrix, measurement_cov
    p = C.shape[1]
    if not R.any():
        return StateReadout(np.linalg.pinv(C), np.zeros((p, p)))
    scale = np.sqrt(np.diag(R))  # solve in units of the noise, whatever units the sensors have
    weighted = scipy.linalg.solve(R / np.outer(scale, scale), C / scale[:, None], assume_a="pos")
    weighted /= scale[:, None]
    E = symmetrise(np.linalg.inv(C.T @ weighted))
    return StateReadout(E @ weighted.T, E)


def state_hello(
    client: ClientData, model: LocalModel, starts: np.ndarray, periods: np.ndarray | None = None
) -> StateHello:
    """What a client sends once before its least-squares states.

    Args:
        client: its data.
        model: its local model.
        starts: time steps that do not follow their predecessor.
        periods: whole steps after which what it took out of its data repeats.
    """
    E = state_readout(model.observation_matrix, model.measurement_cov).error_cov
    message = state_message(client, model, 0, len(client.values))
    order = own_order(np.asarray(message.states), np.asarray(message.is_observed), starts)
    steps = np.zeros(0, dtype=np.int64) if periods is None else periods
    return StateHello(jnp.asarray(E), jnp.asarray(order), jnp.asarray(steps))


def state_message(client: ClientData, model: LocalModel, start: int, stop: int) -> StateMessage:
    """Least-squares states of the time steps `start:stop`; a row with a gap is missing."""
    W = state_readout(model.observation_matrix, model.measurement_cov).weights
    observed = np.all(client.observed[start:stop], axis=1)
    y = np.where(observed[:, None], model.scaled(client.values[start:stop]), 0.0)
    return StateMessage(jnp.asarray(y @ W.T), jnp.asarray(observed))
