"""States tested as they are: plain least squares, with the warning that this needs."""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.client.own_normal import monitor_message
from fedgranger.errors import InferenceWarning
from tests.configs import formula_config

CONFIG = {"state_dim": 2, "passes": 1, "tolerance": 0}


def test_uncorrected_estimate_vs_plain_least_squares():
    panel, _ = fg.simulate(3, 800, seed=2, measurement_var=2.0)
    with pytest.warns(InferenceWarning, match="measurement noise was not taken out"):
        found = fg.fit(panel, formula_config(noise_correction=False, **CONFIG))
    states = np.concatenate(
        [
            monitor_message(found.monitors[name], panel[name], panel.segment_starts).states
            for name in panel.names
        ],
        axis=1,
    )
    x = states - states.mean(axis=0)
    plain = np.linalg.lstsq(x[:-1], x[1:], rcond=None)[0].T
    np.testing.assert_allclose(found.inference.transition, plain, atol=0.01)
    corrected = fg.fit(panel, formula_config(**CONFIG))
    assert np.abs(corrected.inference.transition - plain).max() > 0.02


@pytest.mark.filterwarnings("ignore:the residuals of")
def test_clients_whose_noise_cannot_be_told_from_their_states_can_be_tested():
    """Sample-and-hold sensors: what they share is not white noise, and E exceeds G0."""
    rng = np.random.default_rng(0)
    held = np.repeat(rng.standard_normal((200, 6)), 5, axis=0)
    walk = np.zeros((1000, 4))
    for t in range(1, 1000):
        walk[t] = 0.9 * walk[t - 1] + rng.standard_normal(4)
    panel = fg.Panel.from_arrays({"held": held, "walk": walk})
    config = {"state_model": "svd", **CONFIG}
    with pytest.warns(InferenceWarning, match="measurement noise was not taken out"):
        found = fg.fit(panel, formula_config(noise_correction=False, **config))
    assert found.edges()["p_value"].notna().all()
