"""From a panel and a configuration to everything a run needs before its first round."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedgranger import priors
from fedgranger.client import step_sizes as client_step_sizes
from fedgranger.client.augment import AugmentParams, AugmentState
from fedgranger.client.identify import identify
from fedgranger.client.params import LocalModel
from fedgranger.client.step_sizes import ClientStepSizes
from fedgranger.client.stream import (
    ClientStream,
    measured_moments,
    prepare,
    state_moments,
)
from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.errors import ConfigError, DataError, StabilityWarning, UnstableRecursionError
from fedgranger.linalg.blocks import pad_stack
from fedgranger.messages import ClientHello
from fedgranger.rounds import RoundParams, RoundState
from fedgranger.server import step_sizes as server_step_sizes
from fedgranger.server.granger import ServerParams, ServerState
from fedgranger.server.step_sizes import ServerStepSize

__all__ = ["Setup", "initial_state", "set_up"]

Report = Callable[[str, int, int], None]
"""Called with (what, done, total) while something takes time."""


class Setup(NamedTuple):
    """All that training needs; clients are sorted by name, so their order cannot matter.

    Attributes:
        streams: one per client.
        params: constants of the round.
        window: steps per round, resolved.
        client_step_sizes: η1, η2 per client.
        server_step_sizes: γ per client row.
        second_moments: E[y yᵀ] per client, in the model's units.
    """

    streams: tuple[ClientStream, ...]
    params: RoundParams
    window: int
    client_step_sizes: tuple[ClientStepSizes, ...]
    server_step_sizes: tuple[ServerStepSize, ...]
    second_moments: tuple[np.ndarray, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Sorted client names."""
        return tuple(stream.name for stream in self.streams)

    @property
    def state_dims(self) -> tuple[int, ...]:
        """States per client."""
        return tuple(stream.model.state_dim for stream in self.streams)

    @property
    def padded_dims(self) -> tuple[int, int]:
        """Largest number of states and of sensors: the sizes of the stacked arrays."""
        return max(self.state_dims), max(s.model.num_sensors for s in self.streams)

    @property
    def num_pairs(self) -> int:
        """Training steps (t, t+1) per pass."""
        return len(self.streams[0].values) - 1

    @property
    def num_rounds(self) -> int:
        """Rounds per pass."""
        return -(-self.num_pairs // self.window)


def set_up(
    panel: Panel,
    config: RunConfig,
    models: Mapping[str, LocalModel] | None = None,
    report: Report = lambda *_: None,
) -> Setup:
    """Identify and filter every client, collect their hellos and fix the step sizes.

    Raises:
        FedGrangerError: one sentence on what cannot work and what to do.
    """
    names = sorted(panel.names)
    models = dict(models or {})
    _check_names(panel, config, models)
    window = _resolve_window(config, panel.num_steps - 1)
    starts = panel.segment_starts
    streams = []
    for done, name in enumerate(names):
        report("local models", done, len(names))
        client = panel[name]
        model = models.get(name) or identify(
            client,
            starts,
            method=config.state_model,
            state_dim=config.state_dim_of(name),
            max_state_dim=config.max_state_dim,
            standardise=config.standardise,
        )
        streams.append(prepare(client, model, starts))
    report("local models", len(names), len(names))
    _check_length(streams)
    coupling = _couplings(names, config)
    hellos = [_hello(stream, window) for stream in streams]
    moments = [measured_moments(stream, window) for stream in streams]
    client_sizes = tuple(
        client_step_sizes.choose(
            stream.model,
            moment.gain,
            local=config.local_step_size,
            feedback=config.feedback_step_size,
            safety=config.step_safety,
            client=stream.name,
        )
        for stream, moment in zip(streams, moments, strict=True)
    )
    gains = np.array([float(hello.state_gain) for hello in hellos])
    server_sizes = tuple(
        server_step_sizes.choose(
            gains[row], server=config.server_step_size, safety=config.step_safety
        )
        for row in coupling
    )
    _check_stability(names, client_sizes, server_sizes)
    params = _round_params(streams, hellos, coupling, client_sizes, server_sizes, config)
    second_moments = tuple(moment.mean for moment in moments)
    return Setup(tuple(streams), params, window, client_sizes, server_sizes, second_moments)


def initial_state(setup: Setup, config: RunConfig) -> RoundState:
    """Draw θ⁰ and Â⁰ from their priors; absent couplings start, and stay, at zero."""
    key = jax.random.key(config.seed)
    p, d = setup.padded_dims

    def prior(kind: str, shape: tuple[int, int], *names: str) -> np.ndarray:
        return np.asarray(
            priors.draw(
                priors.named_key(key, kind, *names),
                shape,
                family=config.prior,
                df=config.prior_df,
                location=getattr(config, f"{kind}_prior_location"),
                scale=getattr(config, f"{kind}_prior_scale"),
            )
        )

    thetas, rows = [], []
    for effect in setup.streams:
        shape = (effect.model.state_dim, effect.model.num_sensors)
        thetas.append(prior("augmentation", shape, effect.name))
        blocks = [
            prior("granger", (shape[0], cause.model.state_dim), effect.name, cause.name)
            for cause in setup.streams
        ]
        rows.append(pad_stack(blocks, (p, p)).transpose(1, 0, 2).reshape(p, -1))
    granger = np.stack(rows) * np.asarray(setup.params.server.coupling)[:, None, :]
    return RoundState(
        AugmentState(jnp.asarray(pad_stack(thetas, (p, d)))), ServerState(jnp.asarray(granger))
    )


def _check_names(panel: Panel, config: RunConfig, models: Mapping[str, LocalModel]) -> None:
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
        if model.num_sensors != panel[name].num_sensors:
            raise ConfigError(
                f"client '{name}': the given local model is for {model.num_sensors} sensors but "
                f"the data have {panel[name].num_sensors}"
            )
    if config.prior not in priors.FAMILIES:
        raise ConfigError(
            f"prior is {config.prior!r}; choose one of {', '.join(sorted(priors.FAMILIES))}"
        )


def _resolve_window(config: RunConfig, num_pairs: int) -> int:
    if config.window == "full":
        return max(num_pairs, 1)
    if config.window > num_pairs:
        raise ConfigError(
            f"window is {config.window} but there are only {num_pairs} steps; "
            "use a smaller one or 'full'"
        )
    return config.window


def _check_length(streams: list[ClientStream]) -> None:
    total = sum(stream.model.state_dim for stream in streams)
    for stream in streams:
        others = total - stream.model.state_dim
        needed = stream.model.num_sensors + others
        usable = int(stream.is_observed[:-1].sum())
        if usable <= needed:
            raise DataError(
                f"client '{stream.name}': {usable} usable rows for {needed} parameters per "
                f"equation ({stream.model.num_sensors} sensors and {others} states of the other "
                "clients); give more rows, fewer sensors or fewer states"
            )


def _couplings(names: list[str], config: RunConfig) -> np.ndarray:
    """Bool (effect, cause)."""
    if config.couplings == "all":
        return ~np.eye(len(names), dtype=np.bool_)
    coupling = np.zeros((len(names), len(names)), dtype=np.bool_)
    for cause, effect in config.couplings:
        coupling[names.index(effect), names.index(cause)] = True
    return coupling


def _hello(stream: ClientStream, window: int) -> ClientHello:
    gain = state_moments(stream, window).gain
    return ClientHello(jnp.asarray(stream.model.self_transition), jnp.asarray(gain))


def _check_stability(
    names: list[str],
    client_sizes: tuple[ClientStepSizes, ...],
    server_sizes: tuple[ServerStepSize, ...],
) -> None:
    """Refuse what certainly diverges, warn of what may."""
    for name, client, server in zip(names, client_sizes, server_sizes, strict=True):
        gain = client.gain + server.gain
        if client.gain >= 2:
            raise UnstableRecursionError(
                f"client '{name}': local_step_size {client.local:.3g} and feedback_step_size "
                f"{client.feedback:.3g} diverge (gain {client.gain:.3g}, the limit is 2); "
                f"divide both by {client.gain:.2g} or use 'auto'"
            )
        if gain >= 2:
            warnings.warn(
                f"client '{name}': the step sizes may diverge (gain up to {gain:.3g}, safe below "
                "2); use smaller ones or 'auto'",
                StabilityWarning,
                stacklevel=2,
            )


def _round_params(
    streams: list[ClientStream],
    hellos: list[ClientHello],
    coupling: np.ndarray,
    client_sizes: tuple[ClientStepSizes, ...],
    server_sizes: tuple[ServerStepSize, ...],
    config: RunConfig,
) -> RoundParams:
    """Stack the clients' constants, padded to the largest state."""
    num_clients, p = len(streams), max(stream.model.state_dim for stream in streams)
    observations = [stream.model.predicted_observation for stream in streams]
    grams = [CA.T @ CA for CA in observations]
    columns = np.repeat(coupling, p, axis=1).astype(np.float64)
    transitions = [np.asarray(hello.self_transition) for hello in hellos]
    return RoundParams(
        AugmentParams(
            jnp.asarray(pad_stack(grams, (p, p))),
            jnp.array([sizes.local for sizes in client_sizes]),
            jnp.array([sizes.feedback for sizes in client_sizes]),
            jnp.full(num_clients, config.augmentation_ridge),
        ),
        ServerParams(
            jnp.asarray(pad_stack(transitions, (p, p))),
            jnp.array([sizes.server for sizes in server_sizes]),
            jnp.full(num_clients, config.granger_ridge),
            jnp.asarray(columns),
        ),
    )
