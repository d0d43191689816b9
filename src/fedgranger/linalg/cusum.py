r"""Does the mean of a series change? Cumulative sums with a p-value.

For a series \(x_t\) of q numbers with long-run covariance V and \(S_k = \sum_{t \le k}
(x_t - \bar x)\), the largest of

$$Q_k = \tfrac1n S_k^\top V^{-1} S_k$$

has, where the mean stays, the law of \(\sup_{0\le u\le1} \sum_{i \le q} B_i(u)^2\) of independent
Brownian bridges (Aue, Hörmann, Horváth and Reimherr, Annals of Statistics 37, 2009), whose
distribution is Kiefer's (Annals of Mathematical Statistics 30, 1959):

$$P(\sup \le c) = \frac{4}{\Gamma(q/2)\,(2c)^{q/2}} \sum_j
  \frac{\gamma_j^{q-2}\, e^{-\gamma_j^2/(2c)}}{J_{q/2}(\gamma_j)^2},
  \qquad \gamma_j \text{ the zeros of } J_{q/2-1}.$$

The place of the largest Q estimates when the change happened.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import optimize, special

from fedgranger.linalg.long_run import andrews_bandwidth, long_run_cov

NUM_ZEROS = 60
MOST_ROWS = 20_000
"""Longer series are averaged over blocks first; the sums lose nothing but resolution in time."""
SINGULAR = 1e-10
"""Directions of V smaller than this, relative to the largest, do not count."""


class CusumTest(NamedTuple):
    """The largest Q, its p-value, and the number of rows before the change."""

    statistic: float
    p_value: float
    place: int


def cusum_test(series: Float[np.ndarray, "time q"]) -> CusumTest:
    """Test whether the mean stays; Bartlett's kernel with Andrews' AR(1) bandwidth for V.

    Inside, time is the last axis, so that few numbers make long sums; fastest for a series that
    lies so in memory.
    """
    rows = len(series)
    block = -(-rows // MOST_ROWS)
    count = rows // block
    parts = (series.T[:, k : count * block : block] for k in range(block))
    means = reduce(np.add, parts) / block
    centred = means - means.mean(axis=1, keepdims=True)
    variance = (centred**2).mean(axis=1)
    used = variance > 0
    if not used.any():
        return CusumTest(0.0, 1.0, 0)
    scaled = centred[used] / np.sqrt(variance[used])[:, None]
    rho = float(np.median(np.abs((scaled[:, 1:] * scaled[:, :-1]).mean(axis=1))))
    lag = min(int(np.ceil(andrews_bandwidth(rho, count))), count // 4)
    values, vectors = np.linalg.eigh(long_run_cov(scaled.T, lag))
    kept = values > SINGULAR * values[-1]
    whitened = (vectors[:, kept] / np.sqrt(values[kept])).T @ scaled
    sums = (np.cumsum(whitened, axis=1) ** 2).sum(axis=0) / count
    place = int(sums.argmax())
    tail = bridge_tail(float(sums[place]), int(kept.sum()))
    return CusumTest(float(sums[place]), tail, (place + 1) * block)


def bridge_tail(size: float, dim: int) -> float:
    """Chance that the largest squared norm of `dim` Brownian bridges exceeds `size`.

    Example:
        >>> round(bridge_tail(1.3581**2, 1), 3)  # Kolmogorov's 5 % point, squared
        0.05
    """
    if size <= 0:
        return 1.0
    zeros = _zeros(dim)
    weight = np.exp((dim - 2) * np.log(zeros) - zeros**2 / (2 * size))
    total = (weight / special.jv(dim / 2, zeros) ** 2).sum()
    log_factor = np.log(4) - special.gammaln(dim / 2) - dim / 2 * np.log(2 * size)
    inside = np.exp(log_factor) * total
    if inside < 1 - 1e-9:
        return float(np.clip(1 - inside, 0.0, 1.0))
    # the series has no digits left: a chi-square tail of the bridges' largest variance, 1/4, with
    # the number of its upcrossings, is an upper bound there
    return float(min(1e-9, 4 * size * special.gammaincc(dim / 2, 2 * size)))


@lru_cache(maxsize=128)
def _zeros(dim: int) -> Float[np.ndarray, " zero"]:
    """The first zeros of J of order dim/2 − 1; they lie about π apart."""
    order = dim / 2 - 1
    grid = np.arange(0.05, order + np.pi * (NUM_ZEROS + 4) + 2 * order, 0.1)
    values = special.jv(order, grid)
    turns = np.flatnonzero(values[:-1] * values[1:] < 0)[:NUM_ZEROS]
    return np.array(
        [optimize.brentq(lambda z: special.jv(order, z), grid[k], grid[k + 1]) for k in turns]
    )
