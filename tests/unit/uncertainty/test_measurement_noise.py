"""Measurement noise in every accepted form, and what is refused."""

import jax
import numpy as np
import pytest

import fedgranger as fg
from fedgranger.client.params import known_models
from fedgranger.errors import ConfigError
from fedgranger.runtime.propagation import propagate
from fedgranger.runtime.setup import set_up
from fedgranger.uncertainty.inputs import measurement_noise

NAMES, DIMS, T = ("a", "b"), (2, 3), 5


def forms(variance, d):
    """The same noise in every accepted shape."""
    diagonal = np.full(d, variance)
    return {
        "number": variance,
        "(d,)": diagonal,
        "(d, d)": np.diag(diagonal),
        "(T, d)": np.tile(diagonal, (T, 1)),
        "(T, d, d)": np.tile(np.diag(diagonal), (T, 1, 1)),
    }


def sensor_covs(noise, client):
    """Covariances of all time steps in the sensors' own coordinates."""
    basis = noise.bases[client]
    return basis @ noise.between(client, 0, T, full=True) @ basis.T


@pytest.mark.parametrize("form", forms(1.0, 2))
def test_every_form_is_the_same_noise(form):
    covs = {name: forms(0.3, d)[form] for name, d in zip(NAMES, DIMS, strict=True)}
    noise = measurement_noise(covs, NAMES, DIMS, T)
    for m, d in enumerate(DIMS):
        np.testing.assert_allclose(sensor_covs(noise, m), np.tile(0.3 * np.eye(d), (T, 1, 1)))
    assert noise.is_full == (form == "(T, d, d)")


def test_constant_covariance_is_diagonal_in_its_basis():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 3))
    V = root @ root.T
    noise = measurement_noise({"a": 1.0, "b": V}, NAMES, DIMS, T)
    assert not noise.is_full
    basis = noise.bases[1]
    np.testing.assert_allclose(basis.T @ basis, np.eye(3), atol=1e-13)
    np.testing.assert_allclose(basis * noise.covs[1] @ basis.T, V, rtol=1e-12, atol=1e-13)


def test_singular_covariance_is_accepted():
    """One direction without noise: rounding below zero is cut off."""
    direction = np.array([[1.0], [2.0], [3.0]])
    noise = measurement_noise({"a": 1.0, "b": direction @ direction.T}, NAMES, DIMS, T)
    assert (noise.covs[1] >= 0).all()
    np.testing.assert_allclose(sensor_covs(noise, 1)[0], direction @ direction.T, atol=1e-13)


def test_between_is_the_slice_of_the_time_steps():
    variances = np.arange(10.0).reshape(T, 2)
    noise = measurement_noise({"a": variances, "b": 2.0}, NAMES, DIMS, T)
    np.testing.assert_array_equal(noise.between(0, 1, 4, full=False), variances[1:4])
    np.testing.assert_array_equal(noise.between(0, 1, 4, full=True)[2], np.diag(variances[3]))
    np.testing.assert_array_equal(noise.between(1, 3, 5, full=False), np.full((2, 3), 2.0))


def test_square_matrix_is_a_covariance_when_steps_equal_sensors():
    """T = d: (d, d) is one covariance, not d steps of variances."""
    V = np.array([[2.0, 1.0], [1.0, 2.0]])
    noise = measurement_noise({"a": V}, ("a",), (2,), 2)
    np.testing.assert_allclose(np.sort(noise.covs[0]), [[1.0, 3.0]])


def test_drawn_noise_has_the_covariance_that_was_given():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((3, 3))
    cov, num_steps = root @ root.T, 20_000
    forms = {"constant": cov, "per_step": np.tile(cov, (num_steps, 1, 1))}
    for given in forms.values():
        noise = measurement_noise({"a": given}, ["a"], [3], num_steps)
        drawn = noise.draw(0, num_steps)
        error = np.linalg.norm(np.cov(drawn.T) - cov) / np.linalg.norm(cov)
        assert error < 0.05


WRONG = [
    (np.ones(3), r"\(3,\)"),
    (np.ones((3, 3)), r"\(3, 3\)"),
    (np.ones((T, 3)), r"\(5, 3\)"),
    (np.ones((T + 1, 2)), r"\(6, 2\)"),
    (np.ones((T, 3, 3)), r"\(5, 3, 3\)"),
    (np.ones((T, 2, 3)), r"\(5, 2, 3\)"),
]


@pytest.mark.parametrize(("cov", "shape"), WRONG)
def test_wrong_shape_names_client_and_shapes(cov, shape):
    allowed = r"\(2,\), \(2, 2\), \(5, 2\) or \(5, 2, 2\)"
    with pytest.raises(ConfigError, match=f"client 'a'.*shape {shape}.*{allowed}"):
        measurement_noise({"a": cov, "b": 1.0}, NAMES, DIMS, T)


@pytest.mark.parametrize(
    ("cov", "words"),
    [
        (-1.0, "variance is negative"),
        (np.array([1.0, -1e-9]), "variance is negative"),
        (np.array([[1.0, 0.5], [0.4, 1.0]]), "not symmetric"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "negative eigenvalue -1"),
        (np.tile(np.array([[1.0, 2.0], [2.0, 1.0]]), (T, 1, 1)), "negative eigenvalue -1"),
        (np.array([1.0, np.nan]), "not finite"),
        (np.inf, "not finite"),
    ],
)
def test_impossible_noise_names_client(cov, words):
    with pytest.raises(ConfigError, match=f"client 'a'.*{words}"):
        measurement_noise({"a": cov, "b": 1.0}, NAMES, DIMS, T)


def test_missing_client_is_named():
    with pytest.raises(ConfigError, match="client 'b': no measurement noise"):
        measurement_noise({"a": 1.0}, NAMES, DIMS, T)


@pytest.fixture(scope="module")
def small_run():
    panel, truth = fg.simulate(
        2, 7, edges=[("client1", "client2")], sensor_dims=3, state_dims=2, seed=3
    )
    config = fg.RunConfig(
        local_step_size=5e-5, feedback_step_size=5e-5, server_step_size=1e-3, test="none"
    )
    return set_up(panel, config, known_models(truth)), config


@pytest.mark.slow  # compiles the recursion for both ways
def test_rotated_basis_vs_full_path(small_run):
    """A constant V runs in its eigenbasis; given per step it runs with full matrices."""
    setup, config = small_run
    rng = np.random.default_rng(1)
    covs = {}
    for name in setup.names:
        root = rng.normal(size=(3, 3))
        covs[name] = 0.1 * root @ root.T
    rotated = propagate(setup, config, covs, num_checkpoints=1)
    repeated = {name: np.tile(V, (7, 1, 1)) for name, V in covs.items()}
    full = propagate(setup, config, repeated, num_checkpoints=1)
    for column in ("total", "prior", "data"):
        np.testing.assert_allclose(rotated.table[column], full.table[column], rtol=1e-9, atol=1e-14)
    for name in setup.names:
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-13),
            (rotated.final[name], rotated.means[name]),
            (full.final[name], full.means[name]),
        )


@pytest.mark.slow  # compiles the recursion for shapes that no other test has
def test_default_noise_is_the_models_own(small_run):
    setup, config = small_run
    own = {stream.name: stream.model.measurement_cov for stream in setup.client_data}
    first, second = (propagate(setup, config, noise, num_checkpoints=1) for noise in (None, own))
    np.testing.assert_array_equal(first.table["total"], second.table["total"])
