"""Everything one client prepares from its own data before the first round."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedgranger import priors
from fedgranger.client.augment import AugmentParams
from fedgranger.client.filtered_data import (
    FilteredData,
    filter_data,
    measured_moments,
    state_moments,
)
from fedgranger.client.identify import identify
from fedgranger.client.local_step_sizes import ClientStepSizes, choose_step_sizes
from fedgranger.client.params import LocalModel
from fedgranger.config import RunConfig
from fedgranger.data.panel import ClientData
from fedgranger.errors import DataError, UnstableRecursionError
from fedgranger.messages import ClientHello


class PreparedClient(NamedTuple):
    """A client that is ready to learn.

    Attributes:
        data: its filtered data and local model.
        hello: its message before the first round.
        step_sizes: η1, η2.
        second_moment: E[y yᵀ] in the model's units.
    """

    data: FilteredData
    hello: ClientHello
    step_sizes: ClientStepSizes
    second_moment: np.ndarray


def identify_client(
    client: ClientData, segment_starts: np.ndarray, config: RunConfig
) -> LocalModel:
    """Identify a client's local model as the options ask for."""
    return identify(
        client,
        segment_starts,
        method=config.state_model,
        state_dim=config.state_dim_of(client.name),
        max_state_dim=config.max_state_dim,
        standardise=config.standardise,
    )


def prepare_client(
    client: ClientData,
    segment_starts: np.ndarray,
    config: RunConfig,
    window: int,
    model: LocalModel | None = None,
) -> PreparedClient:
    """Identify, filter and choose step sizes.

    Args:
        client: the data.
        segment_starts: time steps that do not follow their predecessor.
        config: the options.
        window: time steps per round.
        model: the local model when it is known.

    Raises:
        FedGrangerError: one sentence on what cannot work and what to do.
    """
    model = model or identify_client(client, segment_starts, config)
    data = filter_data(client, model, segment_starts)
    moments = measured_moments(data, window)
    sizes = choose_step_sizes(
        model,
        moments.gain,
        local=config.local_step_size,
        feedback=config.feedback_step_size,
        safety=config.step_safety,
        client=client.name,
    )
    if sizes.gain >= 2 and config.training_solver == "sgd":
        raise UnstableRecursionError(
            f"client '{client.name}': local_step_size {sizes.local:.3g} and feedback_step_size "
            f"{sizes.feedback:.3g} diverge (gain {sizes.gain:.3g}, the limit is 2); "
            f"divide both by {sizes.gain:.2g} or use 'auto'"
        )
    gain = state_moments(data, window).gain
    hello = ClientHello(jnp.asarray(model.self_transition), jnp.asarray(gain))
    return PreparedClient(data, hello, sizes, moments.mean)


def augment_params(prepared: PreparedClient, config: RunConfig) -> AugmentParams:
    """Constants of the client's learner."""
    CA = prepared.data.model.predicted_observation
    return AugmentParams(
        jnp.asarray(CA.T @ CA),
        jnp.asarray(prepared.step_sizes.local),
        jnp.asarray(prepared.step_sizes.feedback),
        jnp.asarray(config.augmentation_ridge),
    )


def check_length(client: ClientData, model: LocalModel, num_other_states: int) -> None:
    """Refuse data that are too short for the row's equations."""
    needed = model.num_sensors + num_other_states
    usable = int(client.row_observed[:-1].sum())
    if usable <= needed:
        raise DataError(
            f"client '{client.name}': {usable} usable rows for {needed} parameters per "
            f"equation ({model.num_sensors} sensors and {num_other_states} states of the "
            "other clients); give more rows, fewer sensors or fewer states"
        )


def initial_augmentation(name: str, shape: tuple[int, int], config: RunConfig) -> np.ndarray:
    """Draw θ⁰ from its prior with the run's seed: in one process, where nothing is hidden."""
    key = priors.named_key(jax.random.key(config.seed), "augmentation", name)
    return np.asarray(
        priors.draw(
            key,
            shape,
            family=config.prior,
            df=config.prior_df,
            location=config.augmentation_prior_location,
            scale=config.augmentation_prior_scale,
        )
    )
