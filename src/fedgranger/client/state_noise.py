r"""Least-squares states of a client and what measurement noise does to their moments.

With \(s = (C^\top R^{-1} C)^{-1} C^\top R^{-1} y\) the client sees \(s = h + \text{error}\), the
error white in time with covariance \(E = (C^\top R^{-1} C)^{-1}\).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from fedgranger.client.params import LocalModel
from fedgranger.data.client_data import ClientData
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.linalg.psd import symmetrise, triangle
from fedgranger.linalg.unbroken_steps import unbroken_steps
from fedgranger.messages import StateHello, StateMessage

LARGEST_ORDER = 30
ROWS_PER_NUMBER = 5
"""At least so many rows for each coefficient of an equation."""
STEPS_AT_ONCE = 4096
"""Rows whose lags are in memory at once."""
ROUNDING = 1e-24
"""A smaller share of a state's energy is no remainder but rounding."""


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
    message: StateMessage,
    error_cov: np.ndarray,
    starts: np.ndarray,
    periods: np.ndarray,
    noise_share: float,
    *,
    is_declared: bool,
    added_cov: np.ndarray | None = None,
    clipped_share: float = 0.0,
) -> StateHello:
    """What a client sends once before its least-squares states, which are all in `message`.

    `error_cov` is the mean over the rows that are there (`present_sensors`); `periods` are the
    whole steps after which what it took out of its data repeats; `added_cov` is the covariance of
    the noise that it added to the states, None: none.
    """
    E = error_cov
    order = own_order(np.asarray(message.states), np.asarray(message.is_observed), starts)
    return StateHello(
        jax_array(E),
        jax_array(order),
        jax_array(periods),
        jax_array(is_declared),
        jax_array(noise_share),
        jax_array(np.zeros_like(E) if added_cov is None else added_cov),
        jax_array(clipped_share),
    )


def state_message(client: ClientData, model: LocalModel, start: int, stop: int) -> StateMessage:
    """Least-squares states of the time steps `start:stop`; rows are filled already, or missing."""
    W = state_readout(model.observation_matrix, model.measurement_cov).weights
    observed = np.all(client.observed[start:stop], axis=1)
    y = np.where(observed[:, None], model.scaled(client.values[start:stop]), 0.0)
    return StateMessage(jax_array(y @ W.T), jax_array(observed))


def own_order(
    states: np.ndarray, observed: np.ndarray, starts: np.ndarray, largest: int = LARGEST_ORDER
) -> int:
    r"""How far back a client's own past matters to it: the order of its autoregression.

    Every further lag costs it p² numbers instead of the P² that one common order for all clients
    would, so slow plants get the lags they need: with too few of them residuals stay predictable,
    and whatever moves slowly elsewhere seems to predict them. The order has the smallest

    $$\mathrm{BIC}(L) = \log\det\hat\Sigma_L + \frac{\log n}{n}\,p\,(1 + L p),$$

    all orders on the same rows, where the samples are `observed` and no step `starts` a segment.
    """
    p = states.shape[1]
    unbroken = unbroken_steps(np.zeros(1, dtype=np.int64), observed[:, None], starts)[:, 0]
    while largest > 1 and (unbroken > largest).sum() < ROWS_PER_NUMBER * (1 + largest * p):
        largest -= 1
    rows = np.flatnonzero(unbroken > largest)
    if len(rows) <= 1 + p:
        return 1
    R, n = np.zeros((0, 1 + (largest + 1) * p)), len(rows)
    for t in np.array_split(rows, -(-n // STEPS_AT_ONCE)):
        lagged = [states[t - k] for k in range(1, largest + 1)]
        R = triangle(np.vstack([R, np.hstack([np.ones((len(t), 1)), *lagged, states[t]])]))
    target = R[:, -p:]
    scores = []
    for order in range(1, largest + 1):
        rest = target[1 + order * p :]  # what the first columns leave of the states
        sign, log_det = np.linalg.slogdet(rest.T @ rest / n)
        is_rounding = bool(((rest**2).sum(axis=0) <= ROUNDING * (target**2).sum(axis=0)).any())
        if sign <= 0 or is_rounding:
            break
        scores.append(log_det + np.log(n) / n * p * (1 + order * p))
    return int(np.argmin(scores)) + 1 if scores else 1
