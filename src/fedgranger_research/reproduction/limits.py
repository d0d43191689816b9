r"""Where a row's mean goes and how fast: \(\bar K x^* = \bar b\), \(\bar F = I - \bar K\).

The averages are over the rounds of one pass with the measurement noise in \(E[yy^\top]\), so the
limit is that of training on noisy data. \(\hat A^*\) is not \(A\): it regresses what a client's own
measurements predict on the other clients' states (docs/theory/learner.md, "Where it ends").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np

from fedgranger.config import RunConfig
from fedgranger.runtime.row_inputs import row_params, row_windows, run_noise
from fedgranger.runtime.setup import Setup
from fedgranger.uncertainty.record import Propagation
from fedgranger.uncertainty.update_moments import split_parameters, update_moments


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
    prepared = run_noise(setup, noise)
    params = row_params(setup, config, prepared)
    found = {}
    for m, name in enumerate(setup.names):
        windows = row_windows(setup, prepared, 0, setup.num_rounds, np.array([m]))
        own = jax.tree.map(lambda leaf, m=m: leaf[m], params)
        moments = update_moments(own, jax.tree.map(lambda leaf: leaf[:, 0], windows))
        solution = np.linalg.solve(moments.gain, moments.drift) / moments.scale
        _, granger = split_parameters(solution, moments.shape)
        theta, server = _real_places(setup, m, moments.shape)
        both = np.concatenate([theta, server])
        found[name] = RowLimit(
            granger,
            _time_constant(moments.gain[np.ix_(both, both)]),
            _time_constant(moments.gain[np.ix_(server, server)]),
        )
    return found


def error_rows(
    found: Propagation, limits: dict[str, RowLimit], target: Callable[[str, str], np.ndarray]
) -> list[tuple]:
    """Rows of `Propagation.table`: errors of the mean of Â, and time constants.

    Per block and round the distance to the target (`granger_error`) and to the limit
    (`granger_limit_error`); at the last round `limit_error`, the distance between the two,
    `block_norm`, the target's norm, and per client `time_constant` and `server_time_constant`.

    Args:
        found: the means along training; all clients have the same number of states.
        limits: the learner's own limit.
        target: (effect, cause) -> what stands for A_mn.
    """
    marks = sorted(found.table["round"].unique())
    rows = []
    for client, path in found.granger_paths.items():
        causes = [name for name in found.clients if name != client]
        p = path.shape[2] // len(causes)
        for n, cause in enumerate(causes):
            part = slice(p * n, p * (n + 1))
            block, limit = target(client, cause), limits[client].granger[:, part]
            for mark, mean in zip(marks, path[:, :, part], strict=True):
                rows.append((mark, client, cause, "granger_error", mean - block))
                rows.append((mark, client, cause, "granger_limit_error", mean - limit))
            rows.append((marks[-1], client, cause, "limit_error", limit - block))
            rows.append((marks[-1], client, cause, "block_norm", block))
        names = ("time_constant", "server_time_constant")
        rows += [(marks[-1], client, "", name, getattr(limits[client], name)) for name in names]
    return [(*row, float(np.linalg.norm(x)), np.nan, np.nan) for *row, x in rows]


def _real_places(
    setup: Setup, row: int, shape: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Where θ and Â of a row stand in its vector, without padding, which moves by ridge alone."""
    p, d, q = shape
    model = setup.client_data[row].model
    theta, granger = split_parameters(np.arange(p * (d + q)), shape)
    states = np.tile(np.arange(p), len(setup.names) - 1)
    real = states < np.delete(np.array(setup.state_dims), row).repeat(p)
    return (
        theta[: model.state_dim, : model.num_sensors].ravel(),
        granger[: model.state_dim, real].ravel(),
    )


def _time_constant(gain: np.ndarray) -> float:
    radius = np.abs(1 - np.linalg.eigvalsh(gain)).max()
    return float(1 / (1 - radius)) if radius < 1 else float("inf")
