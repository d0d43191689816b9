r"""Everything one client prepares from its own data before the first round.

Its step sizes are stable by its own data alone. The update of row m is \(x^+ = (I - K)x + b\) with
\(K\) similar to a positive semidefinite matrix (docs/theory/learner.md), so the mean square
contracts while \(E[K^2] \prec 2 E[K]\). The client's block of K is \(\hat Y \otimes N_{11}\),
\(N_{11} = 2\eta_1 (CA)^\top CA + 2\eta_2 A^\top A\); the server's is
\(2\gamma\,\hat G \otimes I\). Each side keeps its own largest gain at `step_safety` (below 1): the
two gains add up at most, so the mean contracts for certain, and the mean square does unless
measurements and states have their outliers together.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from fedgranger import priors
from fedgranger.client.augment import AugmentParams
from fedgranger.client.identify import identify
from fedgranger.client.kalman import (
    FilteredData,
    filter_data,
    measured_moments,
    state_moments,
)
from fedgranger.client.params import LocalModel
from fedgranger.config import RunConfig
from fedgranger.data.client_data import ClientData
from fedgranger.errors import DataError, UnstableRecursionError
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.messages import ClientHello


class ClientStepSizes(NamedTuple):
    """η1, η2 and the gain they use: unstable for certain at 2, safe below 1."""

    local: float
    feedback: float
    gain: float


class PreparedClient(NamedTuple):
    """A client that is ready to learn; its second moment is E[y yᵀ] in the model's units."""

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
    """Identify unless the local model is known, filter and choose step sizes."""
    model = model or identify_client(client, segment_starts, config)
    data = filter_data(client, model, segment_starts)
    moments = measured_moments(data, window)
    sizes = choose_step_sizes(model, moments.gain, config, client.name)
    if sizes.gain >= 2 and config.training_solver == "sgd":
        raise UnstableRecursionError(
            f"client '{client.name}': local_step_size {sizes.local:.3g} and feedback_step_size "
            f"{sizes.feedback:.3g} diverge (gain {sizes.gain:.3g}, the limit is 2); "
            f"divide both by {sizes.gain:.2g} or use 'auto'"
        )
    gain = state_moments(data, window).gain
    hello = ClientHello(jax_array(model.self_transition), jax_array(gain))
    return PreparedClient(data, hello, sizes, moments.mean)


def choose_step_sizes(
    model: LocalModel, gain: float, config: RunConfig, client: str
) -> ClientStepSizes:
    """Fill in the step sizes that are `"auto"`; equal to each other when both are.

    `gain` is κ of the client's scaled measurements (`linalg.spectral.window_moments`).

    Raises:
        UnstableRecursionError: the given step size alone already uses up the budget.
    """
    local, feedback = config.local_step_size, config.feedback_step_size
    CA, A = model.predicted_observation, model.self_transition
    S, S_feedback = CA.T @ CA, A.T @ A
    if gain == 0.0 or not S.any():
        sizes = [0.0 if size == "auto" else float(size) for size in (local, feedback)]
        return ClientStepSizes(sizes[0], sizes[1], 0.0)
    if local == "auto" and feedback == "auto":
        local = feedback = config.step_safety / (2 * gain * _largest(S + S_feedback))
    elif feedback == "auto":
        feedback = local
    elif local == "auto":
        used = 2 * gain * float(feedback) * _largest(S_feedback)
        if used >= config.step_safety:
            most = config.step_safety / (2 * gain * _largest(S_feedback))
            raise UnstableRecursionError(
                f"client '{client}': feedback_step_size {feedback} leaves no room for an automatic "
                f"local step size; use at most {most:.3g}"
            )
        local = (config.step_safety - used) / (2 * gain * _largest(S))
    eta1, eta2 = float(local), float(feedback)
    return ClientStepSizes(eta1, eta2, 2 * gain * _largest(eta1 * S + eta2 * S_feedback))


def _largest(matrix: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(matrix)[-1])


def augment_params(prepared: PreparedClient, config: RunConfig) -> AugmentParams:
    """Constants of the client's learner."""
    CA = prepared.data.model.predicted_observation
    return AugmentParams(
        jax_array(CA.T @ CA),
        jax_array(prepared.step_sizes.local),
        jax_array(prepared.step_sizes.feedback),
        jax_array(config.augmentation_ridge),
    )


def check_length(
    client: str, is_observed: np.ndarray, model: LocalModel, num_other_states: int
) -> None:
    """Refuse data that are too short for the row's equations."""
    needed = model.num_sensors + num_other_states
    usable = int(is_observed[:-1].sum())
    if usable <= needed:
        raise DataError(
            f"client '{client}': {usable} usable rows for {needed} parameters per "
            f"equation ({model.num_sensors} sensors and {num_other_states} states of the "
            "other clients); give more rows, fewer sensors or fewer states"
        )


def initial_augmentation(name: str, shape: tuple[int, ...], config: RunConfig) -> np.ndarray:
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
