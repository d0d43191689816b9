r"""One row of the recursion: its constants, the data of its rounds, the noise of measurements.

A row is one client m with its server row: \(x = (\theta, \hat A)\), θ of shape p × d and
\(\hat A = [\hat A_{mn}]\) of shape p × q. Randomness is the prior of x and the measurement noise:
\(y_t = \bar y_t + \varepsilon_t\), \(\varepsilon_t\) white and Gaussian with covariance \(V_t\);
the filtered states are given (assumption A1). Arrays may have a leading client axis.

A constant V is turned into the sensors' eigenbasis once, where it is diagonal and the recursion
costs O(d²) per step; only a full covariance that changes with time needs O(d³).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from fedgranger.errors import ConfigError

NoiseCov = Float[Array, " d"] | Float[Array, "d d"]
"""Covariance V of one measurement's noise: its diagonal, or all of it."""


class RowParams(eqx.Module):
    """Constants of a row: A, CA, η1, η2, γ, λ_θ, λ_A, and which columns may be non-zero (0/1)."""

    self_transition: Float[Array, "*batch state_dim state_dim"]
    predicted_observation: Float[Array, "*batch obs_dim state_dim"]
    local_step_size: Float[Array, "*batch"]
    feedback_step_size: Float[Array, "*batch"]
    server_step_size: Float[Array, "*batch"]
    augmentation_ridge: Float[Array, "*batch"]
    granger_ridge: Float[Array, "*batch"]
    coupling: Float[Array, "*batch total_dim"]

    @property
    def step_sizes(self) -> tuple[float, float, float]:
        """η1, η2 and γ of one row as plain numbers."""
        sizes = (self.local_step_size, self.feedback_step_size, self.server_step_size)
        eta1, eta2, gamma = map(float, sizes)
        return eta1, eta2, gamma


class RowWindow(eqx.Module):
    r"""Means, noise and weights of the time steps of one round.

    Attributes:
        measurements: \(\bar y_t\), zero where missing.
        causes: \(g_t\), the states the row listens to, zero elsewhere.
        local_targets: \((CA)^\top \bar\nu_t\) with \(\nu_t = y_{t+1} - CA h_{c,t}\).
        noise: \(V_t\), diagonal (window, d) or full (window, d, d); zero where missing.
        paired_weights: share of step t in the client's gradient (0 without y⁺).
        observed_weights: share of step t in the server's gradient (0 without y).
    """

    measurements: Float[Array, "*batch window obs_dim"]
    causes: Float[Array, "*batch window total_dim"]
    local_targets: Float[Array, "*batch window state_dim"]
    noise: Float[Array, "*batch window obs_dim"] | Float[Array, "*batch window obs_dim obs_dim"]
    paired_weights: Float[Array, "*batch window"]
    observed_weights: Float[Array, "*batch window"]

    @property
    def is_active(self) -> Float[Array, "*batch"]:
        """1.0 when the window has any sample, so that ridge acts."""
        return (self.observed_weights.sum(axis=-1) > 0).astype(self.measurements.dtype)


class Row(NamedTuple):
    """One row with all its rounds, without padding.

    Attributes:
        params: its constants.
        windows: its rounds (leading axis).
        causes: for every column of Â, the index of its client among all.
    """

    params: RowParams
    windows: RowWindow
    causes: Int[np.ndarray, " total_dim"]


def row_window(
    measurements: Float[Array, "*batch window obs_dim"],
    causes: Float[Array, "*batch window total_dim"],
    local_targets: Float[Array, "*batch window state_dim"],
    noise: Float[Array, "*batch window obs_dim"] | Float[Array, "*batch window obs_dim obs_dim"],
    has_next: Bool[Array, "*batch window"],
    is_observed: Bool[Array, "*batch window"],
    coupling: Float[Array, "*batch total_dim"],
) -> RowWindow:
    """Turn flags into weights as the learner does, and mask what is not there."""
    observed = is_observed.astype(measurements.dtype)
    paired = has_next.astype(measurements.dtype)
    full = noise.ndim == measurements.ndim + 1
    masked = noise * (observed[..., None, None] if full else observed[..., None])
    return RowWindow(
        measurements,
        causes * coupling[..., None, :],
        local_targets,
        masked,
        paired / jnp.maximum(paired.sum(axis=-1, keepdims=True), 1.0),
        observed / jnp.maximum(observed.sum(axis=-1, keepdims=True), 1.0),
    )


def times_noise(values: Float[Array, "*batch d"], noise: NoiseCov) -> Float[Array, "*batch d"]:
    """Multiply the last axis by V."""
    if noise.ndim == 1:
        return values * noise.reshape((1,) * (values.ndim - 1) + noise.shape)
    return values @ noise


def noise_matrix(noise: NoiseCov) -> Float[Array, "d d"]:
    """V as a matrix."""
    return jnp.diag(noise) if noise.ndim == 1 else noise


class MeasurementNoise(NamedTuple):
    """Noise covariances per client, in the model's units.

    Attributes:
        bases: orthonormal (d, d) per client; measurements are expressed in its columns.
        covs: per client (1, d) constant, (T, d) diagonal, or (T, d, d) full, in that basis.
    """

    bases: tuple[np.ndarray, ...]
    covs: tuple[np.ndarray, ...]

    @property
    def is_full(self) -> bool:
        """Whether any client's covariance changes with time and is not diagonal."""
        return any(cov.ndim == 3 for cov in self.covs)

    def between(self, client: int, start: int, stop: int, *, full: bool) -> np.ndarray:
        """Covariances of the time steps `start:stop`: (steps, d), or (steps, d, d) when `full`."""
        cov = self.covs[client]
        cov = np.broadcast_to(cov, (stop, *cov.shape[1:])) if len(cov) == 1 else cov
        cov = cov[start:stop]
        if full and cov.ndim == 2:
            cov = cov[:, :, None] * np.eye(cov.shape[1])
        return cov

    def draw(self, client: int, num_steps: int) -> Float[np.ndarray, "time d"]:
        """Draw the noise of the first time steps once, in the sensors' own basis."""
        drawn = np.random.default_rng(0).standard_normal((num_steps, len(self.bases[client])))
        cov = self.between(client, 0, num_steps, full=False)
        if cov.ndim == 2:
            return (np.sqrt(cov) * drawn) @ self.bases[client].T
        values, vectors = np.linalg.eigh(cov)
        scaled = np.sqrt(np.maximum(values, 0.0)) * drawn
        return np.einsum("tij,tj->ti", vectors, scaled)


def measurement_noise(
    covs: Mapping[str, np.ndarray | float],
    names: Sequence[str],
    sensor_dims: Sequence[int],
    num_steps: int,
) -> MeasurementNoise:
    """Check and bring into form.

    `covs` has per client a number, variances (d,), a covariance (d, d), or one of these per time
    step: (T, d) or (T, d, d).

    Raises:
        ConfigError: a wrong shape, a negative variance or an asymmetric matrix.
    """
    found = []
    for name, d in zip(names, sensor_dims, strict=True):
        if name not in covs:
            raise ConfigError(f"client '{name}': no measurement noise was given")
        found.append(_of_client(name, np.asarray(covs[name], dtype=np.float64), d, num_steps))
    bases, covs_in_basis = zip(*found, strict=True)
    return MeasurementNoise(bases, covs_in_basis)


def _of_client(name: str, cov: np.ndarray, d: int, num_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Basis and covariances of one client."""
    identity = np.eye(d)
    if not np.isfinite(cov).all():
        raise ConfigError(f"client '{name}': the measurement noise is not finite")
    if cov.ndim == 0:
        cov = np.full(d, float(cov))
    per_step = cov.ndim >= 2 and cov.shape[0] == num_steps and cov.shape != (d, d)
    shape = cov.shape[1:] if per_step else cov.shape
    if shape not in ((d,), (d, d)):
        raise ConfigError(
            f"client '{name}': the measurement noise has shape {cov.shape}; it must be a number, "
            f"({d},), ({d}, {d}), ({num_steps}, {d}) or ({num_steps}, {d}, {d})"
        )
    if shape == (d,):
        if (cov < 0).any():
            raise ConfigError(f"client '{name}': a measurement noise variance is negative")
        return identity, cov if per_step else cov[None]
    transposed = np.swapaxes(cov, -1, -2)
    if not np.allclose(cov, transposed, rtol=1e-10, atol=0):
        raise ConfigError(f"client '{name}': a measurement noise covariance is not symmetric")
    values, vectors = np.linalg.eigh(0.5 * (cov + transposed))
    if values.min() < -1e-10 * max(values.max(), 0.0):
        raise ConfigError(
            f"client '{name}': a measurement noise covariance has a negative eigenvalue "
            f"{values.min():.3g}"
        )
    if per_step:
        return identity, cov
    return vectors, np.maximum(values, 0.0)[None]
