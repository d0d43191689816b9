"""The paper's test on FedGC's estimate, and `fit --uncertainty`."""

import dataclasses

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.errors import InferenceWarning, RunError
from fedgranger.runtime.propagation import steady_states
from fedgranger.runtime.row_inputs import single_row
from fedgranger.runtime.setup import set_up
from tests.ragged_run import OPTIONS, ragged_panel


@pytest.fixture(scope="module")
def panel():
    return ragged_panel()


@pytest.fixture(scope="module")
def result(panel):
    config = fg.RunConfig(test="asymptotic", **OPTIONS)
    with pytest.warns(InferenceWarning, match="merely correlated"):
        return fg.fit(panel, config)


def test_statistics_are_estimate_over_std_error(result):
    entries = result.entries()
    size = np.abs(entries["estimate"] / entries["std_error"])
    order = np.argsort(-size.to_numpy())
    p = entries["p_value"].to_numpy()[order]
    assert (np.diff(p[~np.isnan(p)]) >= -1e-12).all()
    np.testing.assert_allclose(
        entries["ci_high"] - entries["estimate"],
        entries["estimate"] - entries["ci_low"],
        rtol=1e-9,
    )
    block = result.block("client2", "client1")
    own = entries[(entries["effect"] == "client2") & (entries["cause"] == "client1")]
    np.testing.assert_allclose(own["estimate"], block.reshape(-1))


def test_std_error_is_that_of_the_steady_state(panel, result):
    setup = set_up(panel, result.config)
    row, steady = steady_states(setup, result.config, passes=20)[1]
    columns = np.flatnonzero(row.causes == setup.names.index("client1"))
    variance = np.diag(steady.granger_cov(trained=True)).reshape(2, -1)[:, columns]
    entries = result.entries()
    own = entries[(entries["effect"] == "client2") & (entries["cause"] == "client1")]
    np.testing.assert_allclose(own["std_error"] ** 2, variance.reshape(-1), rtol=1e-6)


def test_a_regime_that_is_given_equals_a_window_of_its_length(panel, result):
    """Steps from 250 on; the last one that a round begins with is 398."""
    found = []
    for options in (
        {"weighting": "regime", "regime_start": str(panel.time[250])},
        {"weighting": "window", "weighting_span": 149},
        {},
    ):
        config = dataclasses.replace(result.config, window=1, **options)
        found.append(steady_states(set_up(panel.slice(0, 400), config), config)[0][1].granger_cov())
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] / found[2] - 1).max() > 0.05


def test_rows_have_no_padding(panel, result):
    setup = set_up(panel, result.config)
    row = single_row(setup, result.config, 0)
    assert row.params.self_transition.shape == (1, 1)
    assert row.windows.measurements.shape[-1] == 4
    assert row.windows.causes.shape[-1] == 4
    assert np.abs(np.asarray(row.windows.causes)).sum(axis=(0, 1)).min() > 0


def test_run_folder_round_trip(result, tmp_path):
    result.save(tmp_path)
    again = fg.Result.load(tmp_path)
    assert again.inference.facts["test"] == "asymptotic"
    np.testing.assert_array_equal(again.inference.std_error, result.inference.std_error)
    assert again.edges().equals(result.edges())
    for client in result.clients:
        for a, b in zip(
            again.uncertainty.final[client], result.uncertainty.final[client], strict=True
        ):
            np.testing.assert_array_equal(a, b)
    assert (again.uncertainty.table.columns == result.uncertainty.table.columns).all()
    np.testing.assert_allclose(again.uncertainty.table["total"], result.uncertainty.table["total"])
    assert again.uncertainty.prior_time == result.uncertainty.prior_time


def test_no_debiased_estimate_in_this_run(result):
    with pytest.raises(RunError, match="no debiased estimate"):
        result.edges(estimate="debiased")
    with pytest.raises(RunError, match="no debiased estimate"):
        result.block("client2", "client1", estimate="debiased")


def test_shares_add_up(result):
    table = result.uncertainty.table
    traces = table[table["quantity"].isin(["augmentation_cov", "granger_cov", "state_cov"])]
    np.testing.assert_allclose(traces["prior"] + traces["data"], traces["total"])
    assert (traces["data"] >= -1e-12).all()
