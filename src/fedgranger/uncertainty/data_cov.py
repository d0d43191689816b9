r"""Cov(θ', y) and Cov(Â, y) of a row with the client's last measurement, kept as factors.

\(\mathrm{Cov}(\theta'_{ij}, y_m) = e_i V_{jm} + \sum_r a_{r,im} b_{r,j} + K_{ij} c_m\) and
\(\mathrm{Cov}(\hat A_{kl}, y_m) = a_{km} g_l\): a tensor of p·d·d numbers that is never formed,
because only its products with a few vectors are needed.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedgranger.linalg.fused import fused_einsum
from fedgranger.uncertainty.inputs import times_noise

__all__ = ["NUM_FACTORS", "DataCov", "no_data_cov"]

NUM_FACTORS = 3


class DataCov(NamedTuple):
    """Factors of the module's text."""

    error: Float[Array, " p"]
    noise: Array
    factors: Float[Array, "r p d"]
    columns: Float[Array, "r d"]
    matrix: Float[Array, "p d"]
    vector: Float[Array, " d"]
    granger_factor: Float[Array, "p d"]
    causes: Float[Array, " q"]

    def times(self, rows: Float[Array, "w d"]) -> Float[Array, "p w d"]:
        """[i, w, j] = Σ_m Cov(θ'_ij, y_m) rows_wm."""
        noisy = times_noise(rows, self.noise)
        along = jnp.einsum("rim,wm->riw", self.factors, rows)
        out = self.error[:, None, None] * noisy[None]
        out = out + fused_einsum("riw,rj->iwj", along, self.columns)
        return out + self.matrix[:, None] * (rows @ self.vector)[None, :, None]

    def times_columns(self, rows: Float[Array, "w d"]) -> Float[Array, "p w d"]:
        """[i, w, m] = Σ_j rows_wj Cov(θ'_ij, y_m)."""
        noisy = times_noise(rows, self.noise)
        along = rows @ self.columns.T
        out = self.error[:, None, None] * noisy[None]
        out = out + fused_einsum("rim,wr->iwm", self.factors, along)
        return out + (self.matrix @ rows.T)[..., None] * self.vector[None, None]

    def trace(self, noise: Array) -> Float[Array, " p"]:
        """[i] = Σ_jm Cov(θ'_ij, y_m) V_jm."""
        total = (noise * self.noise).sum()
        along = (times_noise(self.columns, noise)[:, None] * self.factors).sum(axis=(0, 2))
        return self.error * total + along + times_noise(self.matrix, noise) @ self.vector

    def times_granger(self, rows: Float[Array, "w d"]) -> Float[Array, "p w q"]:
        """[k, w, l] = Σ_m Cov(Â_kl, y_m) rows_wm."""
        return (self.granger_factor @ rows.T)[:, :, None] * self.causes[None, None]

    def dense(self) -> tuple[Float[Array, "p d d"], Float[Array, "p q d"]]:
        """Both tensors in full."""
        theta = self.times(jnp.eye(self.columns.shape[1])).transpose(0, 2, 1)
        return theta, self.granger_factor[:, None, :] * self.causes[None, :, None]


def no_data_cov(p: int, d: int, q: int, *, full_noise: bool) -> DataCov:
    """Zero, for the first round."""
    return DataCov(
        jnp.zeros(p),
        jnp.zeros((d, d) if full_noise else d),
        jnp.zeros((NUM_FACTORS, p, d)),
        jnp.zeros((NUM_FACTORS, d)),
        jnp.zeros((p, d)),
        jnp.zeros(d),
        jnp.zeros((p, d)),
        jnp.zeros(q),
    )
