"""From a panel and a configuration to everything a run needs before its first round."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedgranger import priors
from fedgranger.client.augment import AugmentParams, AugmentState
from fedgranger.client.kalman import FilteredData
from fedgranger.client.params import LocalModel, check_model
from fedgranger.client.prepared_client import (
    ClientStepSizes,
    PreparedClient,
    augment_params,
    check_length,
    initial_augmentation,
    prepare_client,
)
from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.errors import ConfigError, DataError, StabilityWarning
from fedgranger.linalg.blocks import pad_stack
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.linalg.time_weights import Weighting, regime_step
from fedgranger.rounds import RoundParams, RoundState
from fedgranger.server.granger import ServerState
from fedgranger.server.row_setup import (
    ServerStepSize,
    couplings,
    initial_rows,
    row_step_sizes,
    server_params,
)


class Setup(NamedTuple):
    """All that training needs; clients are sorted by name, so their order cannot matter.

    Attributes:
        clients: as prepared for training, one each.
        params: constants of the round.
        window: steps per round, resolved.
        server_step_sizes: γ per client row.
        weighting: how much time steps count in moments that follow the time.
    """

    clients: tuple[PreparedClient, ...]
    params: RoundParams
    window: int
    server_step_sizes: tuple[ServerStepSize, ...]
    weighting: Weighting = Weighting()

    @property
    def client_data(self) -> tuple[FilteredData, ...]:
        """Every client's filtered data."""
        return tuple(client.data for client in self.clients)

    @property
    def client_step_sizes(self) -> tuple[ClientStepSizes, ...]:
        """η1, η2 per client."""
        return tuple(client.step_sizes for client in self.clients)

    @property
    def names(self) -> tuple[str, ...]:
        """Sorted client names."""
        return tuple(data.name for data in self.client_data)

    @property
    def state_dims(self) -> tuple[int, ...]:
        """States per client."""
        return tuple(data.model.state_dim for data in self.client_data)

    @property
    def padded_dims(self) -> tuple[int, int]:
        """Largest number of states and of sensors: the sizes of the stacked arrays."""
        return max(self.state_dims), max(data.model.num_sensors for data in self.client_data)

    @property
    def num_pairs(self) -> int:
        """Training steps (t, t+1) per pass."""
        return len(self.client_data[0].values) - 1

    @property
    def num_rounds(self) -> int:
        """Rounds per pass."""
        return -(-self.num_pairs // self.window)


def set_up(
    panel: Panel, config: RunConfig, models: Mapping[str, LocalModel] | None = None
) -> Setup:
    """Identify and filter every client and fix the step sizes, for whoever runs rounds alone.

    Raises:
        FedGrangerError: one sentence on what cannot work and what to do.
    """
    models, starts = dict(models or {}), panel.segment_starts
    check_names(panel, config, models)
    window = config.round_steps(panel.num_steps - 1)
    clients = tuple(
        prepare_client(panel[name], starts, config, window, models.get(name))
        for name in sorted(panel.names)
    )
    total = sum(client.data.model.state_dim for client in clients)
    for client in clients:
        model = client.data.model
        check_length(client.data.name, client.data.is_observed, model, total - model.state_dim)
    return assemble(clients, config, window, panel.time)


def assemble(
    clients: tuple[PreparedClient, ...], config: RunConfig, window: int, time: np.ndarray
) -> Setup:
    """Fix the server's step sizes and the constants of a round; clients sorted by name."""
    names = [client.data.name for client in clients]
    coupling = couplings(names, config)
    gains = np.array([float(client.hello.state_gain) for client in clients])
    server_sizes = row_step_sizes(gains, coupling, config)
    if config.training_solver == "sgd":
        _warn_of_divergence(clients, server_sizes)
    transitions = [np.asarray(client.hello.self_transition) for client in clients]
    server = server_params(transitions, coupling, server_sizes, config)
    params = RoundParams(_stacked_augment(clients, config), server)
    is_given = config.weighting == "regime" and config.regime_start != "auto"
    start = regime_step(time, config.regime_start) if is_given else 0
    weighting = Weighting(config.weighting, config.weighting_span, start)
    return Setup(clients, params, window, server_sizes, weighting)


def initial_state(setup: Setup, config: RunConfig) -> RoundState:
    """Draw θ⁰ and Â⁰ from their priors."""
    p, d = setup.padded_dims
    thetas = [
        initial_augmentation(data.name, data.model.augmentation_shape, config)
        for data in setup.client_data
    ]
    coupling = couplings(setup.names, config)
    rows = initial_rows(setup.names, setup.state_dims, coupling, config)
    return RoundState(
        AugmentState(jax_array(pad_stack(thetas, (p, d)))), ServerState(jax_array(rows))
    )


def check_names(panel: Panel, config: RunConfig, models: Mapping[str, LocalModel]) -> None:
    """Refuse options that name a client which the data do not have, and models that do not fit.

    Raises:
        FedGrangerError: with the name.
    """
    if len(panel) < 2:
        raise DataError(
            f"only one client ('{panel.names[0]}') was given; influence between clients needs two"
        )
    named = set(models)
    if isinstance(config.state_dim, dict):
        named |= set(config.state_dim)
    if config.couplings != "all":
        named |= {name for pair in config.couplings for name in pair}
    unknown = sorted(named - set(panel.names))
    if unknown:
        raise ConfigError(
            f"the options name a client '{unknown[0]}' that the data do not have; "
            f"the clients are {', '.join(sorted(panel.names))}"
        )
    for name, model in models.items():
        check_model(name, model, panel[name].num_sensors)
    if config.prior not in priors.FAMILIES:
        raise ConfigError(
            f"prior is {config.prior!r}; choose one of {', '.join(sorted(priors.FAMILIES))}"
        )


def _warn_of_divergence(
    clients: tuple[PreparedClient, ...], server_sizes: tuple[ServerStepSize, ...]
) -> None:
    """Both sides together may diverge although each alone does not."""
    for client, server in zip(clients, server_sizes, strict=True):
        gain = client.step_sizes.gain + server.gain
        if gain >= 2:
            warnings.warn(
                f"client '{client.data.name}': the step sizes may diverge (gain up to {gain:.3g}, "
                "safe below 2); use smaller ones or 'auto'",
                StabilityWarning,
                stacklevel=2,
            )


def _stacked_augment(clients: tuple[PreparedClient, ...], config: RunConfig) -> AugmentParams:
    """Constants of all clients' learners, padded to the largest state."""
    params = [augment_params(client, config) for client in clients]
    p = max(one.prediction_gram.shape[0] for one in params)
    return AugmentParams(
        jax_array(pad_stack([np.asarray(one.prediction_gram) for one in params], (p, p))),
        jax_array([np.asarray(one.local_step_size) for one in params]),
        jax_array([np.asarray(one.feedback_step_size) for one in params]),
        jax_array([np.asarray(one.ridge) for one in params]),
    )
