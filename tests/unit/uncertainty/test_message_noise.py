"""Noise on the messages against quadrature: the learner's own steps, integrated over the noise."""

import itertools
from typing import NamedTuple

import jax
import numpy as np
import pytest

from fedgranger.uncertainty.message_noise import (
    MessageNoise,
    added_gain_noise,
    added_noise_cov,
    message_covs,
    white_noise,
    with_noisy_causes,
)
from fedgranger.uncertainty.steady_state import solve_steady_state
from fedgranger.uncertainty.update_moments import gain_noise, update_moments
from tests.one_row import Row, dense_rounds, make_row

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(3)  # exact up to degree five
CASES = [{"num_rounds": 3, "d": 2}, {"num_rounds": 9, "missing": True, "p": 1, "q": 2}]
CASES.append({"num_rounds": 5, "W": 2, "p": 1, "d": 2, "q": 1})


class Integrated(NamedTuple):
    """Averages over rounds and noise, plain coordinates: K, b, and of every round and node."""

    gains: np.ndarray
    pulls: np.ndarray
    weights: np.ndarray


def random_noise(p, q, seed=3):
    rng = np.random.default_rng(seed)

    def cov(size):
        root = rng.standard_normal((size, size))
        return 0.2 * root @ root.T

    return MessageNoise(cov(p), cov(p), cov(q), cov(p))


def integrate(row, noise):
    """K and b of every active round at every node of (ξ, ν, n_g) of its steps.

    Noise on g is what the server regresses on; ξ and n_g enter b alone.
    """
    params, windows = row
    A, eta2 = np.asarray(params.self_transition), float(params.feedback_step_size)
    gamma = float(params.server_step_size)
    p, q = len(A), len(params.coupling)
    W = windows.measurements.shape[1]
    covs = (noise.filtered_cov + noise.augmented_cov, noise.cause_cov, noise.gradient_cov)
    roots = [np.linalg.cholesky(cov) for cov in covs]
    gains, pulls, weights = [], [], []
    active = np.flatnonzero(np.asarray(windows.is_active) > 0)
    for places in itertools.product(range(3), repeat=W * (2 * p + q)):
        unit = NODES[list(places)].reshape(W, 2 * p + q)
        parts = unit[:, :p], unit[:, p : p + q], unit[:, p + q :]
        xi, nu, down = (part @ root.T for part, root in zip(parts, roots, strict=True))
        noisy = Row(
            params,
            type(windows)(
                windows.measurements,
                windows.causes + nu[None],
                windows.local_targets,
                windows.noise,
                windows.paired_weights,
                windows.observed_weights,
            ),
        )
        K, b = dense_rounds(noisy)
        y, g = np.asarray(noisy.windows.measurements), np.asarray(noisy.windows.causes)
        w = np.asarray(windows.observed_weights)
        error = -eta2 * (2 * xi @ A.T @ A + down)  # (step, p)
        on_theta = np.einsum("rt,ti,rtj->rij", w, error, y).reshape(len(w), -1)
        on_granger = 2 * gamma * np.einsum("rt,ti,rtj->rij", w, xi @ A.T, g).reshape(len(w), -1)
        gains.append(K)
        pulls.append(b + np.concatenate([on_theta, on_granger], axis=1)[active])
        weights.append(WEIGHTS[list(places)].prod())
    return Integrated(np.array(gains), np.array(pulls), np.array(weights) / np.sum(weights))


@pytest.fixture(scope="module", params=CASES, ids=["one-step", "missing", "two-steps"])
def case(request):
    row = make_row(**request.param)
    p, q = len(row.params.self_transition), len(row.params.coupling)
    noise = random_noise(p, q)
    return row, noise, integrate(row, noise)


def test_mean_gain_vs_quadrature(case):
    row, noise, found = case
    moments = update_moments(*row)
    scale = moments.scale
    expected = np.einsum("n,nrij->ij", found.weights, found.gains) / found.gains.shape[1]
    gain = with_noisy_causes(moments, row.params, noise).gain
    np.testing.assert_allclose(gain / scale[:, None] * scale, expected, atol=1e-12)


def test_update_noise_vs_quadrature(case):
    """The covariance over the noise of b − K x, averaged over the rounds."""
    row, noise, found = case
    p, d, q = update_moments(*row).shape
    rng = np.random.default_rng(1)
    theta, granger = rng.standard_normal((p, d)), rng.standard_normal((p, q))
    x = np.concatenate([theta.ravel(), granger.ravel()])
    n = found.pulls - found.gains @ x  # (node, round, n)
    centred = n - np.einsum("n,nri->ri", found.weights, n)
    expected = np.einsum("n,nri,nrj->ij", found.weights, centred, centred) / n.shape[1]
    added = added_noise_cov(*row, noise, theta, granger)
    np.testing.assert_allclose(added, expected, atol=1e-12)
    assert np.abs(expected).max() > 1e-4


def test_gain_noise_vs_quadrature(case):
    """E[K Σ Kᵀ] over rounds and noise, less what the mean gain does, is data's part plus ours."""
    row, noise, found = case
    moments = update_moments(*row)
    n = len(moments.scale)
    root = np.random.default_rng(2).standard_normal((n, n))
    sigma = root @ root.T
    outer = np.outer(moments.scale, moments.scale)
    mean = np.einsum("n,nrij->ij", found.weights, found.gains) / found.gains.shape[1]
    square = np.einsum(
        "n,nrij,jk,nrlk->il", found.weights, found.gains, sigma, found.gains, optimize=True
    )
    expected = square / found.gains.shape[1] - mean @ sigma @ mean.T
    own = gain_noise(*row, moments)(sigma * outer)
    added = added_gain_noise(*row, noise, moments)(sigma * outer)
    np.testing.assert_allclose((own + added) / outer, expected, rtol=1e-9, atol=1e-10)
    assert np.abs(added).max() > 0.01 * np.abs(own).max()


def test_cov_vs_dense_linear_system():
    """vec Σ = (I − E[F ⊗ F])⁻¹ vec S with every node's F: the gain's noise matters here."""
    row = make_row(num_rounds=60, p=1, d=2, q=2, sizes=(0.05, 0.08, 0.1))
    noise = random_noise(1, 2)
    found = integrate(row, noise)
    state = solve_steady_state(*row, client="c", message_noise=noise)
    n = found.gains.shape[2]
    F = np.eye(n) - found.gains
    square = np.einsum("n,nrij,nrkl->ikjl", found.weights, F, F, optimize=True)
    square = square.reshape(n * n, n * n) / F.shape[1]
    expected = np.linalg.solve(np.eye(n * n) - square, state.noise_cov.reshape(-1)).reshape(n, n)
    np.testing.assert_allclose(state.cov, expected, atol=2e-5 * np.abs(expected).max())
    mean = np.einsum("n,nrij->ij", found.weights, found.gains) / F.shape[1]
    pull = np.einsum("n,nri->i", found.weights, found.pulls) / F.shape[1]
    x = np.concatenate([state.augmentation.ravel(), state.granger.ravel()])
    np.testing.assert_allclose(x, np.linalg.solve(mean, pull), rtol=1e-8)


def test_no_noise_changes_nothing():
    row = make_row(num_rounds=200)
    plain = solve_steady_state(*row, client="c")
    silent = solve_steady_state(*row, client="c", message_noise=white_noise(row.params))
    np.testing.assert_array_equal(plain.cov, silent.cov)
    np.testing.assert_array_equal(plain.granger, silent.granger)


def test_down_noise_leaves_the_fixed_point_and_up_noise_shrinks_it():
    row = make_row(num_rounds=200)
    plain, down, up = (
        solve_steady_state(*row, client="c", message_noise=white_noise(row.params, **sizes))
        for sizes in ({}, {"down": 1.0}, {"up": 1.0})
    )
    np.testing.assert_array_equal(plain.granger, down.granger)
    assert np.linalg.norm(up.granger) < 0.9 * np.linalg.norm(plain.granger)
    for state in (down, up):
        assert np.linalg.eigvalsh(state.noise_cov - plain.noise_cov)[0] > -1e-12
        assert np.trace(state.cov) > np.trace(plain.cov) or state is up


def test_message_covs_vs_sampling():
    """Var of h_a and of the gradient over parameters and noise, for the steps of a row."""
    row = make_row(num_rounds=4)
    params, windows = row
    noise = random_noise(2, 2)
    rng = np.random.default_rng(4)
    root = 0.3 * rng.standard_normal((10, 10))
    granger = rng.standard_normal((2, 2))
    found = message_covs(params, windows, noise, granger, root @ root.T)
    count = 200_000
    x = rng.standard_normal((count, 10)) @ root.T
    T, G = x[:, :6].reshape(-1, 2, 3), granger + x[:, 6:].reshape(-1, 2, 2)
    n_c, n_a, nu, n_g = (rng.multivariate_normal(np.zeros(2), cov, count) for cov in noise)
    A = np.asarray(params.self_transition)
    states, gradients = [], []
    for y, g in zip(
        *(np.asarray(part)[:, 0] for part in jax.tree.leaves(windows)[:2]), strict=True
    ):
        h_a = T @ y + n_a
        r = (h_a - n_c) @ A.T - np.einsum("nij,nj->ni", G, g + nu)
        states.append(np.cov(h_a.T))
        gradients.append(np.cov((2 * r @ A + n_g).T))
    # a variance of 200 000 draws is known to 0.3 %
    for cov, sampled in ((found.state_cov, states), (found.gradient_cov, gradients)):
        expected = np.mean(sampled, axis=0)
        assert np.abs(cov - expected).max() < 0.015 * np.abs(expected).max()
