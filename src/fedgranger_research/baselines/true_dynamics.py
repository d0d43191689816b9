"""How simulated clients move, in the coordinates that each of them found for its states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float

from fedgranger.client.params import LocalModel
from fedgranger.client.state_noise import state_readout
from fedgranger.data.truth import Truth


class Dynamics(NamedTuple):
    """How the columns move, A and the covariance of the process noise, in their coordinates."""

    transition: Float[np.ndarray, "effect cause"]
    process_cov: Float[np.ndarray, "effect effect"]


def dynamics_of(
    system: Truth, names: tuple[str, ...], models: Mapping[str, LocalModel]
) -> Dynamics:
    r"""\(T A T^{-1}, T Q T^\top\), T from the true states to those that the clients find."""
    if system.process_cov is None:
        raise RuntimeError("a simulated system has its noise")
    places = np.arange(len(system.transition))
    rows = np.concatenate([places[system.rows(name)] for name in names])
    parts = []
    for name in names:
        model = models[name]
        W = state_readout(model.observation_matrix, model.measurement_cov).weights
        parts.append(W @ (system.observation_matrices[name] / model.scale[:, None]))
    T, within = np.asarray(scipy.linalg.block_diag(*parts)), np.ix_(rows, rows)
    A = T @ system.transition[within] @ np.linalg.inv(T)
    return Dynamics(A, T @ system.process_cov[within] @ T.T)
