"""Positive semidefinite matrices: projection, definiteness, pencil eigenvalues."""

import numpy as np
import pytest
import scipy.linalg

from fedgranger.linalg.psd import (
    RANK_TOLERANCE,
    factor_of,
    inverse_form,
    is_positive_definite,
    largest_pencil_eigenvalue,
    project,
    symmetrise,
)


def random_psd(seed, dim, rank=None):
    factor = np.random.default_rng(seed).standard_normal((dim, rank or dim))
    return factor @ factor.T


def test_symmetrise():
    matrix = np.array([[1.0, 2.0], [4.0, 3.0]])
    np.testing.assert_array_equal(symmetrise(matrix), [[1.0, 3.0], [3.0, 3.0]])


def test_project_leaves_positive_definite_matrix_alone():
    matrix = random_psd(0, 4)
    result = project(matrix, 0.5 * np.linalg.eigvalsh(matrix)[0])
    np.testing.assert_array_equal(result.matrix, matrix)
    assert result.relative_change == 0.0


def test_project_raises_low_eigenvalues_only():
    vectors = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]
    matrix = (vectors * [-3.0, 0.1, 4.0]) @ vectors.T
    result = project(matrix, 0.5)
    expected = (vectors * [0.5, 0.5, 4.0]) @ vectors.T
    np.testing.assert_allclose(result.matrix, expected, atol=1e-12)
    change = np.linalg.norm(expected - matrix) / np.linalg.norm(matrix)
    assert result.relative_change == pytest.approx(change, rel=1e-10)


def test_project_is_the_nearest_matrix_above_the_floor():
    """No other matrix with eigenvalues >= floor is closer in Frobenius norm."""
    rng = np.random.default_rng(2)
    matrix = symmetrise(rng.standard_normal((3, 3)))
    floor = 0.2
    nearest = project(matrix, floor).matrix
    assert np.linalg.eigvalsh(nearest)[0] >= floor - 1e-12
    distance = np.linalg.norm(nearest - matrix)
    assert distance > 0.1
    for k in range(200):
        other = random_psd(k, 3) * rng.uniform(0.01, 1.0) + floor * np.eye(3)
        mixed = 0.9 * nearest + 0.1 * other  # feasible: the set is convex
        assert np.linalg.norm(mixed - matrix) >= distance


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 2.0], True),
        ([1e-3, 1e3], True),
        ([2 * RANK_TOLERANCE, 1.0], True),
        ([0.5 * RANK_TOLERANCE, 1.0], False),
        ([0.0, 1.0], False),
        ([-1.0, 1.0], False),
        ([-2.0, -1.0], False),
        ([0.0, 0.0], False),
    ],
)
def test_is_positive_definite(values, expected):
    assert is_positive_definite(np.diag(values)) is expected
    assert is_positive_definite(1e8 * np.diag(values)) is expected


@pytest.mark.parametrize("seed", range(3))
def test_largest_pencil_eigenvalue_vs_scipy(seed):
    N, D = random_psd(seed, 5), random_psd(seed + 10, 5)
    expected = scipy.linalg.eigh(N, D, eigvals_only=True)[-1]
    assert largest_pencil_eigenvalue(N, D) == pytest.approx(expected, rel=1e-9)


def test_largest_pencil_eigenvalue_on_singular_denominator():
    """On the range of D only: equal to scipy in coordinates of that range."""
    basis = np.linalg.qr(np.random.default_rng(3).standard_normal((5, 3)))[0]
    N, D = random_psd(4, 3), random_psd(5, 3)
    expected = scipy.linalg.eigh(N, D, eigvals_only=True)[-1]
    got = largest_pencil_eigenvalue(basis @ N @ basis.T, basis @ D @ basis.T)
    assert got == pytest.approx(expected, rel=1e-9)
    outside = np.eye(5) - basis @ basis.T
    got = largest_pencil_eigenvalue(basis @ N @ basis.T + 1e3 * outside, basis @ D @ basis.T)
    assert got == pytest.approx(expected, rel=1e-6)


def test_largest_pencil_eigenvalue_without_data_is_zero():
    assert largest_pencil_eigenvalue(np.eye(2), np.zeros((2, 2))) == 0.0


def test_inverse_form_vs_solve_in_any_units():
    V, a = random_psd(6, 4), np.arange(1.0, 5.0)
    units = np.array([1.0, 1e-6, 1e3, 7.0])
    expected = a @ np.linalg.solve(V, a)
    got = inverse_form(units * a, V * np.outer(units, units), 1e-12)
    assert got == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "cov", [np.zeros((0, 0)), np.diag([1.0, 0.0]), np.ones((2, 2)), np.full((2, 2), np.nan)]
)
def test_inverse_form_of_what_is_not_regular_is_nan(cov):
    assert np.isnan(inverse_form(np.ones(len(cov)), cov, 1e-12))


def test_factor_leaves_out_columns_that_earlier_ones_explain():
    X = np.random.default_rng(7).standard_normal((20, 4))
    X[:, 2] = X[:, 0] - X[:, 1]
    factor, keep = factor_of(X.T @ X, 1e-6)
    assert keep.tolist() == [True, True, False, True]
    np.testing.assert_allclose(factor.T @ factor, X.T @ X, atol=1e-12)
    factor, keep = factor_of(X[:, keep].T @ X[:, keep], 1e-6)
    assert keep.all()
    np.testing.assert_array_equal(factor, np.triu(factor))
