import numpy as np
import pytest

from fedgranger_research.baselines.consensus import (
    ClientSide,
    Penalties,
    Problem,
    server_objective,
    server_step,
)


def client_case(seed, num_variables=5, num_effects=3):
    """Moments, Θ of the server, and a client that has been through two iterations."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(num_variables, num_variables))
    moments = root @ root.T / num_variables
    client = ClientSide(moments, num_effects)
    theta = rng.normal(size=(num_variables, num_effects))
    dual = np.zeros_like(theta)
    for penalty in (0.3, 0.7):
        own = (client.answer(theta, penalty) - dual) / penalty
        client.learn(theta, penalty)
        dual = dual + penalty * (own - theta)
    return moments, theta, dual, client


def client_objective(own, moments, theta, dual, penalty):
    """½ tr (J − Θ_k)ᵀS(J − Θ_k) + ⟨β, Θ_k − Θ⟩ + ρ/2 ‖Θ_k − Θ‖²."""
    lack = np.eye(*own.shape) - own
    apart = own - theta
    return (
        0.5 * np.trace(lack.T @ moments @ lack)
        + np.sum(dual * apart)
        + 0.5 * penalty * np.sum(apart**2)
    )


@pytest.mark.parametrize("num_effects", [3, 5])  # a network with past causes; a graph
def test_client_answer_is_the_minimiser(num_effects):
    moments, theta, dual, client = client_case(0, num_effects=num_effects)
    penalty = 1.3
    own = (client.answer(theta, penalty) - dual) / penalty
    rng, step = np.random.default_rng(1), 1e-5
    here = client_objective(own, moments, theta, dual, penalty)
    for _ in range(20):
        direction = rng.normal(size=own.shape)
        ahead = client_objective(own + step * direction, moments, theta, dual, penalty)
        behind = client_objective(own - step * direction, moments, theta, dual, penalty)
        assert abs(ahead - behind) / (2 * step) < 1e-8 * max(1.0, abs(here))
        assert ahead > here
        assert behind > here


@pytest.mark.parametrize("shape", [(6, 6), (6, 3)])
def test_server_gradient_vs_finite_differences(shape):
    rng = np.random.default_rng(2)
    weights, pulls, direction = rng.normal(size=(3, *shape)) * 0.5
    problem = Problem(np.ones(shape, dtype=bool), np.zeros(shape), rng.integers(1, 5, shape))
    penalties = Penalties(0.7, 1.9, 0.4)
    step = 1e-6
    ahead, _ = server_objective(weights + step * direction, pulls, problem, penalties)
    behind, _ = server_objective(weights - step * direction, pulls, problem, penalties)
    _, gradient = server_objective(weights, pulls, problem, penalties)
    np.testing.assert_allclose(
        (ahead - behind) / (2 * step), np.sum(gradient * direction), rtol=1e-7
    )


def test_server_objective_vs_sum_over_clients():
    """The messages ρΘ_k + β_k are enough for the step: what is left out does not depend on Θ."""
    rng = np.random.default_rng(3)
    own, duals = rng.normal(size=(2, 4, 3, 3)) * 0.3
    problem = Problem(np.ones((3, 3), dtype=bool), np.zeros((3, 3)), np.full((3, 3), 4))
    rho = 0.8
    pulls = (rho * own + duals).sum(axis=0)

    def direct(theta):
        return np.sum(duals * (own - theta)) + 0.5 * rho * np.sum((own - theta) ** 2)

    first, second = np.triu(rng.normal(size=(2, 3, 3)), 1)  # acyclic: no other terms
    values = [
        server_objective(W, pulls, problem, Penalties(5.0, 7.0, rho))[0] for W in (first, second)
    ]
    np.testing.assert_allclose(values[1] - values[0], direct(second) - direct(first))


def test_server_step_without_cycles_is_soft_thresholding():
    rng = np.random.default_rng(4)
    pulls, lasso, rho = rng.normal(size=(4, 4)), 0.3, 0.5
    allowed = np.triu(np.ones((4, 4), dtype=bool), 1)
    problem = Problem(allowed, np.full((4, 4), lasso), np.full((4, 4), 3))
    found = server_step(np.zeros((4, 4)), pulls, problem, Penalties(1.0, 1.0, rho))
    size = np.maximum(np.abs(pulls) - lasso, 0) / (3 * rho)
    np.testing.assert_allclose(found, np.sign(pulls) * size * allowed, atol=1e-7)
