"""Simulated data follow the system that is returned with them."""

import json
import subprocess
import sys

import jax
import numpy as np
import pytest
import scipy.linalg
import scipy.stats

from fedgranger.data import synthetic
from fedgranger.data.linear_system import client_names, draw_system
from fedgranger.data.simulation_options import SimulationOptions
from fedgranger.data.synthetic import simulate
from fedgranger.data.truth import Truth
from fedgranger.errors import ConfigError

DIMS = {"state_dims": [1, 2, 2], "sensor_dims": [2, 2, 3]}
LONG, SHORT = 40_000, 300  # few lengths: each new shape compiles for a second
RNG = np.random.default_rng(0)
F = RNG.standard_normal((5, 7))


@pytest.mark.parametrize("shape", [(3, 2), (2049, 2), (1366, 3)])
def test_noise_is_what_the_generator_gives_for_just_so_many(shape):
    """More are drawn than are needed: data of a seed must not depend on how many."""
    with jax.enable_x64(True):
        key = jax.random.key(7)
        drawn = synthetic._noise(key, shape, 0.0)
        np.testing.assert_array_equal(drawn, jax.random.normal(key, shape))


def all_values(panel):
    return np.concatenate([client.values for client in panel], axis=1)


def autocovariances(truth, noise_cov, num_lags):
    """Γ(k) = E[y_{t+k} y_tᵀ] for k = −num_lags … num_lags, from the Lyapunov equation."""
    A = truth.transition
    C = scipy.linalg.block_diag(*truth.observation_matrices.values())
    V = scipy.linalg.solve_discrete_lyapunov(A, truth.process_cov)
    gammas, power = {}, V
    for k in range(num_lags + 1):
        gammas[k] = C @ power @ C.T
        gammas[-k] = gammas[k].T
        power = A @ power
    gammas[0] = gammas[0] + noise_cov
    return gammas


def bartlett_error(gammas, lag, num_lags, num_steps):
    """Standard error of the sample autocovariance of a Gaussian process."""
    variance = np.zeros_like(gammas[0])
    for k in range(-num_lags + lag, num_lags - lag + 1):
        own = np.diag(gammas[k])
        variance += np.outer(own, own) + gammas[k + lag] * gammas[k - lag].T
    return np.sqrt(variance / num_steps)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"process_correlation": 0.6},
        {"process_cov": F @ F.T / 7},
        {"measurement_correlation": 0.7, "measurement_var": [4.0, 9.0, 2.0]},
    ],
    ids=["plain", "correlated process", "given process cov", "correlated measurement"],
)
def test_covariances_vs_lyapunov(options):
    """Lags 0 and 1 of all sensors within five standard errors (about 50 entries each)."""
    panel, truth = simulate(3, LONG, **DIMS, edges=3, seed=1, **options)
    sd = np.sqrt(np.concatenate([np.diag(R) for R in truth.measurement_covs.values()]))
    correlation = options.get("measurement_correlation", 0.0)
    noise_cov = np.outer(sd, sd) * ((1 - correlation) * np.eye(7) + correlation)
    gammas = autocovariances(truth, noise_cov, 200)
    y = all_values(panel)
    for lag in (0, 1):
        sample = y[lag:].T @ y[: LONG - lag] / (LONG - lag)
        error = bartlett_error(gammas, lag, 200, LONG)
        np.testing.assert_array_less(np.abs(sample - gammas[lag]), 5 * error)
    np.testing.assert_array_less(
        np.abs(y.mean(axis=0)), 5 * np.sqrt(sum(np.diag(g) for g in gammas.values()) / LONG)
    )


def test_truth_holds_the_covariances_that_were_asked_for():
    _, truth = simulate(3, SHORT, **DIMS, process_cov=2.0, process_correlation=0.5, seed=1)
    np.testing.assert_allclose(truth.process_cov, 2.0 * (0.5 * np.eye(5) + 0.5))
    _, truth = simulate(
        3, SHORT, **DIMS, measurement_var=[1.0, 4.0, 9.0], measurement_correlation=0.3, seed=1
    )
    np.testing.assert_allclose(truth.measurement_covs["client2"], [[4.0, 1.2], [1.2, 4.0]])
    _, again = simulate(num_steps=SHORT, system=truth, seed=2)
    np.testing.assert_allclose(again.measurement_covs["client2"], 4.0 * np.eye(2))


def test_innovations_are_correlated_across_clients():
    """Square noiseless sensors show the states, so w = h⁺ − A h can be computed."""
    panel, truth = simulate(
        2,
        20_000,
        state_dims=2,
        sensor_dims=2,
        edges=1,
        process_correlation=0.5,
        measurement_var=1e-20,
        seed=3,
    )
    w = innovations(panel, truth)
    sample = w.T @ w / len(w)
    expected = 0.5 * np.eye(4) + 0.5
    error = np.sqrt((1 + expected**2) / len(w))
    np.testing.assert_array_less(np.abs(sample - expected), 5 * error)
    assert np.abs(w[1:].T @ w[:-1] / len(w)).max() < 5 / np.sqrt(len(w))


def innovations(panel, truth):
    C = scipy.linalg.block_diag(*truth.observation_matrices.values())
    h = np.linalg.solve(C, all_values(panel).T).T
    return h[1:] - h[:-1] @ truth.transition.T


# the system


def test_process_and_measurement_noise_are_independent():
    """Of one state and one sensor: what y_t − a y_{t−1} holds of both, within 5 s.e."""
    panel, truth = simulate(2, LONG, state_dims=1, sensor_dims=1, edges=[], seed=3)
    for k, client in enumerate(panel):
        a, q = truth.transition[k, k], truth.process_cov[k, k]
        c, r = (
            truth.observation_matrices[client.name].item(),
            truth.measurement_covs[client.name].item(),
        )
        y = client.values[:, 0]
        u = y[1:] - a * y[:-1]
        expected = c**2 * q + (1 + a**2) * r
        assert u.var() == pytest.approx(expected, rel=5 * np.sqrt(3 / LONG))
        assert 2 * abs(c) * np.sqrt(q * r) > 0.1 * expected  # one noise for both would add it


@pytest.mark.parametrize("target", [0.0, 0.5, 0.9, 0.999])
def test_spectral_radius_is_exact(target):
    for seed in range(5):
        asked = SimulationOptions(**DIMS, edges=3 if target else 0, spectral_radius=target)
        truth = draw_system(np.random.default_rng(seed), ("a", "b", "c"), asked)
        radius = np.abs(np.linalg.eigvals(truth.transition)).max()
        assert radius == pytest.approx(target, rel=1e-9, abs=1e-12)
        if target:
            assert len(nonzero_blocks(truth)) == 3


def nonzero_blocks(truth):
    return {
        (cause, effect)
        for cause in truth.clients
        for effect in truth.clients
        if cause != effect and truth.block(effect, cause).any()
    }


def test_given_edges_are_exactly_the_nonzero_blocks():
    edges = [("b", "a"), ("c", "b"), ("b", "a")]
    panel, truth = simulate(num_steps=SHORT, clients=["a", "b", "c"], **DIMS, edges=edges, seed=4)
    assert truth.edges == (("b", "a"), ("c", "b"))
    assert nonzero_blocks(truth) == set(truth.edges)
    assert panel.names == ("a", "b", "c")
    for cause, effect in truth.edges:
        assert truth.block(effect, cause).all()
    for name in truth.clients:
        assert truth.block(name, name).all()


@pytest.mark.parametrize(("edges", "expected"), [(0, 0), (4, 4), (6, 6), (None, 2)])
def test_number_of_random_edges(edges, expected):
    chosen = set()
    for seed in range(4):
        _, truth = simulate(3, SHORT, **DIMS, edges=edges, seed=seed)
        assert len(truth.edges) == expected
        assert nonzero_blocks(truth) == set(truth.edges)
        chosen.add(truth.edges)
    assert (len(chosen) > 1) == (0 < expected < 6)


def test_ragged_dimensions():
    panel, truth = simulate(3, SHORT, **DIMS, seed=5)
    assert [client.values.shape for client in panel] == [(300, 2), (300, 2), (300, 3)]
    assert panel["client3"].sensors == ("s1", "s2", "s3")
    assert truth.state_dims == {"client1": 1, "client2": 2, "client3": 2}
    assert truth.transition.shape == (5, 5)
    assert truth.observation_matrices["client3"].shape == (3, 2)


def test_names_sort_in_order():
    names = client_names(12)
    assert names[0] == "client01"
    assert sorted(names) == list(names)
    assert client_names(9)[0] == "client1"


# heavy tails, shifts, gaps


def test_student_t_has_heavier_tails_and_the_same_variance():
    """One sensor that shows little but its noise: kurtosis 3 + 6/(df − 4) = 4.2 for df = 9."""
    options = {"state_dims": 1, "sensor_dims": 1, "edges": 0, "spectral_radius": 0.0}
    moments = {}
    for df in (None, 9.0):
        panel, _ = simulate(
            1, LONG, **options, process_cov=1e-6, measurement_var=4.0, student_df=df, seed=6
        )
        y = panel["client1"].values[:, 0]
        moments[df] = y.var(), scipy.stats.kurtosis(y, fisher=False)
    for df, kurtosis in ((None, 3.0), (9.0, 4.2)):
        error = 4.0 * np.sqrt((kurtosis - 1) / LONG)
        assert moments[df][0] == pytest.approx(4.0, abs=5 * error)
    assert moments[None][1] == pytest.approx(3.0, abs=5 * np.sqrt(24 / LONG))
    assert 3.6 < moments[9.0][1] < 5.5


def test_mean_shift_is_one_step_of_the_stated_size():
    plain, _ = simulate(3, SHORT, **DIMS, seed=7)
    shifted, _ = simulate(3, SHORT, **DIMS, mean_shifts=1, shift_size=2.5, seed=7)
    moved = [c.name for c in plain if not np.array_equal(c.values, shifted[c.name].values)]
    assert len(moved) == 1
    before, after = plain[moved[0]].values, shifted[moved[0]].values
    step = after - before
    start = int(np.argmax(np.abs(step).sum(axis=1) > 0))
    assert 1 <= start < SHORT
    assert not step[:start].any()
    np.testing.assert_allclose(
        np.abs(step[start:]), np.broadcast_to(2.5 * before.std(axis=0), step[start:].shape)
    )
    np.testing.assert_allclose(step[start:], np.broadcast_to(step[start], step[start:].shape))


def test_missing_rows_are_missing_for_all_sensors_of_a_client():
    panel, _ = simulate(3, LONG, **DIMS, edges=3, missing_share=0.2, seed=1)
    complete, _ = simulate(3, LONG, **DIMS, edges=3, seed=1)
    masks = []
    for client in panel:
        observed = client.row_observed
        np.testing.assert_array_equal(
            client.observed, np.repeat(observed[:, None], client.num_sensors, 1)
        )
        assert not client.values[~observed].any()
        np.testing.assert_array_equal(
            client.values[observed], complete[client.name].values[observed]
        )
        assert (~observed).mean() == pytest.approx(0.2, abs=5 * np.sqrt(0.16 / LONG))
        masks.append(observed)
    both = (~masks[0] & ~masks[1]).mean()  # clients lose rows independently of each other
    assert both == pytest.approx(0.04, abs=5 * np.sqrt(0.04 / LONG))


# seeds


def test_seed_decides_everything():
    first, truth = simulate(3, SHORT, **DIMS, missing_share=0.1, mean_shifts=1, seed=8)
    same, same_truth = simulate(3, SHORT, **DIMS, missing_share=0.1, mean_shifts=1, seed=8)
    other, other_truth = simulate(3, SHORT, **DIMS, missing_share=0.1, mean_shifts=1, seed=9)
    assert first.data_hash() == same.data_hash() != other.data_hash()
    np.testing.assert_array_equal(truth.transition, same_truth.transition)
    assert not np.array_equal(truth.transition, other_truth.transition)


def test_given_system_is_reused_with_new_noise():
    first, truth = simulate(3, SHORT, **DIMS, seed=8)
    fresh, again = simulate(num_steps=SHORT, system=truth, seed=9)
    repeat, _ = simulate(num_steps=SHORT, system=truth, seed=8)
    np.testing.assert_array_equal(again.transition, truth.transition)
    assert again.edges == truth.edges
    assert fresh.names == first.names
    assert np.abs(all_values(fresh) - all_values(first)).min() > 0
    np.testing.assert_array_equal(all_values(repeat), all_values(first))


# chunks


def test_state_is_carried_across_chunks(monkeypatch):
    """The recursion h⁺ = A h + w holds over every boundary, with new noise in every chunk."""
    monkeypatch.setattr(synthetic, "CHUNK_STEPS", 50)
    panel, truth = simulate(
        1, 3000, state_dims=2, sensor_dims=2, edges=0, measurement_var=1e-20, seed=11
    )
    w = innovations(panel, truth)  # burn-in is 200 steps: boundaries at 50, 100, …
    at_boundary = w[49::50]
    assert len(at_boundary) == 59
    mean_square = (at_boundary**2).mean()
    assert mean_square == pytest.approx(1.0, abs=5 * np.sqrt(2 / at_boundary.size))
    assert (w**2).mean() == pytest.approx(1.0, abs=5 * np.sqrt(2 / w.size))
    h = innovations_free_states(panel, truth)
    assert (h**2).mean() > 1.2  # so a restart at zero would have been seen
    blocks = w[49:2999].reshape(59, 50, 2)
    products = (blocks[1:] * blocks[:-1]).mean()
    assert abs(products) < 5 / np.sqrt(58 * 100)


def innovations_free_states(panel, truth):
    C = scipy.linalg.block_diag(*truth.observation_matrices.values())
    return np.linalg.solve(C, all_values(panel).T).T


def test_first_step_is_stationary_after_a_burn_in_longer_than_a_chunk(monkeypatch):
    """Variance of y[0] over 400 clients with the same system against the Lyapunov equation."""
    monkeypatch.setattr(synthetic, "CHUNK_STEPS", 70)
    _, truth = simulate(1, 10, state_dims=2, sensor_dims=2, edges=0, seed=12)
    names = client_names(100)
    alike = Truth(
        names,
        (),
        np.kron(np.eye(100), truth.transition),
        dict.fromkeys(names, 2),
        dict.fromkeys(names, truth.observation_matrices["client1"]),
        np.kron(np.eye(100), truth.process_cov),
        dict.fromkeys(names, truth.measurement_covs["client1"]),
    )
    firsts = np.concatenate(
        [
            [client.values[0] for client in simulate(num_steps=10, system=alike, seed=k)[0]]
            for k in range(4)
        ]
    )
    assert firsts.shape == (400, 2)
    expected = autocovariances(truth, truth.measurement_covs["client1"], 0)[0]
    sample = firsts.T @ firsts / 400
    error = np.sqrt((np.outer(np.diag(expected), np.diag(expected)) + expected**2) / 400)
    np.testing.assert_array_less(np.abs(sample - expected), 5 * error)
    C = truth.observation_matrices["client1"]
    unburnt = C @ truth.process_cov @ C.T + truth.measurement_covs["client1"]
    assert (np.abs(unburnt - expected) > 5 * error).any()


# float64 without the switch


X64_SCRIPT = """
import json
import jax
from fedgranger.data.synthetic import simulate
panel, truth = simulate(2, 10, state_dims=1, sensor_dims=2, edges=1, seed=13)
print(json.dumps({
    "dtype": str(panel["client1"].values.dtype),
    "values": panel["client1"].values.tolist(),
    "x64": jax.config.jax_enable_x64,
}))
"""


def test_float64_without_the_global_switch():
    run = subprocess.run(
        [sys.executable, "-c", X64_SCRIPT], capture_output=True, text=True, check=True
    )
    said = json.loads(run.stdout)
    assert said["dtype"] == "float64"
    assert said["x64"] is False
    here, _ = simulate(2, 10, state_dims=1, sensor_dims=2, edges=1, seed=13)
    np.testing.assert_allclose(said["values"], here["client1"].values, rtol=1e-12)


# errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_clients": 0}, "num_clients is 0; it must be a whole number of at least 1"),
        ({"num_clients": -2}, "num_clients is -2; it must be a whole number of at least 1"),
        ({"clients": []}, "clients is empty; at least one name is needed"),
        ({"clients": ["a", "b", "a"]}, "client names are not unique: a, b, a"),
        ({"num_steps": 1}, "num_steps is 1; it must be a whole number of at least 2"),
        ({"state_dims": 0}, "state_dims is 0; give one positive whole number, or one for each"),
        ({"state_dims": [1, 2]}, r"state_dims is \[1, 2\].*one for each of 3 clients"),
        ({"sensor_dims": [2, 2, -1]}, "sensor_dims is .*give one positive whole number"),
        ({"state_dims": 3, "sensor_dims": 2}, "client 'client1': 2 sensors for 3 states"),
        ({"spectral_radius": 1.0}, "spectral_radius is 1.0; it must be at least 0 and below 1"),
        ({"spectral_radius": -0.1}, "spectral_radius is -0.1"),
        ({"spectral_radius": 0.0, "edges": 1}, "spectral_radius is 0, which leaves no room"),
        ({"edges": 7}, "7 edges were asked for; 3 clients can have 0 to 6"),
        ({"edges": -1}, "-1 edges were asked for"),
        ({"edges": [("client1", "client1")]}, "does not join two different clients; the clients"),
        ({"edges": [("client1", "x")]}, r"edge \('client1', 'x'\) does not join"),
        ({"process_cov": 0.0}, "process_cov must be a positive number or a positive definite 6 x"),
        ({"process_cov": float("nan")}, "process_cov must be a positive number"),
        ({"process_cov": np.eye(5)}, "positive definite 6 x 6 matrix"),
        ({"process_cov": np.tri(6)}, "positive definite 6 x 6 matrix"),
        ({"process_cov": -np.eye(6)}, "positive definite 6 x 6 matrix"),
        (
            {"process_correlation": 1.0},
            "process_correlation is 1.0; it must be at least 0 and below 1",
        ),
        ({"process_correlation": -0.1}, "process_correlation is -0.1"),
        ({"measurement_var": 0.0}, "measurement_var is 0.0; give one positive number, or one per"),
        ({"measurement_var": [1.0, 1.0]}, "measurement_var is .*one per client"),
        ({"measurement_var": float("inf")}, "measurement_var is inf"),
        (
            {"measurement_correlation": 1.0},
            "measurement_correlation is 1.0; it must be at least 0 and",
        ),
        ({"measurement_correlation": -0.5}, "measurement_correlation is -0.5"),
        ({"student_df": 2.0}, "student_df is 2.0; it must be above 2"),
        ({"student_df": float("nan")}, "student_df is nan; it must be a finite number"),
        ({"mean_shifts": -1}, "mean_shifts is -1; it must be a whole number of at least 0"),
        ({"missing_share": 1.0}, "missing_share is 1.0; it must be at least 0 and below 1"),
        ({"missing_share": -0.1}, "missing_share is -0.1"),
        ({"seed": -1}, "seed is -1; it must be a whole number of at least 0"),
        (
            {"system": Truth(("a",), (), np.eye(1) / 2, {"a": 1}, {"a": np.eye(1)})},
            "read from truth.json, which has no noise covariances",
        ),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        simulate(**({"num_clients": 3, "num_steps": 10} | options))
