r"""Where a row's mean goes and how fast: \(\bar K x^* = \bar b\), \(\bar F = I - \bar K\).

The averages are over the rounds of one pass with the measurement noise in \(E[yy^\top]\), so the
limit is that of training on noisy data. \(\hat A^*\) is not \(A\): it regresses what a client's own
measurements predict on the other clients' states (docs/theory/learner.md, "Where it ends").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import numpy as np

from fedgranger.config import RunConfig
from fedgranger.runtime.rows import row_params, row_windows
from fedgranger.runtime.setup import Setup
from fedgranger.uncertainty.noise import noise_of
from fedgranger.uncertainty.statistics import collect, unflatten

__all__ = ["RowLimit", "row_limits"]


class RowLimit(NamedTuple):
    """Fixed point of one client's row.

    Attributes:
        granger: Â*, (p, q), the blocks of the other clients side by side.
        time_constant: 1 / (1 − ρ(F̄)) in rounds: the slowest direction of (θ, Â).
        server_time_constant: the same for Â alone, θ held fixed.
    """

    granger: np.ndarray
    time_constant: float
    server_time_constant: float


def row_limits(
    setup: Setup, config: RunConfig, noise: Mapping[str, np.ndarray]
) -> dict[str, RowLimit]:
    """Solve every client's row.

    Args:
        setup: the run; its measurements are the means.
        config: its options.
        noise: measurement covariance per client that comes on top of them.
    """
    dims = [stream.model.num_sensors for stream in setup.streams]
    prepared = noise_of(noise, setup.names, dims, len(setup.streams[0].values))
    params = row_params(setup, config, prepared)
    found = {}
    for m, name in enumerate(setup.names):
        windows = row_windows(setup, prepared, 0, setup.num_rounds, np.array([m]))
        own = jax.tree.map(lambda leaf, m=m: leaf[m], params)
        averages = collect(own, jax.tree.map(lambda leaf: leaf[:, 0], windows))
        p, d, _ = averages.shape
        solution = np.linalg.solve(averages.gain, averages.drift) / averages.scale
        _, granger = unflatten(solution, averages.shape)
        rates = np.linalg.eigvalsh(averages.gain)
        server_rates = np.linalg.eigvalsh(averages.gain[p * d :, p * d :])
        found[name] = RowLimit(granger, _time_constant(rates), _time_constant(server_rates))
    return found


def _time_constant(rates: np.ndarray) -> float:
    radius = max(abs(1 - rates[0]), abs(1 - rates[-1]))
    return float(1 / (1 - radius)) if radius < 1 else float("inf")
