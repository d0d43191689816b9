r"""The last step of a round, and the small quantities it hands to the next one.

The derivation is in `carryover`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedgranger.linalg.fused import inner, times
from fedgranger.uncertainty.data_cov import DataCov
from fedgranger.uncertainty.gains import Gains
from fedgranger.uncertainty.inputs import RowParams, RowWindow, times_noise

__all__ = ["Carry", "CarryMoments", "carried_cov", "carry_moments", "late_gain"]


class Carry(NamedTuple):
    """The last step of the previous round.

    Attributes:
        weight: its share in the client's gradient (0: no pair, nothing carried).
        measurement: mean of its measurement y_p.
        noise: covariance of y_p (diagonal or full).
    """

    weight: Float[Array, ""]
    measurement: Float[Array, " d"]
    noise: Array


class CarryMoments(NamedTuple):
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
        error_data: [i, m] = \(E[e_i y_{p,m}]\), e with its carried part.
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


def carried_cov(params: RowParams, carry: Carry, noise: Array) -> Float[Array, "p d p d"]:
    r"""Covariance of \(D\varepsilon_0 y_p^\top\): what Cov(θ) has more than Cov(θ')."""
    D = late_gain(params, carry.weight)
    Q = inner(times_noise(D, noise), D)
    V = jnp.diag(carry.noise) if carry.noise.ndim == 1 else carry.noise
    data = jnp.outer(carry.measurement, carry.measurement) + V
    return Q[:, None, :, None] * data[None, :, None, :]


def carry_moments(
    params: RowParams,
    window: RowWindow,
    gain: Gains,
    carry: Carry,
    data_cov: DataCov,
    theta: Float[Array, "p d"],
    error: Float[Array, " p"],
) -> CarryMoments:
    """Collect them; `error` is the mean of e without its carried part."""
    y, g, V = window.measurements[0], window.causes[0], window.noise[0]
    N, kappa, previous = gain.N[0], gain.kappa[0], carry.measurement
    D = late_gain(params, carry.weight)
    DV = times_noise(D, V)
    rows = jnp.concatenate([y[None], DV])
    data_rows = jnp.outer(rows @ previous, previous) + times_noise(rows, carry.noise)
    cov_rows = data_cov.times(rows)
    columns = data_cov.times_columns(rows)
    granger_data = (data_cov.causes @ g) * data_cov.granger_factor
    error_data = times(kappa, granger_data) - times(N, columns[:, 0] + data_rows[1:])
    error_data = error_data + jnp.outer(error, previous)
    theta_rows = cov_rows + theta[:, None] * (rows @ previous)[None, :, None]
    noise_size = previous @ times_noise(previous, V) + (V * carry.noise).sum()
    lefts = (D, data_rows[1:], times_noise(DV, carry.noise), theta_rows[:, 0], error_data)
    return CarryMoments(
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


def late_gain(params: RowParams, weight: Float[Array, ""]) -> Float[Array, "p d"]:
    r"""\(D = 2\eta_1 w (CA)^\top\)."""
    return 2 * params.local_step_size * weight * params.predicted_observation.T
