r"""A nonlinear client from data: C of the linear local model as g, a fitted transition as f.

1. The linear model (`identify`) gives C, R and the least-squares states s with error covariance E.
2. The extended Kalman filter runs, at first with \(f(h) = A h\).
3. f is fitted from the filtered states to the next least-squares states. Their residuals have
   covariance \(\overline{F P F^\top} + Q + E\), from which Q follows.
4. Steps 2 and 3 are repeated with the new f and Q.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from fedgranger.client.extended_kalman import (
    ExtendedStates,
    NonlinearModel,
    filter_nonlinear,
    shape_of,
)
from fedgranger.client.identify import PROCESS_FLOOR, identify
from fedgranger.client.params import LocalModel, check_model
from fedgranger.client.state_noise import state_readout
from fedgranger.client.transition_models import (
    LinearTransition,
    TransitionPairs,
    fit_transition,
    transition_pairs,
)
from fedgranger.data.client_data import ClientData
from fedgranger.errors import ConfigError, DataError, ModelError
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.linalg.psd import project
from fedgranger.text import format_share

NOISE_FLOOR = 1e-6
"""Noise of a sensor, as a share of its variance, where the linear model has none."""


class NonlinearClient(NamedTuple):
    """A fitted nonlinear client.

    Attributes:
        linear: the linear local model: C, R, centre and scale are its.
        model: f, g, Q and R in the linear model's units.
        states: the record, filtered.
        notes: sentences on repairs.
    """

    linear: LocalModel
    model: NonlinearModel
    states: ExtendedStates
    notes: tuple[str, ...]

    def filter(
        self, client: ClientData, segment_starts: np.ndarray | None = None
    ) -> ExtendedStates:
        """Filter data of the same sensors, new ones too."""
        check_model(client.name, self.linear, client.num_sensors)
        starts = _starts(client, segment_starts)
        return filter_nonlinear(self.model, *_measurements(client, self.linear), starts)


def fit_nonlinear_client(
    client: ClientData,
    *,
    transition: str | Callable = "network",
    segment_starts: np.ndarray | None = None,
    linear: LocalModel | None = None,
    state_dim: int | str = "auto",
    key: PRNGKeyArray | None = None,
    num_rounds: int = 2,
) -> NonlinearClient:
    """Fit a transition to one client's data and filter them with it.

    Nothing leaves the client; no other client is needed.

    Args:
        client: its measurements; seasons and trends should be taken out before.
        transition: `linear`, `network`, `gp`, or a function of the states (p,) of yours.
        segment_starts: where the record is broken (`Panel.segment_starts`); None: nowhere.
        linear: the linear local model; None: it is identified.
        state_dim: number of states when it is identified.
        key: for the network; None: `jax.random.key(0)`.
        num_rounds: how often f and Q are fitted to the states that the filter gives.

    Returns:
        The model, the filtered record and notes.

    Raises:
        ModelError: the linear model cannot be identified, or the filter diverged.
        DataError: too few consecutive complete rows, or segment_starts of another record.
        ConfigError: an unknown transition, or its library is not installed.
    """
    if num_rounds < 1:
        raise ConfigError(f"num_rounds is {num_rounds}; at least 1 is needed")
    starts = _starts(client, segment_starts)
    linear = linear or identify(client, starts, state_dim=state_dim)
    check_model(client.name, linear, client.num_sensors)
    with jax.enable_x64(True):
        key = jax.random.key(0) if key is None else key
        try:
            if callable(transition):
                _check_transition(transition, linear.state_dim)
            return _fit(client, starts, linear, transition, key, num_rounds)
        except ModelError as error:
            raise ModelError(f"client '{client.name}': {error}") from None


def _fit(
    client: ClientData,
    starts: np.ndarray,
    linear: LocalModel,
    transition: str | Callable,
    key: PRNGKeyArray,
    num_rounds: int,
) -> NonlinearClient:
    """Alternate between filtering and fitting."""
    y, observed = _measurements(client, linear)
    complete = client.row_observed
    R, notes = _measurement_cov(linear, y[complete])
    W, E = state_readout(linear.observation_matrix, R)
    readings = y @ W.T
    cov = np.atleast_2d(np.cov(readings[complete], rowvar=False))
    floor = PROCESS_FLOOR * float(np.trace(cov)) / len(cov)
    initial = readings[complete].mean(axis=0), project(cov - E, floor).matrix
    model = NonlinearModel(
        LinearTransition.through_zero(linear.self_transition),
        LinearTransition.through_zero(linear.observation_matrix),
        *(linear.process_cov, R, *initial),
    )
    change = 0.0
    for number in range(num_rounds):
        states = filter_nonlinear(model, y, observed, starts)
        h, f = np.asarray(states.filtered_states), transition
        if not callable(f):
            own_key = jax.random.fold_in(key, number)
            f = fit_transition(f, h, starts, complete, own_key, targets=readings)
        pairs = transition_pairs(h, readings, starts, complete)
        follows = complete[:-1] & complete[1:] & ~starts[1:]
        carried = _carried_cov(f, pairs, np.asarray(states.filtered_covs)[:-1][follows])
        residuals = pairs.after - np.asarray(jax.vmap(f)(jax_array(pairs.before)))
        left = residuals.T @ residuals / len(residuals) - carried - E
        Q, change = project(left, floor)
        model = NonlinearModel(f, model.observation, _process_cov(f, Q), R, *initial)
    states = filter_nonlinear(model, y, observed, starts)
    if not np.isfinite(np.asarray(states.filtered_states)).all():
        raise ModelError(
            "the extended Kalman filter diverged; use transition='linear' or fewer states"
        )
    if change > 0:
        notes += (
            "the process covariance was not positive definite and was changed by "
            f"{format_share(change)} (relative norm): the sensors' noise explains all "
            "that f leaves",
        )
    return NonlinearClient(linear, model, states, linear.notes + notes)


def _carried_cov(transition: Callable, pairs: TransitionPairs, covs: np.ndarray) -> np.ndarray:
    """Mean of F P Fᵀ over the pairs: what the filter's own error leaves in the residuals."""
    F = np.asarray(jax.vmap(jax.jacfwd(transition))(jax_array(pairs.before)))
    return np.einsum("tij,tjk,tlk->il", F, covs, F) / len(F)


def _process_cov(transition: Callable, Q: np.ndarray) -> np.ndarray | Callable:
    """Q, with the posterior variance of a Gaussian process added."""
    from fedgranger.client.gaussian_process import GaussianProcessTransition, StateDependentCov

    if isinstance(transition, GaussianProcessTransition):
        return StateDependentCov(jax_array(Q), transition)
    return Q


def _check_transition(transition: Callable, state_dim: int) -> None:
    """Refuse a user's f before any state is given to it."""
    found = shape_of("transition", transition, np.zeros(state_dim))
    if found != (state_dim,):
        raise ModelError(
            f"transition gives shape {found}; with {state_dim} states ({state_dim},) is needed"
        )


def _starts(client: ClientData, segment_starts: np.ndarray | None) -> np.ndarray:
    if segment_starts is None:
        return np.arange(len(client.values)) == 0
    starts, steps = np.asarray(segment_starts), len(client.values)
    if starts.shape != (steps,) or starts.dtype != np.bool_:
        raise DataError(
            f"client '{client.name}': segment_starts is {starts.dtype} of shape {starts.shape}; "
            f"true or false is needed for each of the {steps} time steps (Panel.segment_starts)"
        )
    return starts


def _measurements(client: ClientData, linear: LocalModel) -> tuple[np.ndarray, np.ndarray]:
    """Measurements in the model's units, zero where missing, and what is there."""
    return np.where(client.observed, linear.scaled(client.values), 0.0), client.observed


def _measurement_cov(linear: LocalModel, rows: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """R; a little noise where the linear model says that there is none."""
    if linear.measurement_cov.any():
        return linear.measurement_cov, ()
    note = (
        f"the sensors have no noise of their own; {NOISE_FLOOR:g} of their variance was put there"
    )
    return NOISE_FLOOR * np.diag(np.maximum(rows.var(axis=0), 1e-300)), (note,)
