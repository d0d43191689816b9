r"""The noise of a measurement that has reached θ as a target before it is a regressor.

A client learns from the pair \((y_{t-1}, y_t)\) with \(y_t\) as its target, so θ already holds
\(D\varepsilon_t y_{t-1}^\top\), \(D = 2\eta_1 (CA)^\top\), when \(y_t\) becomes the regressor:
parameters and data are correlated (Ω of the paper). Writing \(\theta = \theta' + D\varepsilon_0
y_p^\top\) with \(\theta'\) and the previous measurement \(y_p\) independent of \(\varepsilon_0\),
a round is a cubic polynomial in \(\varepsilon_0\) whose coefficients are linear in
\((\theta', \hat A, y_p)\). Its second moments close on those of \((\theta', \hat A, y_p)\), so the
recursion is exact for Gaussian noise; docs/theory/propagation.md has the expansion.

Here are the moments that the terms of `target_noise` are made of, for the first step of a round.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedgranger.linalg.fused import inner, times
from fedgranger.uncertainty.inputs import (
    Gains,
    NoiseCov,
    RowParams,
    RowWindow,
    noise_matrix,
    times_noise,
)
from fedgranger.uncertainty.mean_recursion import LastStep, RowMean, target_gain


class TargetMoments(NamedTuple):
    r"""Small quantities shared by the terms below; the rows are [ȳ₀; D V₀].

    Attributes:
        D: \(2\eta_1 w (CA)^\top\).
        DV: D V₀.
        K: N D V₀.
        data_rows: the rows times \(E[y_p y_p^\top]\).
        cov_rows: Cov(θ', y_p) times the rows, (p, 1 + p, d).
        theta_rows: \(E[\theta' y_p^\top]\) times the rows, (p, 1 + p, d).
        column_rows: the rows times \(E[\theta' y_p]\) along θ's columns, (p, 1 + p, d).
        theta_trace: \(E[\theta' V_0 y_p]\).
        error_data: [i, m] = \(E[e_i y_{p,m}]\), e with θ in it.
        noise_size: \(E[y_p^\top V_0 y_p]\).
        gram: D V₀ Dᵀ.
        data_gram: \(D V_0\, E[y_p y_p^\top]\, V_0 D^\top\).
        noise_gram: the same with the covariance of y_p alone.
        theta_gram: \(E[\theta' y_p^\top] \bar y_0\), a matrix like θ, times V₀ Dᵀ.
        error_gram: `error_data` times V₀ Dᵀ.
    """

    D: Float[Array, "p d"]
    DV: Float[Array, "p d"]
    K: Float[Array, "p d"]
    data_rows: Float[Array, "r d"]
    cov_rows: Float[Array, "p r d"]
    theta_rows: Float[Array, "p r d"]
    column_rows: Float[Array, "p r d"]
    theta_trace: Float[Array, " p"]
    error_data: Float[Array, "p d"]
    noise_size: Float[Array, ""]
    gram: Float[Array, "p p"]
    data_gram: Float[Array, "p p"]
    noise_gram: Float[Array, "p p"]
    theta_gram: Float[Array, "p p"]
    error_gram: Float[Array, "p p"]


def target_noise_cov(
    params: RowParams, last_step: LastStep, noise: NoiseCov
) -> Float[Array, "p d p d"]:
    r"""Covariance of \(D\varepsilon_0 y_p^\top\): what Cov(θ) has more than Cov(θ')."""
    D = target_gain(params, last_step.weight)
    Q = inner(times_noise(D, noise), D)
    data = jnp.outer(last_step.measurement, last_step.measurement) + noise_matrix(last_step.noise)
    return Q[:, None, :, None] * data[None, :, None, :]


def target_moments(
    params: RowParams, window: RowWindow, gain: Gains, mean: RowMean, error: Float[Array, " p"]
) -> TargetMoments:
    """Collect them; `error` is the mean of e with θ' in the place of θ."""
    y, g, V = window.measurements[0], window.causes[0], window.noise[0]
    theta, data_cov, last_step = mean.augmentation, mean.data_cov, mean.last_step
    N, kappa, previous = gain.N[0], gain.kappa[0], last_step.measurement
    D = target_gain(params, last_step.weight)
    DV = times_noise(D, V)
    rows = jnp.concatenate([y[None], DV])
    data_rows = jnp.outer(rows @ previous, previous) + times_noise(rows, last_step.noise)
    cov_rows = data_cov.times(rows)
    columns = data_cov.times_columns(rows)
    granger_data = (data_cov.causes @ g) * data_cov.granger_factor
    error_data = times(kappa, granger_data) - times(N, columns[:, 0] + data_rows[1:])
    error_data = error_data + jnp.outer(error, previous)
    theta_rows = cov_rows + theta[:, None] * (rows @ previous)[None, :, None]
    noise_size = previous @ times_noise(previous, V) + (V * last_step.noise).sum()
    lefts = (D, data_rows[1:], times_noise(DV, last_step.noise), theta_rows[:, 0], error_data)
    return TargetMoments(
        D,
        DV,
        times(N, DV),
        data_rows,
        cov_rows,
        theta_rows,
        columns + (theta @ rows.T)[..., None] * previous[None, None],
        data_cov.trace(V) + theta @ times_noise(previous, V),
        error_data,
        noise_size,
        *(jnp.concatenate(lefts) @ DV.T).reshape(len(lefts), len(N), -1),  # one product, not five
    )
