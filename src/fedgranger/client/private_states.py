r"""The states of a private run: clipped, and Gaussian noise added, before anything else sees them.

With L Lᵀ the covariance of the states that the local model implies, the client sends

$$\tilde s_t = L\,(\mathrm{clip}_B(L^{-1} s_t) + x z_t), \qquad z_t \sim N(0, I)$$

so that the noise has covariance \(N = x^2 L L^\top\), which the server takes out of its moments.
One time step moves one message by at most 2B x⁻¹ noise deviations (`privacy.sensitivity`). How many
own lags the states have, and everything else that is computed from them, is computed from what is
sent. How many of them were clipped is sent with noise of its own.

The noise is a function of the site's secret and of what it hides (`privacy.noise`): the same
message again is the same bits, and discloses nothing new.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from fedgranger.client.kalman import FilteredData
from fedgranger.client.params import LocalModel
from fedgranger.client.state_noise import state_readout
from fedgranger.data.client_data import ClientData
from fedgranger.data.treatment import Treatment
from fedgranger.linalg.psd import symmetrise
from fedgranger.privacy.noise import clip_rows
from fedgranger.privacy.release import Release, SecretNoise
from fedgranger.privacy.sensitivity import Neighbours, memoryless
from fedgranger.privacy.terms import PrivacyTerms, Sizes


class PrivateStates(NamedTuple):
    """What a client sends of its states.

    Attributes:
        states: with noise; zero where missing.
        added_cov: N.
        clipped_share: share of them that was clipped, with noise, between 0 and 1.
        num_clipped: how many; stays at the client.
        releases: for the ledger.
        unit: L.
        bound: B.
        scale: x.
    """

    states: np.ndarray
    added_cov: np.ndarray
    clipped_share: float
    num_clipped: int
    releases: tuple[Release, ...]
    unit: np.ndarray
    bound: float
    scale: float


def moved_steps(neighbours: Neighbours, treatment: Treatment) -> Neighbours:
    """How many steps of the prepared data move; a differenced sensor moves one step more."""
    if not treatment.differenced or neighbours.kind == "record":
        return neighbours
    return Neighbours("window", neighbours.length(2**62) + 1)


def protect_states(
    states: np.ndarray,
    observed: np.ndarray,
    model: LocalModel,
    terms: PrivacyTerms,
    sizes: Sizes,
    noise: SecretNoise,
    treatment: Treatment,
) -> PrivateStates:
    """Clip a client's least-squares states and add noise of the size that the run asks for."""
    steps, bound = len(states), terms.bound(model.state_dim)
    unit = state_unit(states[observed], model)
    clipped, num_clipped = clip_in_units(states[observed], unit, bound)

    def moved(neighbours: Neighbours) -> float:
        return memoryless(bound, moved_steps(neighbours, treatment), steps)

    def counted(neighbours: Neighbours) -> float:
        return float(moved_steps(neighbours, treatment).length(steps))

    scale = moved(terms.neighbours) / sizes.states
    sent, name = noise.add("states", clipped @ unit.T, scale * unit)
    out = np.zeros_like(states)
    out[observed] = sent
    count_scale = counted(terms.neighbours) / sizes.clipped
    count, count_name = noise.add("clipped", np.array([float(num_clipped)]), count_scale)
    return PrivateStates(
        out,
        symmetrise(scale**2 * unit @ unit.T),
        float(np.clip(count[0] / max(int(observed.sum()), 1), 0.0, 1.0)),
        num_clipped,
        (
            Release("states", name, lambda near: moved(near) / scale),
            Release("clipped", count_name, lambda near: counted(near) / count_scale),
        ),
        unit,
        bound,
        scale,
    )


def clip_in_units(rows: np.ndarray, unit: np.ndarray, bound: float) -> tuple[np.ndarray, int]:
    """L⁻¹ of every row, shortened to the bound where it is longer, and how many were."""
    return clip_rows(scipy.linalg.solve_triangular(unit, rows.T, lower=True).T, bound)


def state_unit(states: np.ndarray, model: LocalModel) -> np.ndarray:
    """L: of a declared model the one that it implies, else of the states themselves."""
    if not model.is_declared:
        cov = np.atleast_2d(states.T @ states) / max(len(states), 1)
        return np.linalg.cholesky(symmetrise(cov))
    E = state_readout(model.observation_matrix, model.measurement_cov).error_cov
    return np.linalg.cholesky(symmetrise(model.state_cov + E))


class Units(NamedTuple):
    """Cholesky factors of what the local model gives states, sensors and (CA)ᵀν for covariance."""

    states: np.ndarray
    sensors: np.ndarray
    targets: np.ndarray


def model_units(data: FilteredData, client: ClientData) -> Units:
    """Of a declared model what it implies, else of the data (which ε then does not cover)."""
    model: LocalModel = data.model
    observed = data.is_observed
    y = data.scaled(0, len(client.values))[observed]
    C, CA = model.observation_matrix, model.predicted_observation
    states = state_unit(data.filtered_states[observed], model)
    if model.is_declared:
        sensors = symmetrise(C @ model.state_cov @ C.T + model.measurement_cov)
    else:
        sensors = symmetrise(y.T @ y / max(len(y), 1))
    sensors = above(sensors, 1e-9 * float(np.trace(sensors)))
    targets = symmetrise(CA.T @ sensors @ CA)
    targets = above(targets, 1e-9 * float(np.trace(targets)))
    return Units(states, np.linalg.cholesky(sensors), np.linalg.cholesky(targets))


def above(matrix: np.ndarray, least: float) -> np.ndarray:
    """The symmetric part, with no eigenvalue below a bound."""
    values, vectors = np.linalg.eigh(symmetrise(matrix))
    return symmetrise((vectors * np.maximum(values, least)) @ vectors.T)
