"""Measurement noise of all clients, in the form the recursion wants it.

A covariance is turned into the sensors' eigenbasis once, where it is diagonal and the recursion
costs O(d²) per step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fedgranger.errors import ConfigError


class MeasurementNoise(NamedTuple):
    """Noise per client, in the model's units.

    Attributes:
        bases: orthonormal (d, d) per client; measurements are expressed in its columns.
        variances: (d,) per client, in that basis.
    """

    bases: tuple[np.ndarray, ...]
    variances: tuple[np.ndarray, ...]

    def draw(self, client: int, num_steps: int) -> Float[np.ndarray, "time d"]:
        """Draw the noise of the first time steps once, in the sensors' own basis."""
        drawn = np.random.default_rng(0).standard_normal((num_steps, len(self.bases[client])))
        return (np.sqrt(self.variances[client]) * drawn) @ self.bases[client].T


def measurement_noise(
    covs: Mapping[str, np.ndarray | float], names: Sequence[str], sensor_dims: Sequence[int]
) -> MeasurementNoise:
    """Check and bring into form: per client a number, variances (d,) or a covariance (d, d).

    Raises:
        ConfigError: a wrong shape, a negative variance or an asymmetric matrix.
    """
    found = []
    for name, d in zip(names, sensor_dims, strict=True):
        if name not in covs:
            raise ConfigError(f"client '{name}': no measurement noise was given")
        found.append(_of_client(name, np.asarray(covs[name], dtype=np.float64), d))
    bases, variances = zip(*found, strict=True)
    return MeasurementNoise(bases, variances)


def _of_client(name: str, cov: np.ndarray, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Basis and variances of one client."""
    if not np.isfinite(cov).all():
        raise ConfigError(f"client '{name}': the measurement noise is not finite")
    if cov.ndim == 0:
        cov = np.full(d, float(cov))
    if cov.shape not in ((d,), (d, d)):
        raise ConfigError(
            f"client '{name}': the measurement noise has shape {cov.shape}; it must be a number, "
            f"({d},) or ({d}, {d})"
        )
    if cov.ndim == 1:
        if (cov < 0).any():
            raise ConfigError(f"client '{name}': a measurement noise variance is negative")
        return np.eye(d), cov
    if not np.allclose(cov, cov.T, rtol=1e-10, atol=0):
        raise ConfigError(f"client '{name}': a measurement noise covariance is not symmetric")
    values, vectors = np.linalg.eigh(0.5 * (cov + cov.T))
    if values.min() < -1e-10 * max(values.max(), 0.0):
        raise ConfigError(
            f"client '{name}': a measurement noise covariance has a negative eigenvalue "
            f"{values.min():.3g}"
        )
    return vectors, np.maximum(values, 0.0)
