"""Studies of noise that clients add: the states of a fit, and noise of a known covariance."""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.runtime.fitting import fit_panel
from fedgranger_research.added_noise import (
    infer_with_added_noise,
    sent_states,
    with_added_noise,
)
from fedgranger_research.recordings.trial import Control, fitting_config, run_control, study_config
from fedgranger_research.studies.calibration_trials import Setting, run_data_set


def panel_and_config(**options):
    panel, truth = fg.simulate(num_clients=3, num_steps=900, seed=2, missing_share=0.05)
    config = fg.RunConfig.from_mapping(
        {"solver": "none", "test": "debiased", "state_dim": truth.state_dims, **options}
    )
    return panel, config


def test_without_noise_vs_fit():
    panel, config = panel_and_config()
    found, facts = infer_with_added_noise(panel, config, 0.0, 0)
    result = fit_panel(panel, config)
    assert found.edges.equals(result.inference.edges)
    assert facts["warnings"] == result.manifest["inference"]["warnings"]


def test_noise_has_the_covariance_that_is_told():
    panel, config = panel_and_config()
    source = sent_states(panel, config, {})
    noisy = with_added_noise(source, 0.5, 1)
    one, other = (next(part.chunks()) for part in (source, noisy))
    there = one.observed[:, source.owner]
    added = other.states - one.states
    assert not added[~there].any()
    assert (other.states[~there] == 0).all()
    for m, N in enumerate(noisy.added_covs):
        own = source.owner == m
        sample = np.cov(added[one.observed[:, m]][:, own].T)
        spread = one.states[one.observed[:, m]][:, own].std(axis=0)
        np.testing.assert_allclose(np.sqrt(np.diag(N)), 0.5 * spread)
        np.testing.assert_allclose(sample, N, atol=0.25 * N.max())
    again = next(with_added_noise(source, 0.5, 1).chunks())
    np.testing.assert_array_equal(again.states, other.states)
    assert with_added_noise(source, 0.0, 1) is source


def test_calibration_with_noise():
    quiet, loud = Setting(num_steps=300), Setting(num_steps=300, added_noise=0.3)
    assert loud.name == f"{quiet.name}-added0.3"
    p = [run_data_set(setting, 0).edge_p for setting in (quiet, loud)]
    assert np.isfinite(p).all()
    assert np.abs(p[0] - p[1]).max() > 0


@pytest.mark.slow  # a fit of a recording; one without noise is fast
def test_a_control_panel_with_noise():
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=(400, 2)) for name in "abc"}
    for values in arrays.values():
        for t in range(1, 400):
            values[t] += 0.7 * values[t - 1]
    control = Control("noisy/0", "null", arrays, {}, added_noise=0.3)
    config = fitting_config(study_config({"state_dim": 1, "copies": 20}), control)
    found = run_control(control, config)
    assert found["reason"] is None
    assert all(pair["p_value"] is not None for pair in found["pairs"])
    assert {pair["place"] for pair in found["pairs"]} == set(range(6))
    assert found["pairs"] != run_control(Control("noisy/0", "null", arrays, {}), config)["pairs"]
