"""Exact solves reach FedGC's fixed point, in few rounds, from either side's own moments."""

import jax
import numpy as np
import pytest

import fedgranger as fg
from fedgranger.client import augmentation_solver
from fedgranger.runtime.row_inputs import single_row
from fedgranger.runtime.setup import set_up
from fedgranger.server import row_solver
from fedgranger.uncertainty.update_moments import split_parameters, update_moments
from fedgranger_research.studies.exact_rounds import solve
from tests.configs import formula_config


def six_clients(ratio, seed=0, missing=0.0, **options):
    """Six clients with η2 = ratio η1."""
    panel = fg.simulate(6, 2001, seed=seed)[0]
    if missing:
        rng = np.random.default_rng(seed)
        arrays = {
            c.name: np.where(rng.random(len(c.values))[:, None] < missing, np.nan, c.values)
            for c in panel
        }
        panel = fg.Panel.from_arrays(arrays)
    sizes = {"local_step_size": 1e-4, "feedback_step_size": ratio * 1e-4, "server_step_size": 0.01}
    config = formula_config(solver="newton", window="full", state_dim=2, **sizes, **options)
    return set_up(panel, config), config


def fixed_point(setup, config, m):
    """Where the mean map of the step-wise learner stands still, by a linear solve."""
    row = single_row(setup, config, m)
    moments = update_moments(row.params, row.windows)
    x = np.linalg.solve(moments.gain, moments.drift) / moments.scale
    return split_parameters(x, moments.shape)


def paths(setup, config):
    """Estimates after every round, Â over the other clients' states per row."""
    p = setup.state_dims[0]
    out = []
    with jax.enable_x64(True):
        for snapshot, _ in solve(setup, config):
            rows = np.asarray(snapshot.state.server.granger_row)
            M = len(rows)
            others = [np.flatnonzero(np.arange(M * p) // p != m) for m in range(M)]
            out.append(
                (
                    [rows[m][:, others[m]] for m in range(M)],
                    list(np.asarray(snapshot.state.clients.augmentation)),
                )
            )
    return out


@pytest.mark.parametrize(("ratio", "limit"), [(1.0, 20), (100.0, 60)])
@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_fixed_point_is_reached_to_1e_6_in_few_rounds(ratio, limit, missing):
    """The issue's limits are 20 and 60 rounds; about 8 and 10 are needed."""
    setup, config = six_clients(ratio, missing=missing)
    with jax.enable_x64(True):
        expected = [fixed_point(setup, config, m) for m in range(6)]

    def error(rows):
        pairs = zip(rows, expected, strict=True)
        return max(np.linalg.norm(row - e[1]) / np.linalg.norm(e[1]) for row, e in pairs)

    found = paths(setup, config)
    errors = np.array([error(rows) for rows, _ in found])
    rounds = int(np.argmax(errors < 1e-6))
    assert errors.min() < 1e-6
    assert rounds <= limit / 2
    assert errors[-1] < 1e-9
    theta = found[-1][1]
    worst = max(np.abs(theta[m] - e[0]).max() / np.abs(e[0]).max() for m, e in enumerate(expected))
    assert worst < 1e-6


def test_acceleration_needs_fewer_rounds_than_plain_alternation(monkeypatch):
    setup, config = six_clients(1.0)
    fast = len(paths(setup, config))
    monkeypatch.setattr(
        row_solver,
        "accelerate",
        lambda history, row, solved: (
            history,
            solved,
            np.linalg.norm(solved - row) / np.linalg.norm(solved),
        ),
    )
    plain = len(paths(setup, config))
    assert fast * 3 < plain < config.passes


def test_growing_distance_gives_up_the_extrapolation():
    row = np.ones((1, 3))
    history = row_solver.RowHistory(np.stack([row, 0.9 * row]), np.stack([1.1 * row, row]))
    far = 5 * row
    after, following, relative = row_solver.accelerate(history, row, far)
    np.testing.assert_array_equal(following, far)
    assert len(after.rows) == 1
    assert relative == pytest.approx(0.8)


def test_affine_map_is_solved_exactly_within_its_dimension():
    rng = np.random.default_rng(0)
    slow = 0.98 * np.linalg.qr(rng.standard_normal((4, 4)))[0]
    offset = rng.standard_normal(4)
    exact = np.linalg.solve(np.eye(4) - slow, offset)
    x, history = np.zeros((2, 2)), row_solver.empty_history(2, 2)
    for _ in range(7):
        image = (slow @ x.reshape(-1) + offset).reshape(2, 2)
        history, x, _ = row_solver.accelerate(history, x, image)
    np.testing.assert_allclose(x.reshape(-1), exact, rtol=1e-8)


@pytest.mark.parametrize("kind", ["same moments", "dense", "iterative"])
def test_client_solve_inverts_the_curvature(kind, monkeypatch):
    rng = np.random.default_rng(1)
    p, d = 2, 5

    def gram(n):
        root = rng.standard_normal((n, n + 3))
        return root @ root.T

    S, G, P = gram(p), gram(p), gram(d)
    O = P if kind == "same moments" else P + 0.3 * gram(d)
    if kind == "iterative":
        monkeypatch.setattr(augmentation_solver, "LARGEST_DENSE", 0)
    solve = augmentation_solver.prepare(
        S, G, P, O, np.zeros((p, d)), local_step_size=0.1, feedback_step_size=0.3, ridge=0.01
    )
    change = rng.standard_normal((p, d))
    curved = 0.2 * S @ change @ P + 0.6 * G @ change @ O + 0.2 * 0.01 * change
    np.testing.assert_allclose(solve(np.zeros((p, d)), -curved / 0.3), change, rtol=1e-8)


def test_one_step_makes_the_clients_gradient_vanish():
    """The same descent direction as `augment.step`, zero after the solve when Â stays."""
    rng = np.random.default_rng(2)
    p, d, T = 2, 4, 50
    y, nu = rng.standard_normal((T, d)), rng.standard_normal((T, p))
    S, A = np.diag([2.0, 1.0]), rng.standard_normal((p, p))
    fed = rng.standard_normal((T, p))  # Â g per step
    P = y.T @ y / T
    solve = augmentation_solver.prepare(
        S, A.T @ A, P, P, nu.T @ y / T, local_step_size=0.1, feedback_step_size=0.2, ridge=0.5
    )

    def gradient(theta):
        residual = y @ theta.T @ A.T - fed
        own = 2 * 0.1 * ((nu - y @ theta.T @ S).T @ y / T - 0.5 * theta)
        return own - 0.2 * (2 * residual @ A).T @ y / T

    theta = rng.standard_normal((p, d))
    residual = y @ theta.T @ A.T - fed
    after = solve(theta, (2 * residual @ A).T @ y / T)
    assert np.abs(gradient(theta)).max() > 0.1
    np.testing.assert_allclose(gradient(after), 0, atol=1e-12)


def test_directions_nothing_determines_stay_as_they_are():
    P = np.diag([1.0, 0.0])
    solve = augmentation_solver.prepare(
        np.eye(1), np.eye(1), P, P, np.zeros((1, 2)),
        local_step_size=0.1, feedback_step_size=0.1, ridge=0.0,
    )  # fmt: skip
    np.testing.assert_allclose(solve(np.zeros((1, 2)), np.array([[-4.0, -4.0]])), [[1.0, 0.0]])


@pytest.mark.slow  # step-wise training to its end, 4 s
def test_fit_with_newton_ends_like_step_wise_training_in_far_fewer_rounds():
    panel = fg.simulate(3, 600, state_dims=1, seed=4)[0]
    options = {"state_dim": 1, "augmentation_ridge": 0.1, "granger_ridge": 0.1}
    exact = fg.fit(panel, config=formula_config(solver="newton", **options))
    patient = formula_config(window="full", tolerance=1e-7, passes=200_000, **options)
    slow = fg.fit(panel, config=patient)
    error = np.linalg.norm(exact.granger - slow.granger) / np.linalg.norm(slow.granger)
    assert error < 1e-5
    rounds = [result.manifest["training"]["rounds"] for result in (exact, slow)]
    assert rounds[0] <= 15
    assert rounds[1] > 20 * rounds[0]
    assert exact.inference.edges.equals(slow.inference.edges)
