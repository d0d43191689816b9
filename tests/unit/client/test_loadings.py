"""Loadings and measurement noise from a covariance that is known exactly."""

import warnings

import numpy as np
import pytest

from fedgranger.client import loadings
from fedgranger.client.loadings import factor_is_identified, fit_loadings, log_likelihood
from fedgranger.client.model_selection import choose_loadings
from fedgranger.client.sensor_moments import MeasurementMoments
from fedgranger.client.state_noise import state_readout
from fedgranger.errors import ModelError


def model_cov(seed, d=7, p=2, isotropic=False):
    rng = np.random.default_rng(seed)
    C = rng.standard_normal((d, p))
    noise = np.full(d, 0.4) if isotropic else rng.uniform(0.2, 2.0, d)
    return C, np.diag(noise), C @ C.T + np.diag(noise)


def same_span(C, other):
    return np.linalg.matrix_rank(np.hstack([C, other]), tol=1e-3) == C.shape[1]


# ppca and svd


def test_ppca_recovers_exact_model():
    """C up to a rotation, so compare C Cᵀ; R exactly."""
    C, R, cov = model_cov(0, isotropic=True)
    got = fit_loadings(cov, 2, "ppca")
    np.testing.assert_allclose(got.measurement_cov, R, atol=1e-12)
    np.testing.assert_allclose(
        got.observation_matrix @ got.observation_matrix.T, C @ C.T, atol=1e-10
    )
    assert (got.method, got.notes) == ("ppca", ())


def test_ppca_closed_form_on_any_covariance():
    """σ² is the mean discarded eigenvalue; C = V (Λ − σ²I)^½ (Tipping and Bishop)."""
    _, _, cov = model_cov(1)
    values, vectors = np.linalg.eigh(cov)
    noise = values[:-3].mean()
    signal = (vectors[:, -3:] * (values[-3:] - noise)) @ vectors[:, -3:].T
    got = fit_loadings(cov, 3, "ppca")
    np.testing.assert_allclose(got.measurement_cov, noise * np.eye(7), atol=1e-12)
    np.testing.assert_allclose(
        got.observation_matrix @ got.observation_matrix.T, signal, atol=1e-10
    )


def test_ppca_maximises_its_likelihood():
    _, _, cov = model_cov(2)
    best = fit_loadings(cov, 2, "ppca")
    top = log_likelihood(cov, best)
    rng = np.random.default_rng(3)
    for _ in range(50):
        C = best.observation_matrix + 0.05 * rng.standard_normal((7, 2))
        R = best.measurement_cov * rng.uniform(0.9, 1.1)
        assert log_likelihood(cov, loadings.Loadings(C, R, "ppca")) < top


def test_log_likelihood_vs_scipy():
    from scipy.stats import multivariate_normal

    C, R, cov = model_cov(4)
    rows = np.random.default_rng(5).standard_normal((500, 7))
    sample_cov = rows.T @ rows / 500
    got = log_likelihood(sample_cov, loadings.Loadings(C, R, "factor"))
    expected = multivariate_normal(np.zeros(7), cov).logpdf(rows).mean()
    assert got == pytest.approx(expected, rel=1e-10)


def test_svd_is_orthonormal_with_ppca_noise():
    _, _, cov = model_cov(6)
    svd, ppca = fit_loadings(cov, 2, "svd"), fit_loadings(cov, 2, "ppca")
    V = svd.observation_matrix
    np.testing.assert_allclose(V.T @ V, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(cov @ V, V * np.linalg.eigvalsh(cov)[:-3:-1], atol=1e-10)
    np.testing.assert_array_equal(svd.measurement_cov, ppca.measurement_cov)
    assert same_span(V, ppca.observation_matrix)


@pytest.mark.parametrize("method", ["ppca", "svd", "factor"])
def test_sign_is_fixed_by_the_largest_entry(method):
    for seed in range(5):
        _, _, cov = model_cov(seed)
        spread = np.sqrt(np.diag(cov))
        C = fit_loadings(cov / np.outer(spread, spread), 2, method).observation_matrix
        assert (C[np.abs(C).argmax(axis=0), [0, 1]] > 0).all()


# the recipe of the paper


def test_paper_recipe_vs_its_literal_steps():
    """Standardise, two leading right singular vectors, times [[1,1],[0,1]], standardise again."""
    rng = np.random.default_rng(7)
    y = rng.standard_normal((400, 2)) @ rng.standard_normal((2, 6)) + rng.standard_normal((400, 6))
    z = (y - y.mean(axis=0)) / y.std(axis=0)
    V = np.linalg.svd(z, full_matrices=False)[2][:2].T
    V = V * np.sign(V[np.abs(V).argmax(axis=0), [0, 1]])
    states = z @ V @ np.array([[1.0, 1.0], [0.0, 1.0]])
    states = (states - states.mean(axis=0)) / states.std(axis=0)

    got = fit_loadings(z.T @ z / 400, 2, "paper")
    W, _ = state_readout(got.observation_matrix, got.measurement_cov)
    np.testing.assert_allclose(z @ W.T, states, atol=1e-9)
    assert abs(np.corrcoef(states.T)[0, 1]) > 0.1  # the mixing is visible


def test_paper_has_two_states():
    with pytest.raises(ModelError, match="'paper' has two states by definition, not 3"):
        fit_loadings(model_cov(0)[2], 3, "paper")


# factor analysis


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_factor_recovers_diagonal_noise_exactly(seed):
    """The likelihood is maximal at the model that made the covariance; EM stops near it."""
    C, R, cov = model_cov(seed)
    got = fit_loadings(cov, 2, "factor")
    np.testing.assert_allclose(np.diag(got.measurement_cov), np.diag(R), rtol=1e-3)
    np.testing.assert_allclose(
        got.observation_matrix @ got.observation_matrix.T, C @ C.T, atol=2e-3
    )
    assert not (got.measurement_cov - np.diag(np.diag(got.measurement_cov))).any()
    assert got.notes == ()
    ppca = fit_loadings(cov, 2, "ppca")
    assert np.abs(np.diag(ppca.measurement_cov) / np.diag(R) - 1).max() > 0.3  # ppca could not


@pytest.mark.parametrize("factor", [1e-3, 1e3, 1e6])
def test_factor_does_not_depend_on_units(factor):
    _, _, cov = model_cov(1)
    units = np.array([1.0, factor, 1.0, 1 / factor, 1.0, 3.0, 1.0])
    base = fit_loadings(cov, 2, "factor")
    moved = fit_loadings(cov * np.outer(units, units), 2, "factor")
    np.testing.assert_allclose(
        np.diag(moved.measurement_cov), np.diag(base.measurement_cov) * units**2, rtol=1e-6
    )
    signal = base.observation_matrix @ base.observation_matrix.T
    moved_signal = moved.observation_matrix @ moved.observation_matrix.T
    np.testing.assert_allclose(moved_signal / np.outer(units, units), signal, atol=1e-6)


@pytest.mark.parametrize(
    ("d", "p", "expected"),
    [(1, 1, False), (2, 1, False), (3, 1, True), (4, 2, False), (5, 2, True), (6, 3, True)],
)
def test_identification_bound_counts_parameters(d, p, expected):
    """Entries of the covariance minus (loadings up to rotation plus noises) is not negative."""
    assert factor_is_identified(d, p) is expected
    assert (d * (d + 1) // 2 - (d * p - p * (p - 1) // 2 + d) >= 0) is expected


def test_unidentified_factor_is_refused_and_auto_falls_back():
    _, _, cov = model_cov(8, d=4)
    with pytest.raises(ModelError, match=r"2 states is not identified from 4 sensors.*ppca"):
        fit_loadings(cov, 2, "factor")
    got, ppca = auto(cov, 2), fit_loadings(cov, 2, "ppca")
    assert got.method == "ppca"
    np.testing.assert_array_equal(got.observation_matrix, ppca.observation_matrix)


def test_auto_is_factor_where_it_works():
    _, _, cov = model_cov(9)
    got, factor = auto(cov, 2), fit_loadings(cov, 2, "factor")
    assert got.method == "factor"
    np.testing.assert_array_equal(got.measurement_cov, factor.measurement_cov)


def test_noiseless_sensors_get_a_floor_and_a_note():
    """Two sensors equal the common factor: factor analysis leaves them no noise."""
    loading = np.array([[1.0], [1.0], [0.6], [0.5], [0.4]])
    cov = loading @ loading.T
    np.fill_diagonal(cov, 1.0)
    got = fit_loadings(cov, 1, "factor")
    assert got.notes == (
        "factor analysis left no noise for 2 of 5 sensors; 1e-06 of their variance was put there",
    )
    expected = np.where(loading[:, 0] == 1.0, 1e-6, 1 - loading[:, 0] ** 2)
    np.testing.assert_allclose(np.diag(got.measurement_cov), expected, rtol=1e-3)
    assert auto(cov, 1).method == "ppca"


def test_heywood_case_is_noted_and_auto_avoids_it():
    """Loadings that would need a negative noise variance: the iteration creeps to the edge."""
    cov = np.array([[1.0, 0.8, 0.8], [0.8, 1.0, 0.4], [0.8, 0.4, 1.0]])
    assert 0.8 * 0.8 / 0.4 > 1  # squared loading of the first sensor
    assert fit_loadings(cov, 1, "factor").notes
    got = auto(cov, 1)
    assert got.method == "ppca"
    assert got.notes == ()


def test_stopped_iteration_is_noted(monkeypatch):
    monkeypatch.setattr(loadings, "FACTOR_ITERATIONS", 3)
    got = fit_loadings(model_cov(0)[2], 2, "factor")
    assert got.notes == ("factor analysis had not converged after 3 iterations",)
    assert auto(model_cov(0)[2], 2).method == "ppca"


def auto(cov, state_dim, scale=None):
    """What `auto` chooses for 2000 rows with this covariance in standardised units."""
    d = len(cov)
    scale = np.ones(d) if scale is None else scale
    moments = MeasurementMoments(np.zeros(d), scale, cov, cov, cov, cov, 2000, 1999)
    return choose_loadings(moments, state_dim, "auto")


def test_auto_does_not_look_at_units():
    """The same correlations in any units: the same loadings, to the last bit."""
    rng = np.random.default_rng(20)
    raw = 3 * rng.standard_normal((5, 1))
    cov = raw @ raw.T + 0.5 * np.eye(5)
    scale = np.sqrt(np.diag(cov))
    correlation = cov / np.outer(scale, scale)
    got, other = (auto(correlation, 1, unit) for unit in (scale, np.ones(5)))
    assert got.method == other.method
    np.testing.assert_array_equal(got.observation_matrix, other.observation_matrix)
    np.testing.assert_array_equal(got.measurement_cov, other.measurement_cov)


def test_auto_finds_equal_noise_shares():
    C = np.array([[0.8], [-0.8], [0.8], [0.8], [0.8]])
    got = auto(C @ C.T + 0.36 * np.eye(5), 1, np.array([1.0, 50.0, 3.0, 0.1, 2.0]))
    assert got.method == "ppca"
    np.testing.assert_allclose(got.measurement_cov, 0.36 * np.eye(5), atol=1e-12)


# limits


@pytest.mark.parametrize("method", ["ppca", "svd", "paper"])
def test_collinear_sensors_have_no_noise_and_a_note(method):
    C = np.random.default_rng(10).standard_normal((6, 2))
    got = fit_loadings(C @ C.T, 2, method)
    assert not got.measurement_cov.any()
    assert len(got.notes) == 1
    assert "6 sensors are explained by 2 states without remainder" in got.notes[0]
    assert same_span(C, got.observation_matrix)


def test_as_many_states_as_sensors():
    _, _, cov = model_cov(11, d=3)
    got = auto(cov, 3)
    assert not got.measurement_cov.any()
    np.testing.assert_allclose(got.observation_matrix @ got.observation_matrix.T, cov, atol=1e-10)


@pytest.mark.parametrize("method", ["ppca", "svd"])
def test_more_states_than_directions(method):
    C = np.random.default_rng(12).standard_normal((6, 2))
    with pytest.raises(ModelError, match=r"6 sensors span only 2 directions but 3.*state_dim 2"):
        fit_loadings(C @ C.T, 3, method)


@pytest.mark.parametrize("state_dim", [0, 8])
def test_state_dim_out_of_range(state_dim):
    with pytest.raises(ModelError, match=f"state_dim is {state_dim} for 7 sensors.*1 and 7"):
        fit_loadings(model_cov(0)[2], state_dim, "ppca")


def test_unknown_method():
    with pytest.raises(ModelError, match="unknown state model 'pca'; choose one of factor"):
        fit_loadings(model_cov(0)[2], 2, "pca")


# least-squares states


def test_readout_is_unbiased_with_stated_error():
    """W C = I and W R Wᵀ = E; no other unbiased readout has a smaller error (Gauss-Markov)."""
    C, _, _ = model_cov(13)
    F = np.random.default_rng(14).standard_normal((7, 9))
    R = F @ F.T
    W, E = state_readout(C, R)
    np.testing.assert_allclose(W @ C, np.eye(2), atol=1e-10)
    np.testing.assert_allclose(W @ R @ W.T, E, atol=1e-10)
    pinv = np.linalg.pinv(C)
    assert np.linalg.eigvalsh(pinv @ R @ pinv.T - E)[0] > -1e-10


def test_readout_in_mixed_units():
    """Seven orders of magnitude between sensors: the states are the same, without a warning."""
    C, R, _ = model_cov(15)
    units = 10.0 ** np.array([0, 7, -7, 3, 0, 0, 1])
    W, E = state_readout(C, R)
    W_units, E_units = state_readout(C * units[:, None], R * np.outer(units, units))
    np.testing.assert_allclose(E_units, E, rtol=1e-9)
    np.testing.assert_allclose(W_units * units, W, rtol=1e-9, atol=1e-12)


def test_readout_without_noise():
    C, _, _ = model_cov(16)
    W, E = state_readout(C, np.zeros((7, 7)))
    np.testing.assert_allclose(W, np.linalg.pinv(C), atol=1e-12)
    assert not E.any()


@pytest.mark.parametrize(("d", "p", "seed"), [(4, 1, 0), (8, 2, 1), (8, 3, 2), (20, 4, 3)])
def test_factor_analysis_is_scikit_learns_to_the_last_bit(d, p, seed):
    from sklearn.decomposition import FactorAnalysis

    from fedgranger.client.loadings import FACTOR_ITERATIONS, FACTOR_TOLERANCE, analyse_factors

    random = np.random.default_rng(seed)
    rows = random.normal(size=(50, p)) @ random.normal(size=(p, d)) + random.normal(size=(50, d))
    model = FactorAnalysis(p, tol=FACTOR_TOLERANCE, max_iter=FACTOR_ITERATIONS, svd_method="lapack")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two of these do not converge
        model.fit(rows)
    loadings, noise, num_iterations = analyse_factors(rows, p)
    np.testing.assert_array_equal(loadings, model.components_)
    np.testing.assert_array_equal(noise, model.noise_variance_)
    assert num_iterations == model.n_iter_ > 1
