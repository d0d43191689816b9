"""A declared R is used as it is; what contradicts it is told."""

from dataclasses import replace

import equinox as eqx
import numpy as np
import pytest

import fedgranger as fg
from fedgranger.client.params import known_models
from fedgranger.federation.direct import state_source
from fedgranger.inference.noise_correction import declared_noise_warnings


def declared(factor):
    panel, truth = fg.simulate(2, 3000, seed=1, measurement_var=0.5, state_dims=1, sensor_dims=4)
    models = {
        name: eqx.tree_at(lambda m: m.measurement_cov, model, factor * model.measurement_cov)
        for name, model in known_models(truth).items()
    }
    return panel, models


def told(factor):
    panel, models = declared(factor)
    return declared_noise_warnings(state_source(panel, models))


def test_right_noise_is_not_doubted():
    assert told(1.0) == []


def test_too_much_noise_is_told_with_the_usual_reason():
    sentences = told(60.0)
    assert len(sentences) == 2
    for name, sentence in zip(("client1", "client2"), sentences, strict=True):
        assert sentence.startswith(f"client '{name}': of the declared measurement noise")
        assert sentence.endswith("sensor noise that enters a control loop is the usual reason")


def test_given_models_are_used_as_given():
    """E of the upload is that of the declared R, and the joint share leaves it alone."""
    panel, models = declared(8.0)
    source = state_source(panel, models)
    assert source.declared == ("client1", "client2")
    for name, E in zip(source.names, source.error_covs, strict=True):
        C, R = models[name].observation_matrix, models[name].measurement_cov
        np.testing.assert_allclose(E, np.linalg.inv(C.T @ np.linalg.solve(R, C)))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_fit_passes_it_on():
    panel, models = declared(8.0)
    result = fg.fit(panel, config=replace(fg.RunConfig(), solver="none"), models=models)
    found = [text for text in result.manifest["inference"]["warnings"] if "declared" in text]
    assert len(found) == 2
    assert result.manifest["data"]["clients"]["client1"]["noise_share"] == 1.0
