"""What each party can compute alone, against the joint recursion that needs all data."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedgranger as fg
from fedgranger.client.params import known_models
from fedgranger.rounds import send, step
from fedgranger.runtime.inprocess import stack_windows
from fedgranger.runtime.propagation import propagate
from fedgranger.runtime.row_inputs import row_params, row_windows, run_noise, single_row
from fedgranger.runtime.setup import initial_state, set_up
from fedgranger.server.granger import answer
from fedgranger.uncertainty.recursion import advance_rounds, prior_state
from fedgranger.uncertainty.steady_state import solve_steady_state
from fedgranger_research.studies.one_party import (
    client_params,
    client_rounds,
    server_cov,
    server_steady_cov,
)

STEPS, NOISE = 1500, 0.3**2

pytestmark = pytest.mark.slow  # compiles the recursion for several shapes


@pytest.fixture(scope="module")
def case():
    """Client 2's row of a two-client system: params, windows and the messages of a real run."""
    _, truth = fg.simulate(2, 10, edges=[("client1", "client2")], seed=0)
    quiet = {name: 1e-20 * np.eye(8) for name in truth.clients}
    panel, _ = fg.simulate(
        num_steps=STEPS + 1,
        seed=0,
        system=dataclasses.replace(truth, measurement_covs=quiet),
    )
    config = fg.RunConfig(
        local_step_size=1e-4,
        feedback_step_size=1e-4,
        server_step_size=2e-3,
        augmentation_prior_scale=0.1,
        granger_prior_scale=0.1,
    )
    setup = set_up(panel, config, known_models(truth))
    noise = dict.fromkeys(setup.names, np.full(8, NOISE))
    prepared = run_noise(setup, noise)
    corrections, gradients = _messages(setup, config, STEPS)
    row = 1
    params = jax.tree.map(lambda leaf: leaf[row], row_params(setup, config, prepared))
    rows = row_windows(setup, prepared, 0, STEPS, np.array([row]))
    rows = jax.tree.map(lambda leaf: leaf[:, 0], rows)
    joint = propagate(setup, config, noise, num_checkpoints=2)
    return params, rows, corrections[:, row], gradients[:, row], joint


def test_client_without_feedback_is_exact(case):
    params, rows, corrections, gradients, _ = case
    alone = dataclasses.replace(params, feedback_step_size=jnp.asarray(0.0))
    own = client_rounds(alone, rows, corrections, gradients)
    both = _propagate(alone, rows, rows.causes.shape[-1], 0.01)
    single = _propagate(client_params(alone), own, 1, 0.01)
    np.testing.assert_allclose(
        single.cov.augmentation, both.cov.augmentation, rtol=1e-9, atol=1e-15
    )


def test_client_side_vs_joint(case):
    params, rows, corrections, gradients, joint = case
    own = client_rounds(params, rows, corrections, gradients)
    found = _propagate(client_params(params), own, 1, 0.01)
    trace = float(jnp.einsum("rijij->", found.cov.augmentation))
    reference = joint.trace("augmentation_cov", "client2").iloc[-1]["total"]
    assert trace == pytest.approx(reference, rel=0.05)


def test_server_path_starts_at_prior_and_stays_positive(case):
    params, rows, corrections, _, joint = case
    gamma, A = float(params.server_step_size), np.asarray(params.self_transition)
    g, tau = np.asarray(rows.causes[:, 0]), np.asarray(corrections[:, 0]) @ A.T
    scores = _scores(g, tau, gamma)
    path = server_cov(g, scores, 0.01, step_size=gamma, ridge=1e-3, lag=20)
    quiet = server_cov(g, 0 * scores, 0.01, step_size=gamma, ridge=1e-3, lag=0)
    assert np.trace(path[0]) == pytest.approx(4 * 0.01)
    assert np.linalg.eigvalsh(path[-1])[0] >= 0
    # Â's own prior decays without the client's help; the joint prior share has θ's prior too
    last = joint.trace("granger_cov", "client2", "client1").iloc[-1]
    assert np.trace(quiet[-1]) <= last["prior"]


def test_server_steady_state_vs_joint_steady_state():
    """The server misses that its input answers to it: right to within a factor of three."""
    panel, truth = fg.simulate(2, 6001, edges=[("client1", "client2")], seed=0, measurement_var=1.0)
    gamma = 1e-3
    config = fg.RunConfig(local_step_size=1e-4, feedback_step_size=1e-4, server_step_size=gamma)
    setup = set_up(panel, config, known_models(truth))
    corrections, _ = _messages(setup, config, 6000)
    for row in (0, 1):
        one = single_row(setup, config, row)
        joint = solve_steady_state(one.params, one.windows, client=setup.names[row])
        g = np.asarray(one.windows.causes[2000:, 0])  # after the start-up
        tau = np.asarray(corrections)[2000:, row, 0] @ np.asarray(one.params.self_transition).T
        alone = server_steady_cov(
            g, _scores(g, tau, gamma), step_size=gamma, ridge=1e-3, lag=joint.hac_lag
        )
        ratio = np.trace(alone) / np.trace(joint.granger_cov())
        print(f"server alone / joint, row {row}: {ratio:.2f}")
        assert 1 / 3 < ratio < 3


def test_server_steady_state_vs_iteration():
    rng = np.random.default_rng(0)
    g = rng.normal(size=(400, 2))
    scores = 1e-3 * rng.normal(size=(400, 2, 2))
    keep = dict(step_size=0.02, ridge=0.1, lag=0)
    steady = server_steady_cov(g, scores, **keep)
    moment = g.T @ g / len(g)
    D = (1 - 2 * 0.02 * 0.1) * np.eye(4) - 2 * 0.02 * np.kron(np.eye(2), moment)
    flat = scores.reshape(400, -1)
    S = np.cov(flat.T, bias=True)
    np.testing.assert_allclose(steady, D @ steady @ D.T + S, rtol=1e-10, atol=1e-18)


def _propagate(params, windows, columns, variance):
    p, d = params.self_transition.shape[0], windows.measurements.shape[-1]
    batched = jax.tree.map(lambda leaf: leaf[None], params)
    state = prior_state(
        jnp.zeros((1, p, d)),
        jnp.zeros((1, p, columns)),
        jnp.full((1, p, d), variance),
        jnp.full((1, p, columns), variance) * batched.coupling[:, None, :],
        groups=1,
        split=False,
    )
    rounds = jax.tree.map(lambda leaf: leaf[:, None], windows)
    return advance_rounds(batched, state, rounds)


def _messages(setup, config, num_rounds):
    """What a real run sends up (θy) and down, per round, client and step."""

    def one(state, window):
        message = send(state.clients, window)
        _, reply, _ = answer(setup.params.server, state.server, message)
        correction = message.augmented_states - message.filtered_states
        return step(setup.params, state, window)[0], (correction, reply.gradients)

    windows = stack_windows(setup, 0, num_rounds)
    return jax.lax.scan(one, initial_state(setup, config), windows)[1]


def _scores(g, tau, gamma):
    granger = np.linalg.lstsq(g, tau, rcond=None)[0].T
    return 2 * gamma * np.einsum("ti,tj->tij", tau - g @ granger.T, g)
