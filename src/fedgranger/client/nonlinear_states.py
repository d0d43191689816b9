"""A client's own nonlinear model in neural training: the states it filters and what it expects.

With `transition` = "network" or "gp" the client's h_c come from an extended Kalman filter with a
fitted transition f (`nonlinear_client`) instead of the Kalman filter of its linear model, and its
loss goes through g(f(h)). The server's own part of a row stays linear, as in the linear method: the
A_mm that it receives is the mean of f's Jacobian over the record; what f bends, the row's network
finds in the client's own states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from fedgranger import priors
from fedgranger.client.extended_kalman import NonlinearModel
from fedgranger.client.kalman import FilteredData, filter_data
from fedgranger.client.neural_augment import Prediction
from fedgranger.client.neural_learner import LinearPrediction
from fedgranger.client.nonlinear_client import fit_nonlinear_client
from fedgranger.client.prepared_client import PreparedClient
from fedgranger.config import RunConfig
from fedgranger.data.client_data import ClientData
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.messages import ClientHello


class NonlinearPrediction(eqx.Module):
    """g(f(h))."""

    model: NonlinearModel

    def __call__(self, state: Float[Array, " state_dim"]) -> Float[Array, " obs_dim"]:
        """The next measurement."""
        return self.model.observation(self.model.transition(state))


class OwnModel(NamedTuple):
    """What neural training uses of a client's own model.

    Attributes:
        prepared: its filtered states, and the A_mm that the server receives.
        predict: the next measurement that a state makes it expect.
        filter: from measurements of the same sensors to their filtered states.
        notes: sentences for the people at the site.
    """

    prepared: PreparedClient
    predict: Prediction
    filter: Callable[[ClientData], FilteredData]
    notes: tuple[str, ...] = ()


def own_model(
    prepared: PreparedClient, client: ClientData, starts: np.ndarray, config: RunConfig
) -> OwnModel:
    """The model that the options ask for; `prepared` has the linear one."""
    linear = prepared.data.model
    if config.transition == "linear":
        predict = LinearPrediction(jax_array(linear.predicted_observation))
        return OwnModel(prepared, predict, lambda data: filter_data(data, linear, starts))
    key = priors.named_key(jax.random.key(0), "transition", client.name)
    found = fit_nonlinear_client(
        client,
        transition=config.transition,
        segment_starts=starts,
        linear=linear,
        key=key,
    )

    def filtered(data: ClientData) -> FilteredData:
        states = np.asarray(found.filter(data, starts).filtered_states)
        return filter_data(data, linear, starts)._replace(filtered_states=states)

    A = np.asarray(found.states.transition_jacobians).mean(axis=0)
    data = prepared.data._replace(filtered_states=np.asarray(found.states.filtered_states))
    hello = ClientHello(jax_array(A), prepared.hello.state_gain)
    notes = tuple(note for note in found.notes if note not in linear.notes)
    predict = NonlinearPrediction(found.model)
    return OwnModel(prepared._replace(data=data, hello=hello), predict, filtered, notes)
