r"""Directed graphs as weight matrices: how cyclic one is, and what to drop until it is not.

Entry `[j, i]` is the edge from variable j to variable i, as in \(X = XW + E\). The measure of
cycles is that of NOTEARS (Zheng et al. 2018), \(h(W) = \mathrm{tr}\,e^{W\circ W} - d\): zero
exactly when no product of weights along a closed walk is different from zero.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

TAYLOR_NORM = 0.125
"""Below this norm the ninth Taylor polynomial of the exponential is exact to 3e-16."""
LARGEST_NORM = 200.0
"""Of W∘W; the square of e^200 times the largest penalty is still a number."""


def cyclicity(
    weights: Float[np.ndarray, "cause effect"],
) -> tuple[float, Float[np.ndarray, "cause effect"]]:
    r"""How cyclic a graph is: \(h\), and its gradient \(2W\circ(e^{W\circ W})^\top\).

    Weights so large that h would leave the range of a double are shrunk first (an optimiser's
    trial step may be that long): h is then smaller than it should be, but zero only when it is.

    Example:
        >>> cyclicity(np.array([[0.0, 1.0], [0.0, 0.0]]))[0]
        0.0
    """
    squares = weights * weights
    norm = float(squares.sum(axis=0).max(initial=0.0))
    if norm > LARGEST_NORM:
        squares, norm = squares * (LARGEST_NORM / norm), LARGEST_NORM
    halvings = _halvings(norm)
    excess = _taylor_excess(squares / 2.0**halvings)
    for _ in range(halvings):
        excess = 2.0 * excess + excess @ excess
    return float(np.trace(excess)), 2.0 * weights * (excess.T + np.eye(len(weights)))


def walks_of(strengths: Float[np.ndarray, "cause effect"]) -> float:
    r"""\(\mathrm{tr}\,e^{M} - d\) of edges that are not negative."""
    return cyclicity(np.sqrt(strengths))[0]


@jax.custom_vjp
def closed_walks(strengths: Float[Array, "cause effect"]) -> Float[Array, ""]:
    r"""\(\mathrm{tr}\,e^{M} - d\) of edges that are not negative; its gradient is exact.

    With \(M = W\circ W\) this is `cyclicity`, as a JAX function.
    """
    return jnp.trace(_exponential_excess(strengths))


def _closed_walks_forward(strengths: Array) -> tuple[Array, Array]:
    excess = _exponential_excess(strengths)
    return jnp.trace(excess), excess


def _closed_walks_backward(excess: Array, change: Array) -> tuple[Array]:
    return (change * (excess.T + jnp.eye(excess.shape[0], dtype=excess.dtype)),)


closed_walks.defvjp(_closed_walks_forward, _closed_walks_backward)


def _exponential_excess(M: Float[Array, "dim dim"]) -> Float[Array, "dim dim"]:
    """The exponential without the identity, so that small cycles lose no digits."""
    norm = jnp.max(jnp.sum(jnp.abs(M), axis=0))
    ratio = jnp.maximum(norm / TAYLOR_NORM, 1.0)
    halvings = jnp.ceil(jnp.log2(ratio)).astype(jnp.int32)
    excess = _taylor_excess(M / 2.0 ** halvings.astype(M.dtype))
    return lax.fori_loop(0, halvings, lambda _, E: 2.0 * E + E @ E, excess)


def _taylor_excess(M: Any) -> Any:
    """Σ M^k / k! for k = 1 … 9 with four products."""
    second = M @ M
    third = second @ M
    c = [1.0 / math.factorial(k) for k in range(10)]
    high = c[7] * M + c[8] * second + c[9] * third
    high = c[4] * M + c[5] * second + c[6] * third + third @ high
    return M + c[2] * second + c[3] * third + third @ high


def _halvings(norm: float) -> int:
    return max(0, math.ceil(math.log2(norm / TAYLOR_NORM))) if norm > 0 else 0


def is_acyclic(edges: Bool[np.ndarray, "cause effect"]) -> bool:
    """Whether no walk along edges returns: variables without causes can be removed to the end.

    Example:
        >>> is_acyclic(np.array([[False, True], [True, False]]))
        False
    """
    left = np.array(edges, dtype=bool)
    while len(left):
        stays = left.any(axis=0)
        if stays.all():
            return False
        left = left[np.ix_(stays, stays)]
    return True


def drop_until_acyclic(
    weights: Float[np.ndarray, "cause effect"], threshold: float
) -> Bool[np.ndarray, "cause effect"]:
    """Edges above the threshold, without the smallest ones, as few as leave no cycle.

    Equals raising the threshold until the graph is acyclic.
    """
    size = np.abs(weights)
    kept = size > threshold
    steps = np.unique(size[kept])
    # the number dropped can be found by halving: a part of an acyclic graph is acyclic
    low, high = 0, len(steps)
    while low < high:
        middle = (low + high) // 2
        if is_acyclic(kept & (size >= steps[middle])):
            high = middle
        else:
            low = middle + 1
    if low == 0:
        return kept
    return kept & (size >= steps[low]) if low < len(steps) else np.zeros_like(kept)
