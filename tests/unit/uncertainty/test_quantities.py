"""The paper's quantities against quadrature over the noise of a whole run of the learner."""

from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedgranger.uncertainty import quantities as paper
from fedgranger.uncertainty.mean_recursion import initial_mean
from fedgranger.uncertainty.round_terms import RowCov
from tests.exact_moments import (
    one_round,
    random_system,
    random_windows,
    row_params_of,
    row_window_of,
    whole_run,
)

P, D, Q = 2, 2, 2
SPLITS = np.cumsum([P * D, P * Q, D, P])
quantities = jax.jit(paper.quantities)
prior_quantities = jax.jit(paper.prior_quantities)


class Case:
    """A run of some rounds and the exact moments when the next one begins."""

    def __init__(self, *, W=1, full=False, rounds=3, noisy=True):
        rng = np.random.default_rng(4)
        self.system = random_system(rng, P, D, Q)
        windows = random_windows(rng, P, D, Q, rounds=rounds, window=W, full=full)
        if (
            W == 2 and rounds == 3
        ):  # fewer nodes; noise is left at a last, a first and the next step
            windows[0]["V"][0] = windows[1]["V"][1] = 0.0
        if not noisy:
            windows = [window | {"V": np.zeros_like(window["V"])} for window in windows]
        size = P * (D + Q)
        root = rng.normal(size=(size, size))
        prior_mean, prior = rng.normal(size=size), 0.1 * root @ root.T
        self.windows, n = windows, P * D
        self.params = row_params_of(self.system)
        self.mean = initial_mean(
            jnp.asarray(prior_mean[:n].reshape(P, D)),
            jnp.asarray(prior_mean[n:].reshape(P, Q)),
            full_noise=full,
        )
        self.cov = RowCov(
            jnp.asarray(prior[:n, :n].reshape(P, D, P, D)),
            jnp.asarray(prior[:n, n:].reshape(P, D, P, Q)),
            jnp.asarray(prior[n:, n:].reshape(1, P, Q, P, Q)),
        )
        for window in windows[:-1]:
            inputs = row_window_of(self.system, window, full=full)
            self.mean, self.cov = one_round(self.params, self.mean, self.cov, inputs)
        self.window = row_window_of(self.system, windows[-1], full=full)
        self.found = quantities(self.params, self.mean, self.cov, self.window)
        _, S = whole_run(self.system, prior_mean, prior, windows)
        names = ("theta", "granger", "y", "state", "gradient")
        cuts = zip([0, *SPLITS], [*SPLITS, len(S)], strict=True)
        where = {name: slice(*cut) for name, cut in zip(names, cuts, strict=True)}
        self.exact = lambda first, second: S[where[first], where[second]]


make = lru_cache(maxsize=16)(Case)


PAIRS = {
    "augmentation_cov": ("theta", "theta"),
    "granger_cov": ("granger", "granger"),
    "granger_augmentation_cov": ("granger", "theta"),
    "augmentation_data_cov": ("theta", "y"),
    "augmentation_state_cov": ("theta", "state"),
    "granger_state_cov": ("granger", "state"),
    "state_cov": ("state", "state"),
    "gradient_cov": ("gradient", "gradient"),
}
SETTINGS = [
    (1, False, 1),
    (1, False, 2),
    (1, True, 3),
    pytest.param(1, False, 3, marks=pytest.mark.slow),  # quadrature grows with the rounds
    pytest.param(2, False, 3, marks=pytest.mark.slow),  # quadrature grows with the window
]


@pytest.mark.parametrize("quantity", paper.QUANTITIES)
@pytest.mark.parametrize(("W", "full", "rounds"), SETTINGS)
def test_quantity_vs_quadrature(quantity, W, full, rounds):
    case = make(W=W, full=full, rounds=rounds)
    expected = case.exact(*PAIRS[quantity])
    got = np.reshape(getattr(case.found, quantity), expected.shape)
    np.testing.assert_allclose(got, expected, atol=1e-10)


@pytest.mark.parametrize("quantity", paper.QUANTITIES)
def test_quantity_without_noise_vs_quadrature(quantity):
    """Given y: Λ = Σ_θ (ȳ ⊗ I), Γ = Ψ (ȳ ⊗ I), Σ_h = (ȳᵀ ⊗ I) Σ_θ (ȳ ⊗ I) and nothing else."""
    case = make(noisy=False)
    expected = case.exact(*PAIRS[quantity])
    got = np.reshape(getattr(case.found, quantity), expected.shape)
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_data_cov_is_the_step_on_the_last_target():
    """Ω = 2η1 (ȳ_prev ⊗ (CA)ᵀ) V, whatever the prior."""
    case = make()
    V = np.diag(case.window.noise[0])
    D_gain = 2 * case.system["eta1"] * case.system["CA"].T @ V
    expected = np.einsum("im,j->ijm", D_gain, case.windows[-2]["y"][-1])
    np.testing.assert_allclose(case.found.augmentation_data_cov, expected, rtol=1e-12)


def test_no_data_cov_across_a_gap():
    """The last pair was not complete, so the next measurement is news."""
    case = make()
    last_step = case.mean.last_step._replace(weight=jnp.zeros(()))
    mean = case.mean._replace(last_step=last_step)
    found = quantities(case.params, mean, case.cov, case.window)
    assert not np.any(found.augmentation_data_cov)
    np.testing.assert_array_equal(found.augmentation_cov, case.cov.augmentation)


def relative(got, expected):
    return np.linalg.norm(np.ravel(got) - np.ravel(expected)) / np.linalg.norm(expected)


def test_printed_forms_are_off():
    """What the errata change: each is off by more than 0.1 %, where ours agree to 1e-10."""
    case = make()
    found, theta = case.found, np.asarray(case.mean.augmentation)
    y, V, g = case.windows[-1]["y"][0], case.windows[-1]["V"][0], case.windows[-1]["g"][0]
    Omega = np.asarray(found.augmentation_data_cov)
    Sigma, A = np.asarray(found.augmentation_cov), case.system["A"]

    Lambda = np.einsum("ijkl,l->ijk", Sigma, y) + np.einsum("ijm,km->ijk", Omega, theta)
    assert relative(Lambda, case.exact("theta", "state")) > 0.001  # no third-order terms

    within = np.einsum("ijkl,j,l->ik", Sigma, y, y) + theta @ V @ theta.T
    assert relative(within, case.exact("state", "state")) > 0.001  # no Σ V[j,k] Σ_θ[j,k], no Ω
    contracted = within + np.einsum("ijkl,jl->ik", Sigma, V)
    assert relative(contracted, case.exact("state", "state")) > 0.001  # no Ω

    state_cov, Gamma = case.exact("state", "state"), case.exact("granger", "state")
    predicted = np.kron(np.eye(P), g)
    between = A @ Gamma.T @ predicted.T
    residual = A @ state_cov @ A.T + predicted @ case.exact("granger", "granger") @ predicted.T
    residual = residual - between - between.T
    gradient_cov = case.exact("gradient", "gradient")
    np.testing.assert_allclose(4 * A.T @ residual @ A, gradient_cov, atol=1e-10)
    assert relative(A.T @ residual @ A, gradient_cov) > 0.001  # no factor 2 of the gradient
    apart = A @ state_cov @ A.T + predicted @ case.exact("granger", "granger") @ predicted.T
    assert relative(4 * A.T @ apart @ A, gradient_cov) > 0.001  # no Γ

    Gamma_printed = np.einsum("klij,j->kli", np.asarray(found.granger_augmentation_cov), y)
    assert relative(Gamma_printed, Gamma) > 0.001  # no Cov(Â, y_p)


@pytest.mark.parametrize(("W", "full"), [(1, False), (1, True), (2, False)])
def test_prior_share_vs_difference_with_and_without_covariance(W, full):
    case = make(W=W, full=full)
    nothing = jax.tree.map(jnp.zeros_like, case.cov)
    without = quantities(case.params, case.mean, nothing, case.window)
    share = prior_quantities(case.params, case.cov, case.window)
    for name, total, data, part in zip(paper.QUANTITIES, case.found, without, share, strict=True):
        np.testing.assert_allclose(part, total - data, rtol=1e-9, atol=1e-12, err_msg=name)


def test_sums_of_sizes_by_cause_vs_traces():
    case = make()
    one = paper.sizes(case.found, 1)
    for name, value in zip(paper.QUANTITIES, case.found, strict=True):
        side = round(np.sqrt(np.size(value)))
        is_cov = name in ("augmentation_cov", "granger_cov", "state_cov", "gradient_cov")
        flat = np.reshape(value, (side, side)) if is_cov else np.ravel(value)
        expected = np.trace(flat) if is_cov else np.linalg.norm(flat)
        np.testing.assert_allclose(one[name], expected, rtol=1e-12, err_msg=name)
    two = paper.sizes(case.found, 2)
    np.testing.assert_allclose(two["granger_cov"].sum(), one["granger_cov"][0], rtol=1e-12)
    for name in ("granger_augmentation_cov", "granger_state_cov"):
        np.testing.assert_allclose(np.hypot(*two[name]), one[name][0], rtol=1e-12)


@pytest.mark.parametrize("groups", [1, 2])
def test_sizes_of_two_causes_with_two_states_each(groups):
    """Columns of Â belong to causes in order: the first two to the first."""
    rng = np.random.default_rng(7)
    p, d, q, s = 2, 3, 4, 4 // groups
    shapes = [(p, d, p, d), (groups, p, s, p, s), (p, q, p, d), (p, d, d), (p, d, p), (p, q, p)]
    shapes += [(p, p), (p, p)]
    found = paper.Quantities(*(jnp.asarray(rng.normal(size=shape)) for shape in shapes))
    sizes = paper.sizes(found, 2)
    for n in range(2):
        own = slice(2 * n, 2 * n + 2)
        columns = [(0, c) if groups == 1 else (n, c - 2 * n) for c in range(2 * n, 2 * n + 2)]
        trace = sum(found.granger_cov[g, i, c, i, c] for g, c in columns for i in range(p))
        np.testing.assert_allclose(sizes["granger_cov"][n], trace, rtol=1e-12)
        for name in ("granger_augmentation_cov", "granger_state_cov"):
            block = np.asarray(getattr(found, name))[:, own]
            np.testing.assert_allclose(sizes[name][n], np.linalg.norm(block), rtol=1e-12)
