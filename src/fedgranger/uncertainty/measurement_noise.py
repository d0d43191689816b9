"""Measurement noise of all clients, in the form the recursion wants it.

A constant covariance is turned into the sensors' eigenbasis once, where it is diagonal and the
recursion costs O(d²) per step; only a full covariance that changes with time needs O(d³).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fedgranger.errors import ConfigError


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
