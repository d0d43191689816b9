r"""Which step sizes contract, in the mean and in the mean square.

- mean: \(\rho(\bar F) < 1\), \(\bar F = I - \bar K\);
- mean square: \(\rho(E[F \otimes F]) < 1\), the condition under which covariances stay bounded.

\(E[F \otimes F]\) is never formed: it is applied to a covariance as
\(\bar F\Sigma\bar F + E[\delta K\Sigma\delta K]\), self-adjoint in the scaled coordinates of
`update_moments`, and a preconditioned search finds its largest eigenvalue. With all
step sizes multiplied by μ, \(F = I - \mu K\) and the mean square contracts while
\(\mu\, E[K \Sigma K] \prec \bar K\Sigma + \Sigma\bar K\): the largest stable μ is one over the
largest eigenvalue of that pencil (Lanczos).
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.sparse.linalg import eigsh, lobpcg

from fedgranger.errors import UnstableRecursionError
from fedgranger.linalg.operators import matrix_operator
from fedgranger.uncertainty.inputs import RowParams
from fedgranger.uncertainty.update_moments import CovMap, UpdateMoments

TOLERANCE = 1e-4


class Stability(NamedTuple):
    """Spectral radii of one row's recursion, and how far its step sizes may grow.

    Attributes:
        server: ρ(D̄), Â alone.
        client: ρ(H̄), θ alone.
        joint: ρ(F̄), both.
        mean_square: ρ(E[F ⊗ F]).
        largest_factor: all step sizes times less than this are stable in the mean square.
        time_constant: 1 / (1 − ρ(F̄)), in rounds.
    """

    server: float
    client: float
    joint: float
    mean_square: float
    largest_factor: float
    time_constant: float


def analyse(moments: UpdateMoments, noise: CovMap) -> Stability:
    """Measure one row; `noise` is Σ ↦ E[δK Σ δK] (`gain_noise`)."""
    p, d, _ = moments.shape
    split = p * d
    K = moments.gain
    values, vectors = np.linalg.eigh(K)

    def radius(found: np.ndarray) -> float:
        return float(max(abs(1 - found[0]), abs(1 - found[-1])))

    joint = radius(values)
    return Stability(
        radius(np.linalg.eigvalsh(K[split:, split:])),
        radius(np.linalg.eigvalsh(K[:split, :split])),
        joint,
        1 - _slowest(noise, values, vectors),
        _largest_factor(noise, K, values, vectors),
        1 / (1 - joint) if joint < 1 else np.inf,
    )


def check(stability: Stability, params: RowParams, client: str) -> None:
    """Refuse step sizes that do not contract, naming some that do.

    Raises:
        UnstableRecursionError: with the largest stable step sizes of the same proportions.
    """
    if stability.mean_square < 1 and stability.joint < 1:
        return
    factor = 0.5 * stability.largest_factor  # the limit is that of white data: leave room
    if factor >= 0.5:  # stable step sizes, but a direction that nothing moves
        raise UnstableRecursionError(
            f"client '{client}': some direction of the parameters is not determined by the data "
            f"(spectral radius {max(stability.joint, stability.mean_square):.6f}); use a ridge "
            "above 0 or fewer sensors"
        )
    stable = [f"{factor * size:.3g}" for size in params.step_sizes]
    raise UnstableRecursionError(
        f"client '{client}': the step sizes diverge (spectral radius {stability.joint:.4g} in the "
        f"mean, {stability.mean_square:.4g} in the mean square); local_step_size {stable[0]}, "
        f"feedback_step_size {stable[1]} and server_step_size {stable[2]} are stable"
    )


def _largest(apply: CovMap, n: int) -> float:
    """Largest eigenvalue of a self-adjoint map of symmetric matrices that keeps them PSD."""

    def act(matrix: np.ndarray) -> np.ndarray:
        return apply(0.5 * (matrix + matrix.T))

    if n == 1:
        return float(apply(np.ones((1, 1)))[0, 0])
    operator = matrix_operator((n, n), act)
    start = np.eye(n).reshape(-1)
    options: dict[str, Any] = {"tol": TOLERANCE, "v0": start}
    found = eigsh(operator, k=1, which="LA", return_eigenvectors=False, **options)
    return float(found[0])


def _slowest(
    noise: CovMap, values: Float[np.ndarray, " n"], vectors: Float[np.ndarray, "n n"]
) -> float:
    """Smallest eigenvalue of 1 − E[F ⊗ F], in the eigenbasis of K̄.

    Without the gain's noise it is diagonal there, which preconditions the search.
    """
    n = len(values)
    plain = values[:, None] + values[None, :] - np.outer(values, values)

    def act(matrix: np.ndarray) -> np.ndarray:
        symmetric = 0.5 * (matrix + matrix.T)
        return plain * matrix - vectors.T @ noise(vectors @ symmetric @ vectors.T) @ vectors

    if n == 1:
        return float(act(np.ones((1, 1)))[0, 0])
    scale = np.maximum(np.abs(plain), 1e-12 * np.abs(plain).max())
    operator = matrix_operator((n, n), act)
    precondition = matrix_operator((n, n), lambda matrix: matrix / scale)
    start = np.zeros((n, n))
    start[np.unravel_index(np.argmin(plain), plain.shape)] = 1.0
    start += 1e-3 * np.eye(n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # asks for a tolerance it already met
        found, _ = lobpcg(
            operator,
            start.reshape(-1, 1),
            M=precondition,
            largest=False,
            tol=TOLERANCE * float(np.abs(plain).min() + 1e-12),
            maxiter=60,
        )
    slowest = float(found[0])
    if np.isfinite(slowest) and slowest <= float(plain.min()) * (1 + TOLERANCE) + 1e-12:
        return slowest
    return 1 - _largest(lambda matrix: matrix - act(matrix), n)  # without preconditioner


def _largest_factor(
    noise: CovMap,
    K: Float[np.ndarray, "n n"],
    values: Float[np.ndarray, " n"],
    vectors: Float[np.ndarray, "n n"],
) -> float:
    """One over the largest eigenvalue of the pencil (E[K ⊗ K], K̄ ⊕ K̄), on the range of K̄."""
    moving = values > 1e-12 * values[-1]
    basis, rates = vectors[:, moving], values[moving]
    weight = 1 / np.sqrt(rates[:, None] + rates[None, :])

    def pencil(matrix: np.ndarray) -> np.ndarray:
        sigma = basis @ (matrix * weight) @ basis.T
        squared = K @ sigma @ K + noise(sigma)
        return (basis.T @ squared @ basis) * weight

    return 1 / _largest(pencil, len(rates))
