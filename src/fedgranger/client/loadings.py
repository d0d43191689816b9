r"""Observation matrix C and measurement noise R of a client from the covariance of its sensors.

Each method explains the covariance as \(C C^\top\)-like signal in `state_dim` directions plus
noise, and takes R from what the discarded directions hold:

- `factor`: maximum-likelihood factor analysis, \(R\) diagonal. Does not depend on the sensors'
  units. Identified only when \((d-p)^2 \ge d+p\).
- `ppca`: probabilistic PCA, \(R = \sigma^2 I\), \(\sigma^2\) the mean discarded eigenvalue.
- `svd`: orthonormal loadings (leading singular vectors), the same \(\sigma^2 I\).
- `paper`: the recipe of the paper's real-data appendix: two leading singular vectors, times
  [[1, 1], [0, 1]], standardised again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from fedgranger.errors import ModelError
from fedgranger.text import counted

METHODS = ("factor", "ppca", "svd", "paper")
NOISE_FLOOR = 1e-10
"""Noise below this share of the mean sensor variance is rounding: R is then zero."""
FACTOR_ITERATIONS = 1000
FACTOR_TOLERANCE = 1e-8
"""Gain of log-likelihood at which factor analysis stops."""
TINY = 1e-12
_gesdd, _gesdd_lwork = scipy.linalg.get_lapack_funcs(("gesdd", "gesdd_lwork"), dtype=np.float64)
HEYWOOD_FLOOR = 1e-6
"""Smallest share of a sensor's variance that factor analysis may leave as noise."""


class Loadings(NamedTuple):
    """C, R, the method that was really used, and notes on it."""

    observation_matrix: np.ndarray
    measurement_cov: np.ndarray
    method: str
    notes: tuple[str, ...] = ()


def factor_is_identified(num_sensors: int, state_dim: int) -> bool:
    """Whether factor analysis has no more parameters than the covariance has entries."""
    return (num_sensors - state_dim) ** 2 >= num_sensors + state_dim


def fit_loadings(cov: np.ndarray, state_dim: int, method: str) -> Loadings:
    """Find C and R by one of the methods."""
    d = len(cov)
    if not 1 <= state_dim <= d:
        raise ModelError(
            f"state_dim is {state_dim} for {counted(d, 'sensor')}; it must lie between 1 and {d}"
        )
    if method == "factor":
        if not factor_is_identified(d, state_dim):
            raise ModelError(
                f"factor analysis with {counted(state_dim, 'state')} is not identified from "
                f"{counted(d, 'sensor')}; "
                "use state_model='ppca' or fewer states"
            )
        return _factor(cov, state_dim)
    if method not in METHODS:
        raise ModelError(f"unknown state model '{method}'; choose one of {', '.join(METHODS)}")
    if method == "paper" and state_dim != 2:
        raise ModelError(f"state_model 'paper' has two states by definition, not {state_dim}")
    C, values, R, notes = _principal(cov, state_dim)
    if method == "ppca":
        C = C * np.sqrt(values - R[0, 0])
    elif method == "paper":
        mix = np.array([[1.0, 1.0], [0.0, 1.0]])
        scale = np.sqrt(np.diag(mix.T @ C.T @ cov @ C @ mix))
        # state = diag(1/scale) mixᵀ Vᵀ y, so C is the matching right inverse
        C = C @ np.linalg.inv(mix.T) * scale
    return Loadings(C, R, method, notes)


def log_likelihood(cov: np.ndarray, loadings: Loadings) -> float:
    """Gaussian log-likelihood per row of the covariance that the loadings imply.

    Only `factor` and `ppca` have one: their states have unit covariance.
    """
    C, R = loadings.observation_matrix, loadings.measurement_cov
    implied = C @ C.T + R
    sign, log_det = np.linalg.slogdet(implied)
    if sign <= 0:
        return np.inf  # noiseless: the data lie in the span of the loadings
    trace = np.trace(np.linalg.solve(implied, cov))
    return float(-0.5 * (len(cov) * np.log(2 * np.pi) + log_det + trace))


def _principal(
    cov: np.ndarray, state_dim: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, ...]]:
    """Leading eigenvectors and eigenvalues, R from the rest, notes."""
    d = len(cov)
    values, vectors = np.linalg.eigh(cov)
    values, vectors = values[::-1], vectors[:, ::-1]
    floor = NOISE_FLOOR * values.mean()
    if values[state_dim - 1] <= floor:
        rank = int((values > floor).sum())
        raise ModelError(
            f"the {d} sensors span only {counted(rank, 'direction')} but {state_dim} states were "
            "asked for; "
            f"use state_dim {rank} or less"
        )
    vectors = vectors * _signs(vectors)
    notes: tuple[str, ...] = ()
    noise = float(values[state_dim:].mean()) if state_dim < d else 0.0
    if noise <= floor:
        notes = (
            f"{counted(d, 'sensor is', 'sensors are')} explained by "
            f"{counted(state_dim, 'state')} without remainder, so measurement "
            "noise cannot be separated from the state and is taken as zero",
        )
        noise = 0.0
    return vectors[:, :state_dim], values[:state_dim], noise * np.eye(d), notes


def _signs(columns: np.ndarray) -> np.ndarray:
    """Sign of each column's first large entry: free of rounding and of the algebra library."""
    size = np.abs(columns)
    first = (size >= (1 - 1e-6) * size.max(axis=0)).argmax(axis=0)
    return np.sign(columns[first, np.arange(columns.shape[1])])


def _factor(cov: np.ndarray, state_dim: int) -> Loadings:
    """Factor analysis of 2d made-up rows with exactly this covariance: cost independent of T."""
    d, scale = len(cov), np.sqrt(np.diag(cov))
    # On correlations: the iteration starts at unit noise, so in raw units it would depend on them.
    values, vectors = np.linalg.eigh(cov / np.outer(scale, scale))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T * np.sqrt(d)
    W, noise, num_iterations = analyse_factors(np.concatenate([root, -root]), state_dim)
    notes: tuple[str, ...] = ()
    if num_iterations >= FACTOR_ITERATIONS:
        notes = (f"factor analysis had not converged after {FACTOR_ITERATIONS} iterations",)
    low = noise < HEYWOOD_FLOOR
    if low.any():
        notes += (
            f"factor analysis left no noise for {int(low.sum())} of {d} sensors; "
            f"{HEYWOOD_FLOOR:g} of their variance was put there",
        )
        noise = np.where(low, HEYWOOD_FLOOR, noise)
    C = W.T
    return Loadings(C * _signs(C) * scale[:, None], np.diag(noise * scale**2), "factor", notes)


def analyse_factors(rows: np.ndarray, state_dim: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Maximum-likelihood factor analysis by alternation.

    Given the noise variances, the loadings are leading singular vectors of the rows divided by
    the noise; given the loadings, the noise is what they leave of every variance (Barber, Bayesian
    Reasoning and Machine Learning, section 21.2). Step for step what scikit-learn's
    `FactorAnalysis` does with `svd_method="lapack"` (a test holds them equal to the last bit),
    without its 90 MB in every client of a federation.

    Returns:
        Loadings (state_dim, sensors), noise variances, and the number of iterations.
    """
    num_rows, d = rows.shape
    rows = rows - rows.mean(axis=0)
    variances, noise = rows.var(axis=0), np.ones(d)
    constant, before, iteration = d * np.log(2.0 * np.pi) + state_dim, -np.inf, 0
    W, root = np.zeros((state_dim, d)), np.sqrt(num_rows)
    work, add = int(_gesdd_lwork(num_rows, d, full_matrices=False)[0]), np.add.reduce
    while iteration < FACTOR_ITERATIONS:
        iteration += 1
        scale = np.sqrt(noise) + TINY
        # Thousands of small ones: what scipy.linalg.svd does around it takes longer than itself.
        _, singular, V, failed = _gesdd(rows / (scale * root), full_matrices=False, lwork=work)
        if failed:
            raise scipy.linalg.LinAlgError("factor analysis: the singular values did not converge")
        explained, rest = singular[:state_dim] ** 2, singular[state_dim:]
        W = np.sqrt(np.maximum(explained - 1.0, 0.0))[:, None] * V[:state_dim] * scale
        gain = constant + add(np.log(explained)) + (rest @ rest + add(np.log(noise)))
        gain *= -num_rows / 2.0
        if gain - before < FACTOR_TOLERANCE:
            break
        before = gain
        noise = np.maximum(variances - add(W**2, axis=0), TINY)
    return W, noise, iteration
