r"""What the server fixes before the first round, from the clients' hellos alone.

Step size of a row: the row's gain is \(2\gamma\kappa_g\) with \(\kappa_g\) the windowed gain of the
stacked states of the clients it listens to. It is at most about the sum of the clients' own gains
(exactly so when their states coincide), which is what the server can know before training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from fedgranger import priors
from fedgranger.config import RunConfig
from fedgranger.linalg.blocks import pad_stack
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.server.granger import ServerParams


class ServerStepSize(NamedTuple):
    """γ of a row and the gain it uses."""

    server: float
    gain: float


def couplings(names: Sequence[str], config: RunConfig) -> np.ndarray:
    """Which client may influence which: bool (effect, cause); absent clients do not count."""
    if config.couplings == "all":
        return ~np.eye(len(names), dtype=np.bool_)
    coupling = np.zeros((len(names), len(names)), dtype=np.bool_)
    for cause, effect in config.couplings:
        if cause in names and effect in names:
            coupling[names.index(effect), names.index(cause)] = True
    return coupling


def choose_step_size(
    state_gains: np.ndarray, *, server: float | str, safety: float
) -> ServerStepSize:
    """Fill in γ when it is `"auto"`, from the gains of the clients that this row listens to."""
    total = float(np.sum(state_gains))
    if server == "auto":
        server = safety / (2 * total) if total > 0 else 0.0
    return ServerStepSize(float(server), 2 * float(server) * total)


def row_step_sizes(
    state_gains: np.ndarray, coupling: np.ndarray, config: RunConfig
) -> tuple[ServerStepSize, ...]:
    """Choose γ of every row from the gains of the clients it listens to."""
    return tuple(
        choose_step_size(
            state_gains[row], server=config.server_step_size, safety=config.step_safety
        )
        for row in coupling
    )


def server_params(
    transitions: Sequence[np.ndarray],
    coupling: np.ndarray,
    sizes: Sequence[ServerStepSize],
    config: RunConfig,
) -> ServerParams:
    """Stack the constants of all rows, padded to the largest state."""
    p = max(len(A) for A in transitions)
    return ServerParams(
        jax_array(pad_stack(transitions, (p, p))),
        jax_array([size.server for size in sizes]),
        jax_array(np.full(len(transitions), config.granger_ridge)),
        jax_array(np.repeat(coupling, p, axis=1).astype(np.float64)),
    )


def draw_prior(shape: tuple[int, ...], config: RunConfig, *names: str) -> np.ndarray:
    """Draw from the prior of Â⁰ with the run's seed, for what has these names."""
    return np.asarray(
        priors.draw(
            priors.named_key(jax.random.key(config.seed), "granger", *names),
            shape,
            family=config.prior,
            df=config.prior_df,
            location=config.granger_prior_location,
            scale=config.granger_prior_scale,
        )
    )


def initial_rows(
    names: Sequence[str], state_dims: Sequence[int], coupling: np.ndarray, config: RunConfig
) -> np.ndarray:
    """Draw Â⁰ from its prior, (row, p, client * p); absent couplings start, and stay, at zero."""
    p, rows = max(state_dims), []
    for effect, effect_dim in zip(names, state_dims, strict=True):
        blocks = [
            draw_prior((effect_dim, cause_dim), config, effect, cause)
            for cause, cause_dim in zip(names, state_dims, strict=True)
        ]
        rows.append(pad_stack(blocks, (p, p)).transpose(1, 0, 2).reshape(p, -1))
    return np.stack(rows) * np.repeat(coupling, p, axis=1)[:, None, :]
