r"""What a round adds to Cov(θ, Â), as small factors, and their assembly.

Everything a round does to a covariance, beyond scaling it, is a short sum of products of small
arrays. They are summed while small; the big blocks are written once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from fedgranger.linalg.fused import fused_einsum

__all__ = ["Pairs", "RowCov", "Terms", "add_covs", "assemble", "at_step", "merge"]

Pairs = tuple[tuple[Array, Array], ...]


class RowCov(NamedTuple):
    """Covariance of one row's parameters, by matrix entries: [i, j, k, l] = Cov(X_ij, Z_kl).

    Attributes:
        augmentation: of θ with θ, (p, d, p, d).
        cross: of θ with Â, (p, d, p, q).
        granger: of Â with Â, (group, p, s, p, s): one group of all q columns (joint), or one
            group per cause with nothing between groups (blockwise).
    """

    augmentation: Float[Array, "p d p d"]
    cross: Float[Array, "p d p q"]
    granger: Float[Array, "group p s p s"]


class Terms(NamedTuple):
    r"""Factors of what is added, for a step with measurement y and causes g.

    Attributes:
        on_y: θ-θ gets \(X_{ijk} y_l\) and its transpose.
        on_g: θ-Â gets \(X_{ijk} g_l\).
        cross_on_y: θ-Â gets \(y_j X_{ikl}\).
        granger_on_g: Â-Â gets \(X_{ijk} g_l\) and its transpose.
        kron: θ-θ gets \(\sum E_{ik} V_{jl}\), V diagonal or full.
        outer: θ-θ gets \(\sum_r L_{ij} R_{kl}\).
        swapped: θ-θ gets \(\sum_r L_{il} R_{kj}\).
        cross_outer: θ-Â gets \(\sum L_{ij} R_{kl}\).
        cross_swapped: θ-Â gets \(\sum L_{kj} R_{il}\).
        diagonal: θ-θ gets \(\sum X_{ikj} \delta_{jl}\).
    """

    on_y: Float[Array, "*window p d p"]
    on_g: Float[Array, "*window p d p"]
    cross_on_y: Float[Array, "*window p p q"]
    granger_on_g: Float[Array, "*window p q p"]
    kron: Pairs = ()
    outer: Pairs = ()
    swapped: Pairs = ()
    cross_outer: Pairs = ()
    cross_swapped: Pairs = ()
    diagonal: tuple[Float[Array, "p p d"], ...] = ()


def merge(*terms: Terms) -> Terms:
    """Add: sums of the factors of y and g, all pairs of the rest."""
    return Terms(
        _total([term.on_y for term in terms]),
        _total([term.on_g for term in terms]),
        _total([term.cross_on_y for term in terms]),
        _total([term.granger_on_g for term in terms]),
        tuple(pair for term in terms for pair in term.kron),
        tuple(pair for term in terms for pair in term.outer),
        tuple(pair for term in terms for pair in term.swapped),
        tuple(pair for term in terms for pair in term.cross_outer),
        tuple(pair for term in terms for pair in term.cross_swapped),
        tuple(part for term in terms for part in term.diagonal),
    )


def at_step(terms: Terms, t: Array | int) -> Terms:
    """Pick one step of factors of y and g that have a leading step axis."""
    return Terms(terms.on_y[t], terms.on_g[t], terms.cross_on_y[t], terms.granger_on_g[t])


def _total(parts: list[Array]) -> Array:
    """Sum over a new axis: computed once, where a chain of additions is computed once per use."""
    return jnp.stack(parts).sum(axis=0)


def assemble(
    scaled: RowCov, measurement: Float[Array, " d"], causes: Float[Array, " q"], terms: Terms
) -> RowCov:
    """Write the new covariance."""
    y, g = measurement, causes
    augmentation = (
        scaled.augmentation
        + terms.on_y[..., None] * y[None, None, None]
        + terms.on_y.transpose(2, 0, 1)[:, None] * y[None, :, None, None]
    )
    for left, right in terms.outer:
        augmentation = augmentation + left[:, :, None, None] * right[None, None]
    for left, right in terms.swapped:
        augmentation = augmentation + left[:, None, None, :] * right.T[None, :, :, None]
    diagonal = [
        *terms.diagonal,
        *(E[:, :, None] * V[None, None] for E, V in terms.kron if V.ndim == 1),
    ]
    if diagonal:
        spikes = jnp.stack(diagonal).sum(axis=0).transpose(0, 2, 1)[..., None]
        augmentation = augmentation + spikes * jnp.eye(len(y))[None, :, None, :]
    for E, V in terms.kron:
        if V.ndim == 2:
            augmentation = augmentation + E[:, None, :, None] * V[None, :, None, :]

    cross = (
        scaled.cross
        + terms.on_g[..., None] * g[None, None, None]
        + (y[None, :, None, None] * terms.cross_on_y[:, None])
    )
    for left, right in terms.cross_outer:
        cross = cross + left[:, :, None, None] * right[None, None]
    for left, right in terms.cross_swapped:
        cross = cross + left.T[None, :, :, None] * right[:, None, None, :]

    groups, p, size = scaled.granger.shape[:3]
    half, by_group = terms.granger_on_g.reshape(p, groups, size, p), g.reshape(groups, size)
    granger = (
        scaled.granger
        + fused_einsum("injk,nl->nijkl", half, by_group)
        + fused_einsum("knli,nj->nijkl", half, by_group)
    )
    return RowCov(augmentation, cross, granger)


def add_covs(left: RowCov, right: RowCov) -> RowCov:
    """Sum part by part."""
    return RowCov(*(a + b for a, b in zip(left, right, strict=True)))
