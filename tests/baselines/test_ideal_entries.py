"""The ceiling for tests of single entries is what least squares on noise-free states reaches."""

import numpy as np
import pytest

from fedgranger_research.baselines.ideal_entries import best_f1, ceiling, ideal_errors
from fedgranger_research.baselines.method_protocol import BaselineError
from fedgranger_research.baselines.problems import Scenario, draw_problem
from fedgranger_research.baselines.true_dynamics import Dynamics


@pytest.fixture(scope="module")
def problem():
    return draw_problem(Scenario(num_steps=600, num_clients=3, edge_share=0.5), 1)


def test_standard_errors_are_those_of_least_squares(problem):
    A, Q = problem.dynamics
    rng, root = np.random.default_rng(0), np.linalg.cholesky(Q)
    steps, estimates = len(problem.columns.starts), []
    for _ in range(300):
        h = np.zeros((steps + 100, len(A)))
        for t in range(1, len(h)):
            h[t] = A @ h[t - 1] + root @ rng.standard_normal(len(A))
        h = h[100:]
        estimates.append(np.linalg.lstsq(h[:-1], h[1:], rcond=None)[0].T)
    spread = np.std(estimates, axis=0)
    expected = ideal_errors(problem)
    np.testing.assert_allclose(spread, expected, rtol=0.2)
    assert abs(np.mean(spread / expected) - 1) < 0.03


def test_entries_keep_their_size_in_other_coordinates(problem):
    """Blocks of absent edges are zero, and eigenvalues are those of the simulation."""
    A = problem.dynamics.transition
    assert np.abs(A[~problem.is_true]).max() < 1e-10
    known = draw_problem(Scenario(num_steps=600, num_clients=3, edge_share=0.5, models="known"), 1)
    values = [np.sort_complex(np.linalg.eigvals(a)) for a in (A, known.dynamics.transition)]
    np.testing.assert_allclose(*values, atol=1e-8)


def test_told_the_causes_errors_are_smaller(problem):
    alone, told = ideal_errors(problem), ideal_errors(problem, parents_known=True)
    true = problem.is_true
    assert (told[true] <= alone[true] * (1 + 1e-12)).all()
    assert told[true].sum() < 0.999 * alone[true].sum()
    assert np.isinf(told[~true]).all()


def test_small_entries_lower_the_ceiling(problem):
    rng = np.random.default_rng
    A, Q = problem.dynamics
    across = problem.owner[:, None] != problem.owner
    weak = np.where(across, 0.02 * A, A)
    low = ceiling(problem._replace(dynamics=Dynamics(weak, Q)), rng(0))
    high = ceiling(problem, rng(0))
    assert low.f1 < 0.5 * high.f1
    assert 0.5 <= low.auc_roc < high.auc_roc <= 1
    assert high.f1 <= high.best_f1 <= 1
    assert low.below_two > high.below_two


def test_best_threshold():
    is_true = np.array([True, False, True, False])
    assert best_f1(is_true, np.array([4.0, 3.0, 2.0, 1.0])) == pytest.approx(0.8)
    assert best_f1(is_true, np.array([4.0, 1.0, 2.0, 0.0])) == 1.0


def test_recordings_have_no_ceiling(problem):
    with pytest.raises(BaselineError, match="use simulated ones"):
        ideal_errors(problem._replace(dynamics=None))
