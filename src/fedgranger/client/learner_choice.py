"""Which learner a client has, and how many numbers it begins with."""

from __future__ import annotations

import numpy as np

from fedgranger.client.learner import Learner, NewtonLearner, SgdLearner
from fedgranger.client.neural_learner import NeuralLearner, network_shape
from fedgranger.client.params import LocalModel
from fedgranger.client.prepared_client import PreparedClient
from fedgranger.config import RunConfig


def start_shape(model: LocalModel, config: RunConfig) -> tuple[int, ...]:
    """Shape of θ⁰: states by sensors, or the weights of a network as one vector."""
    if config.training_solver == "neural":
        return (network_shape(model.num_sensors, model.state_dim, config).num_weights,)
    return model.augmentation_shape


def make_learner(
    prepared: PreparedClient,
    config: RunConfig,
    window: int,
    message_steps: int,
    start: np.ndarray,
    starts: np.ndarray,
) -> Learner:
    """The learner that the options ask for, with its θ⁰; `starts`: steps after a break."""
    if config.training_solver == "newton":
        return NewtonLearner(prepared, config, message_steps, start)
    if config.training_solver == "neural":
        return NeuralLearner(prepared, config, start, starts)
    return SgdLearner(prepared, config, window, start)
