"""Measurement noise in every accepted form, and what is refused."""

import dataclasses

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.client.params import known_models
from fedgranger.errors import ConfigError
from fedgranger.runtime.propagation import propagate
from fedgranger.runtime.setup import set_up
from fedgranger.uncertainty.measurement_noise import measurement_noise

NAMES, DIMS = ("a", "b"), (2, 3)


def forms(variance, d):
    """The same noise in every accepted shape."""
    diagonal = np.full(d, variance)
    return {
        "number": variance,
        "(d,)": diagonal,
        "(d, d)": np.diag(diagonal),
    }


def sensor_cov(noise, client):
    """The covariance in the sensors' own coordinates."""
    return noise.bases[client] * noise.variances[client] @ noise.bases[client].T


@pytest.mark.parametrize("form", forms(1.0, 2))
def test_every_form_is_the_same_noise(form):
    covs = {name: forms(0.3, d)[form] for name, d in zip(NAMES, DIMS, strict=True)}
    noise = measurement_noise(covs, NAMES, DIMS)
    for m, d in enumerate(DIMS):
        np.testing.assert_allclose(sensor_cov(noise, m), 0.3 * np.eye(d))


def test_constant_covariance_is_diagonal_in_its_basis():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 3))
    V = root @ root.T
    noise = measurement_noise({"a": 1.0, "b": V}, NAMES, DIMS)
    basis = noise.bases[1]
    np.testing.assert_allclose(basis.T @ basis, np.eye(3), atol=1e-13)
    np.testing.assert_allclose(sensor_cov(noise, 1), V, rtol=1e-12, atol=1e-13)


def test_singular_covariance_is_accepted():
    """One direction without noise: rounding below zero is cut off."""
    direction = np.array([[1.0], [2.0], [3.0]])
    noise = measurement_noise({"a": 1.0, "b": direction @ direction.T}, NAMES, DIMS)
    assert (noise.variances[1] >= 0).all()
    np.testing.assert_allclose(sensor_cov(noise, 1), direction @ direction.T, atol=1e-13)


def test_drawn_noise_has_the_covariance_that_was_given():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((3, 3))
    cov, num_steps = root @ root.T, 20_000
    drawn = measurement_noise({"a": cov}, ["a"], [3]).draw(0, num_steps)
    error = np.linalg.norm(np.cov(drawn.T) - cov) / np.linalg.norm(cov)
    assert error < 0.05


WRONG = [
    (np.ones(3), r"\(3,\)"),
    (np.ones((3, 3)), r"\(3, 3\)"),
    (np.ones((5, 2)), r"\(5, 2\)"),
    (np.ones((5, 2, 2)), r"\(5, 2, 2\)"),
]


@pytest.mark.parametrize(("cov", "shape"), WRONG)
def test_wrong_shape_names_client_and_shapes(cov, shape):
    allowed = r"\(2,\) or \(2, 2\)"
    with pytest.raises(ConfigError, match=f"client 'a'.*shape {shape}.*{allowed}"):
        measurement_noise({"a": cov, "b": 1.0}, NAMES, DIMS)


@pytest.mark.parametrize(
    ("cov", "words"),
    [
        (-1.0, "variance is negative"),
        (np.array([1.0, -1e-9]), "variance is negative"),
        (np.array([[1.0, 0.5], [0.4, 1.0]]), "not symmetric"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "negative eigenvalue -1"),
        (np.array([1.0, np.nan]), "not finite"),
        (np.inf, "not finite"),
    ],
)
def test_impossible_noise_names_client(cov, words):
    with pytest.raises(ConfigError, match=f"client 'a'.*{words}"):
        measurement_noise({"a": cov, "b": 1.0}, NAMES, DIMS)


def test_missing_client_is_named():
    with pytest.raises(ConfigError, match="client 'b': no measurement noise"):
        measurement_noise({"a": 1.0}, NAMES, DIMS)


@pytest.fixture(scope="module")
def small_run():
    panel, truth = fg.simulate(
        2, 7, edges=[("client1", "client2")], sensor_dims=3, state_dims=2, seed=3
    )
    config = fg.RunConfig(
        local_step_size=5e-5, feedback_step_size=5e-5, server_step_size=1e-3, test="none"
    )
    return panel, known_models(truth), config


@pytest.mark.slow
def test_correlated_noise_vs_sensors_in_its_eigenbasis(small_run):
    """Sensors turned by hand, so that their noise is uncorrelated, give the same."""
    panel, models, config = small_run
    rng = np.random.default_rng(1)
    covs, variances, bases, clients, turned = {}, {}, {}, [], {}
    for client in panel:
        root = rng.normal(size=(3, 3))
        covs[client.name] = 0.1 * root @ root.T
        variances[client.name], basis = np.linalg.eigh(covs[client.name])
        model = models[client.name]
        bases[client.name] = basis
        clients.append(dataclasses.replace(client, values=client.values @ basis))
        turned[client.name] = dataclasses.replace(
            model,
            observation_matrix=basis.T @ model.observation_matrix,
            measurement_cov=basis.T @ model.measurement_cov @ basis,
        )
    found = propagate(set_up(panel, config, models), config, covs, num_checkpoints=1)
    other = fg.Panel(tuple(clients), panel.time)
    plain = propagate(set_up(other, config, turned), config, variances, num_checkpoints=1)
    for column in ("total", "prior", "data"):
        np.testing.assert_allclose(found.table[column], plain.table[column], rtol=1e-9, atol=1e-14)
    for name, basis in bases.items():
        theta, granger = plain.means[name]
        np.testing.assert_allclose(found.means[name][0], theta @ basis.T, rtol=1e-8, atol=1e-13)
        np.testing.assert_allclose(found.means[name][1], granger, rtol=1e-8, atol=1e-13)
        expected = np.einsum(
            "ajbl,cj,el->acbe", plain.final[name].augmentation_cov, basis, basis, optimize=True
        )
        np.testing.assert_allclose(
            found.final[name].augmentation_cov, expected, rtol=1e-8, atol=1e-13
        )


def test_default_noise_is_the_models_own(small_run):
    panel, models, config = small_run
    setup = set_up(panel, config, models)
    own = {stream.name: stream.model.measurement_cov for stream in setup.client_data}
    first, second = (propagate(setup, config, noise, num_checkpoints=1) for noise in (None, own))
    np.testing.assert_array_equal(first.table["total"], second.table["total"])
