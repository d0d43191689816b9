"""Which learner a client has, and how many numbers it begins with."""

from __future__ import annotations

import numpy as np

from fedgranger.client.learner import Learner, NewtonLearner, SgdLearner
from fedgranger.client.neural_learner import NeuralLearner, network_shape
from fedgranger.client.nonlinear_states import OwnModel, own_model
from fedgranger.client.params import LocalModel
from fedgranger.client.prepared_client import PreparedClient
from fedgranger.config import RunConfig
from fedgranger.data.panel import ClientData


def start_shape(model: LocalModel, config: RunConfig) -> tuple[int, ...]:
    """Shape of θ⁰: states by sensors, or the weights of a network as one vector."""
    if config.training_solver == "neural":
        return (network_shape(model.num_sensors, model.state_dim, config).num_weights,)
    return model.augmentation_shape


def make_learner(
    prepared: PreparedClient, config: RunConfig, window: int, message_steps: int, start: np.ndarray
) -> Learner:
    """The linear learner that the options ask for, with its θ⁰."""
    if config.training_solver == "newton":
        return NewtonLearner(prepared, config, message_steps, start)
    return SgdLearner(prepared, config, window, start)


def make_neural_learner(
    prepared: PreparedClient,
    client: ClientData,
    config: RunConfig,
    start: np.ndarray,
    starts: np.ndarray,
) -> tuple[Learner, OwnModel]:
    """The neural learner with its first weights, and the client's own model that it uses."""
    own = own_model(prepared, client, starts, config)
    return NeuralLearner(own.prepared, config, start, starts, own.predict), own
