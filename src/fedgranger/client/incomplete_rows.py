r"""Mean and covariance of a client's sensors from rows of which some lack sensors.

Complete rows alone would be few where sensors are many (of 200 with 1 % missing, 13 % of the rows),
and covariances of pairs, each over its own rows, do not fit together: their sampling error is that
of the signal, which then looks like noise. So maximum likelihood of Gaussian rows, by expectation
and maximisation: with \(\Lambda = \Sigma^{-1}\), m the missing and o the present sensors of a row,

$$\hat y_m = \mu_m - \Lambda_{mm}^{-1} \Lambda_{mo} (y_o - \mu_o), \qquad
  \mu^+ = \frac1n \sum_t \hat y^t, \qquad
  \Sigma^+ = \frac1n \sum_t (\hat y^t - \mu^+)(\hat y^t - \mu^+)^\top + \Lambda_{mm}^{-1}$$

until neither moves by more than `TOLERANCE`. Right when it depends on the present samples at most,
not on the missing ones, which samples are missing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgranger.client.present_sensors import missing_patterns
from fedgranger.data.client_data import ClientData
from fedgranger.linalg.psd import project, symmetrise

TOLERANCE = 1e-5
"""Largest change of a mean or covariance, in units of the sensors' variances, at which it ends."""
MOST_ROUNDS = 100
FLOOR = 1e-9
"""Smallest eigenvalue of a covariance that is inverted, in units of the sensors' variances."""


class RowMoments(NamedTuple):
    """Mean and covariance of the sensors in raw units."""

    mean: np.ndarray
    cov: np.ndarray


def own_means(client: ClientData) -> tuple[np.ndarray, np.ndarray]:
    """Mean and mean square deviation of every sensor over its own samples."""
    count = np.maximum(np.add.reduce(client.observed, axis=0), 1)
    centre = np.where(client.observed, client.values, 0.0).sum(axis=0) / count
    away = np.where(client.observed, client.values - centre, 0.0)
    return centre, (away**2).sum(axis=0) / count


def rows_together(observed: np.ndarray) -> np.ndarray:
    """In how many rows each pair of sensors is there."""
    return observed.astype(np.float64).T @ observed


def row_moments(client: ClientData, centre: np.ndarray, scale: np.ndarray) -> RowMoments:
    """Iterate from independent sensors with this mean and deviation; rows without any are left."""
    seen = client.observed
    z = np.where(seen, (client.values - centre) / scale, 0.0)
    complete = z[client.row_observed]
    fixed = len(complete), complete.sum(axis=0), complete.T @ complete
    partial = [(z[rows], absent) for rows, absent in missing_patterns(seen)]
    d = client.num_sensors
    mean, cov = np.zeros(d), np.eye(d)
    for _ in range(MOST_ROUNDS):
        before = mean, cov
        mean, cov = _advance(mean, cov, fixed, partial)
        if max(np.abs(mean - before[0]).max(), np.abs(cov - before[1]).max()) < TOLERANCE:
            break
    return RowMoments(centre + scale * mean, cov * np.outer(scale, scale))


def _advance(
    mean: np.ndarray,
    cov: np.ndarray,
    fixed: tuple[int, np.ndarray, np.ndarray],
    partial: list[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """One round; `fixed` are number, sum and products of the complete rows."""
    precision = np.linalg.inv(project(cov, FLOOR).matrix)
    n, total, products = fixed[0], fixed[1].copy(), fixed[2].copy()
    for z, absent in partial:
        inner = np.linalg.inv(precision[np.ix_(absent, absent)])
        weights = -inner @ precision[np.ix_(absent, ~absent)]
        filled = z.copy()
        filled[:, absent] = mean[absent] + (z[:, ~absent] - mean[~absent]) @ weights.T
        n, total = n + len(z), total + filled.sum(axis=0)
        products += filled.T @ filled
        products[np.ix_(absent, absent)] += len(z) * inner
    mean = total / n
    return mean, symmetrise(products / n - np.outer(mean, mean))
