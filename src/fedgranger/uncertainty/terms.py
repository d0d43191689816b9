r"""What a round adds to Cov(θ, Â), as small factors, and their assembly.

Everything a round does to a covariance, beyond scaling it, is a short sum of products of small
arrays, whose long axis comes last. Those that depend on the covariance (`Terms`) are summed while
small, once per round; those that do not (`Products`) are written out for many rounds at once.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from fedgranger.linalg.fused import fused_einsum

__all__ = [
    "Pairs",
    "Products",
    "Rest",
    "RowCov",
    "Terms",
    "add_rest",
    "add_terms",
    "assemble",
    "at_step",
    "write_out",
]

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


class Rest(NamedTuple):
    """What is added to a `RowCov` and has no short factors; nothing is added to Â-Â."""

    augmentation: Float[Array, "p d p d"]
    cross: Float[Array, "p d p q"]


class Terms(NamedTuple):
    r"""Factors of what is added, for a step with measurement y, its noise V and causes g.

    Attributes:
        on_y: θ-θ gets \(X_{ikj} y_l\) and its transpose.
        on_g: θ-Â gets \(X_{ikj} g_l\).
        cross_on_y: θ-Â gets \(y_j X_{ikl}\).
        granger_on_g: Â-Â gets \(X_{ikj} g_l\) and its transpose.
        on_noise: θ-θ gets \(X_{ik} V_{jl}\).
    """

    on_y: Float[Array, "*window p p d"]
    on_g: Float[Array, "*window p p d"]
    cross_on_y: Float[Array, "*window p p q"]
    granger_on_g: Float[Array, "*window p p q"]
    on_noise: Float[Array, "*window p p"]


class Products(NamedTuple):
    r"""Other things that are added, as sums of products.

    Attributes:
        kron: θ-θ gets \(\sum E_{ik} M_{jl}\), M a matrix or the diagonal of one.
        outer: θ-θ gets \(\sum L_{ij} R_{kl}\).
        columns: θ-θ gets \(\sum z_j X_{ikl}\).
        swapped: θ-θ gets \(\sum L_{il} R_{kj}\).
        cross_outer: θ-Â gets \(\sum L_{ij} R_{kl}\).
        cross_swapped: θ-Â gets \(\sum L_{kj} R_{il}\).
        diagonal: θ-θ gets \(\sum X_{ikj} \delta_{jl}\).
    """

    kron: Pairs = ()
    outer: Pairs = ()
    columns: Pairs = ()
    swapped: Pairs = ()
    cross_outer: Pairs = ()
    cross_swapped: Pairs = ()
    diagonal: tuple[Float[Array, "p p d"], ...] = ()


def add_terms(left: Terms, right: Terms) -> Terms:
    """Sum part by part."""
    return jax.tree.map(jnp.add, left, right)


def at_step(terms: Terms, t: Array | int) -> Terms:
    """Pick one step of factors that have a leading step axis."""
    return Terms(*(part[t] for part in terms))


def assemble(
    scaled: RowCov,
    measurement: Float[Array, " d"],
    noise: Array,
    causes: Float[Array, " q"],
    terms: Terms,
) -> RowCov:
    """Write the new covariance."""
    y, g = measurement, causes
    augmentation = (
        scaled.augmentation
        + terms.on_y.transpose(0, 2, 1)[..., None] * y[None, None, None]
        + terms.on_y.transpose(1, 0, 2)[:, None] * y[None, :, None, None]
        + _kron(terms.on_noise, noise)
    )
    cross = (
        scaled.cross
        + terms.on_g.transpose(0, 2, 1)[..., None] * g[None, None, None]
        + y[None, :, None, None] * terms.cross_on_y[:, None]
    )
    groups, p, size = scaled.granger.shape[:3]
    half, by_group = terms.granger_on_g.reshape(p, p, groups, size), g.reshape(groups, size)
    granger = (
        scaled.granger
        + fused_einsum("iknj,nl->nijkl", half, by_group)
        + fused_einsum("kinl,nj->nijkl", half, by_group)
    )
    return RowCov(augmentation, cross, granger)


def write_out(shape: tuple[int, int, int], *products: Products) -> Rest:
    """Multiply and add; `shape` is (p, d, q)."""
    p, d, q = shape
    augmentation, cross = jnp.zeros((p, d, p, d)), jnp.zeros((p, d, p, q))
    for one in products:
        for left, right in one.outer:
            augmentation = augmentation + left[:, :, None, None] * right[None, None]
        for left, right in one.columns:
            augmentation = augmentation + left[None, :, None, None] * right[:, None]
        for left, right in one.swapped:
            augmentation = augmentation + left[:, None, None, :] * right.T[None, :, :, None]
        for left, right in one.kron:
            augmentation = augmentation + _kron(left, right)
        for spikes in one.diagonal:
            augmentation = augmentation + _on_diagonal(spikes)
        for left, right in one.cross_outer:
            cross = cross + left[:, :, None, None] * right[None, None]
        for left, right in one.cross_swapped:
            cross = cross + left.T[None, :, :, None] * right[:, None, None, :]
    return Rest(augmentation, cross)


def add_rest(cov: RowCov, rest: Rest) -> RowCov:
    """Sum part by part."""
    return RowCov(cov.augmentation + rest.augmentation, cov.cross + rest.cross, cov.granger)


def _kron(left: Float[Array, "p p"], right: Array) -> Float[Array, "p d p d"]:
    """[i, j, k, l] = L_ik R_jl, R a matrix or the diagonal of one."""
    if right.ndim == 2:
        return left[:, None, :, None] * right[None, :, None, :]
    return _on_diagonal(left[:, :, None] * right[None, None])


def _on_diagonal(spikes: Float[Array, "p p d"]) -> Float[Array, "p d p d"]:
    """[i, j, k, l] = X_ikj δ_jl."""
    return spikes.transpose(0, 2, 1)[..., None] * jnp.eye(spikes.shape[2])[None, :, None, :]
