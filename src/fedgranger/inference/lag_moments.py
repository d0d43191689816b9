r"""Measurement error estimated from the states' own lags, beside the clients' own estimate.

With white error of covariance E, block diagonal by client, and \(\Gamma_k = E[s_{t+k}s_t^\top]\),

$$\Gamma_1 = A(\Gamma_0 - E), \qquad \Gamma_2 = A\,\Gamma_1$$

hold for the true A and E: 2P² equations for P² + Σ p(p+1)/2 unknowns. The second holds for every
white E, also where a controller acts on the noisy reading. The generalised method of moments
weights both by the inverse of their long-run covariance (the moments are a moving average of order
one) and its statistic J tests whether any A and E satisfy them. J is oversized with many moments:
call it a contradiction at p < 0.001 only.

Whether the clients' own E satisfies them is another question: D = J(E of the clients) − J, χ² with
as many degrees of freedom as E has unknowns, is small when their own estimate agrees with what
the lags show. Where a controller acts on the noisy reading, or R was declared wrongly, it is
large although some other E would fit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

from fedgranger.errors import InferenceError
from fedgranger.inference.state_moments import accumulate
from fedgranger.inference.states import StateSource, complete_rows, lagged_pairs
from fedgranger.linalg.blocks import diagonal_blocks
from fedgranger.linalg.psd import is_positive_definite, symmetrise

SAMPLES_PER_MOMENT = 4
MAX_STEPS = 30
"""On data of the model less than ten are needed; where more are, no E fits anyway."""
LARGEST = 1.0
"""No entry of E is larger where the states have unit variance. Without a bound the search runs away
to an E of any size when a state is nearly white."""
REWEIGHTINGS = 2
HOPELESS = 1e-12
"""J with a smaller p-value is not weighted again."""


class LagMomentCheck(NamedTuple):
    """A and E as the lags show them, and whether any fit.

    Attributes:
        error_covs: E_m per client, with what it added to its states; symmetric, not forced to be
            positive.
        transition: A.
        statistic: J, χ² with `df` degrees of freedom under the model.
        df: equations minus unknowns.
        p_value: of J.
        own_p_value: of D, that the clients' own E (and what they added) is what the lags show.
        state_covs: covariance of each client's states, noise included.
    """

    error_covs: tuple[np.ndarray, ...]
    transition: Float[np.ndarray, "state state"]
    statistic: float
    df: int
    p_value: float
    own_p_value: float
    state_covs: tuple[np.ndarray, ...]


def lag_moment_check(source: StateSource) -> LagMomentCheck:
    """Estimate A and E from lags 0 to 2, and compare with the clients' own E.

    Raises:
        InferenceError: too few complete stretches of three steps for that many moments, one
            client only (nothing is overidentified then), or states that are collinear.
    """
    source = complete_rows(source)
    found, P = accumulate(source, 2), source.total_dim
    n, num_moments = found.num_pairs, 2 * P * P
    basis = _error_basis(source.dims)
    df = num_moments - P * P - len(basis)
    if df <= 0:
        raise InferenceError("the lag-moment check needs at least one state in two clients")
    if n < SAMPLES_PER_MOMENT * num_moments:
        raise InferenceError(
            f"{n} steps for the {num_moments} lag moments of {P} states; at least "
            f"{SAMPLES_PER_MOMENT * num_moments} are needed, so give more data or fewer states"
        )
    scale = np.sqrt(np.diag(found.after_cov))
    if not is_positive_definite(found.after_cov / np.outer(scale, scale)):
        raise InferenceError("the clients' states are collinear; merge clients or use fewer states")
    unit = np.outer(scale, scale)
    gamma = (
        found.before_cov[:P, :P] / unit,
        found.lag_cov[:, :P] / unit,
        found.lag_cov[:, P:] / unit,
        found.before_cov[:P, P:] / unit,
    )
    weight = np.eye(num_moments)
    A, e, value = _minimise(gamma, basis, np.zeros(len(basis)), weight)
    for _ in range(REWEIGHTINGS):
        S = _long_run(source, found.mean, scale, A, np.tensordot(e, basis, axes=1))
        try:
            weight = np.linalg.inv(np.linalg.cholesky(S))
        except np.linalg.LinAlgError:
            raise InferenceError(
                "the states' first two lags are too uncertain to check their measurement noise; "
                "give more data or fewer states"
            ) from None
        A, e, value = _minimise(gamma, basis, e, weight)
        if stats.chi2.sf(n * value, df) < HOPELESS:
            break
    own_rest = _best_transition(gamma, source.error_cov / unit, weight)[2]
    E = np.tensordot(e, basis, axes=1) * unit
    statistic = float(n * value)
    return LagMomentCheck(
        tuple(diagonal_blocks(E, source.dims)),
        A * np.outer(scale, 1 / scale),
        statistic,
        df,
        float(stats.chi2.sf(statistic, df)),
        float(stats.chi2.sf(max(n * float(own_rest @ own_rest) - statistic, 0.0), len(basis))),
        tuple(diagonal_blocks(found.after_cov, source.dims)),
    )


def _error_basis(dims: tuple[int, ...]) -> Float[np.ndarray, "_ state state"]:
    """Symmetric matrices that span all block-diagonal E, (unknown, P, P)."""
    P, first, out = sum(dims), 0, []
    for dim in dims:
        for i in range(first, first + dim):
            for j in range(first, i + 1):
                one = np.zeros((P, P))
                one[i, j] = one[j, i] = 1.0
                out.append(one)
        first += dim
    return np.array(out)


def _minimise(
    gamma: tuple[np.ndarray, ...], basis: np.ndarray, start: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Minimise |weight · g(A, E)|² over A and E; returns A, E's coordinates and the value.

    g is linear in A for given E, so only E is searched for (variable projection, Golub and Pereyra
    1973, with Kaufman's derivative: that of the projection itself is left out).
    """
    parts = {}

    def rest(e: np.ndarray) -> np.ndarray:
        parts["of"] = e.copy()
        parts["A"], parts["Q"], out = _best_transition(gamma, np.tensordot(e, basis, 1), weight)
        return out

    def slope(e: np.ndarray) -> np.ndarray:
        if not np.array_equal(parts["of"], e):
            rest(e)
        by_e = weight[:, : basis[0].size] @ (parts["A"] @ basis).reshape(len(basis), -1).T
        return by_e - parts["Q"] @ (parts["Q"].T @ by_e)

    found = optimize.least_squares(
        rest,
        start,
        slope,  # pyright: ignore[reportArgumentType]
        bounds=(-LARGEST, LARGEST),
        max_nfev=MAX_STEPS,
    )
    left = rest(found.x)
    return parts["A"], found.x, float(left @ left)


def _best_transition(
    gamma: tuple[np.ndarray, ...], E: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A that minimises |weight · g(A, E)|², an orthonormal basis of its columns, and what is left.

    g = (Γ1 − A(Γ0 − E), Γ2 − A Γ1') is linear in A, row by row of A.
    """
    zero, one, two, one_before = gamma
    P = len(E)
    by_A = np.concatenate([np.kron(np.eye(P), part.T) for part in (zero - E, one_before)])
    target = weight @ np.concatenate([one.reshape(-1), two.reshape(-1)])
    Q, R = np.linalg.qr(weight @ by_A)
    fitted = Q.T @ target
    size = np.abs(np.diag(R))
    is_singular = size.min() <= len(R) * np.finfo(np.float64).eps * size.max()
    A = np.linalg.lstsq(R, fitted)[0] if is_singular else np.linalg.solve(R, fitted)
    return A.reshape(P, P), Q, target - Q @ fitted


def _long_run(
    source: StateSource, mean: np.ndarray, scale: np.ndarray, A: np.ndarray, E: np.ndarray
) -> np.ndarray:
    """Covariance of the moments and their lag-one covariance; Bartlett's weight if it must be."""
    P, AE, num = len(A), A @ E, 0
    now, before = np.zeros((2 * P * P, 2 * P * P)), np.zeros((2 * P * P, 2 * P * P))
    for pairs in lagged_pairs(source, 2, mean):
        s, x = pairs.after / scale, pairs.before / np.tile(scale, 2)
        u = s - x[:, :P] @ A.T
        psi = np.concatenate(
            [
                (u[:, :, None] * x[:, None, :P] + AE).reshape(len(u), -1),
                (u[:, :, None] * x[:, None, P:]).reshape(len(u), -1),
            ],
            axis=1,
        )
        follows = (np.diff(pairs.step) == 1) & (np.diff(pairs.segment) == 0)
        now += psi.T @ psi
        before += psi[1:][follows].T @ psi[:-1][follows]
        num += len(psi)
    for weight in (1.0, 0.5):  # one half is Bartlett's, never indefinite
        S = symmetrise(now + weight * (before + before.T)) / num
        if is_positive_definite(S):
            break
    return S
