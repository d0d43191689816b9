"""One row of random data for the moments of its update, and its rounds as dense matrices."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedgranger.uncertainty.inputs import RowParams, RowWindow, row_window

make_windows = jax.jit(jax.vmap(row_window, in_axes=(0, 0, 0, 0, 0, 0, None)))


class Row(NamedTuple):
    params: RowParams
    windows: RowWindow


def make_row(
    seed=0,
    *,
    p=2,
    d=3,
    q=2,
    num_rounds=40,
    W=1,
    sizes=(0.02, 0.03, 0.05),
    ridge=(0.1, 0.2),
    missing=False,
    noise=0.0,
    memory=0.6,
):
    """One row of autocorrelated, uncentred random data; `missing` takes out a y⁺ and a y."""
    rng = np.random.default_rng(seed)
    params = RowParams(
        jnp.asarray(0.6 * np.eye(p) + 0.2 * rng.standard_normal((p, p))),
        jnp.asarray(rng.standard_normal((d, p))),
        *(jnp.asarray(value) for value in (*sizes, *ridge)),
        jnp.asarray(np.ones(q)),
    )
    steps = num_rounds * W

    def series(size, mean):
        out = rng.standard_normal((steps, size))
        for t in range(1, steps):
            out[t] = memory * out[t - 1] + np.sqrt(1 - memory**2) * out[t]
        return out + mean

    y, g = series(d, 0.3 * np.arange(d)), series(q, 0.1)
    targets = 0.5 * y[:, :p] + rng.standard_normal((steps, p))
    is_observed, has_next = np.ones(steps, bool), np.ones(steps, bool)
    if missing:  # step 4 has no y, so step 3 has no y⁺; step 7 has no y⁺ only
        is_observed[4] = has_next[3] = has_next[4] = has_next[7] = False
        y[4] = 0.0
        targets[~has_next] = 0.0
    variances = noise * (1 + np.arange(d))

    def by_round(array):
        return array.reshape(num_rounds, W, *array.shape[1:])

    windows = make_windows(
        by_round(y),
        by_round(g),
        by_round(targets),
        by_round(np.tile(variances, (steps, 1))),
        by_round(has_next),
        by_round(is_observed),
        params.coupling,
    )
    return Row(params, windows)


def dense_rounds(row, noise=None):
    """(K, b) of every active round in plain coordinates: x⁺ = x − K x + b, entries row by row.

    `noise` (W, d) is added to the measurements of every round, for quadrature.
    """
    params, windows = row
    A, CA = np.asarray(params.self_transition), np.asarray(params.predicted_observation)
    eta1, eta2, gamma, ridge_theta, ridge_granger = (
        float(value)
        for value in (
            params.local_step_size,
            params.feedback_step_size,
            params.server_step_size,
            params.augmentation_ridge,
            params.granger_ridge,
        )
    )
    p, d = CA.T.shape
    q = len(params.coupling)
    identity = np.eye(p)
    gains, pulls = [], []
    for window in zip(*(np.asarray(leaf) for leaf in jax.tree.leaves(windows)), strict=True):
        y, g, targets, _, paired, observed = window
        if observed.sum() == 0:
            continue
        y = y if noise is None else y + noise
        K = np.diag(np.repeat([2 * eta1 * ridge_theta, 2 * gamma * ridge_granger], [p * d, p * q]))
        b = np.zeros(p * (d + q))
        for t in range(len(y)):
            L = np.zeros((p * (d + q), 2 * p))
            L[: p * d, :p] = np.kron(identity, y[t][:, None])
            L[p * d :, p:] = np.kron(identity, g[t][:, None])
            own, seen = 2 * eta1 * paired[t], 2 * eta2 * observed[t]
            served = 2 * gamma * observed[t]
            N = np.block(
                [[own * CA.T @ CA + seen * A.T @ A, -seen * A.T], [-served * A, served * identity]]
            )
            K = K + L @ N @ L.T
            b[: p * d] += own * np.kron(targets[t], y[t])
        gains.append(K)
        pulls.append(b)
    return np.array(gains), np.array(pulls)
