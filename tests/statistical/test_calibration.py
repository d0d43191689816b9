"""Do null edges get uniform p-values? Simulation, identification and tests over seeds."""

import numpy as np
import pytest

from fedgranger.client.identify import identify
from fedgranger.data.synthetic import simulate
from fedgranger_research.studies import calibration_trials
from fedgranger_research.studies.calibration_trials import Setting, run_data_set, summarise


def null_p_values(records):
    return np.concatenate([record.edge_p[~record.edge_true] for record in records])


@pytest.fixture(scope="module", autouse=True)
def _data_sets_are_made_once():
    """Tests that leave something out do so on the same data sets and models; nothing changes them.

    Models are remembered by name and by the values of the client.
    """
    made = {}

    def remembered(function, key_of):
        def call(*args, **options):
            key = key_of(*args, **options)
            if key not in made:
                made[key] = function(*args, **options)
            return made[key]

        return call

    def system(**options):
        return tuple(sorted((name, str(value)) for name, value in options.items()))

    def measured(client, starts, state_dim):
        parts = (client.values, client.observed, starts)
        return client.name, state_dim, *(part.tobytes() for part in parts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration_trials, "simulate", remembered(simulate, system))
        patch.setattr(calibration_trials, "identify", remembered(identify, measured))
        yield


OVERDISPERSION = 2.0
"""Variance of the share of rejections relative to independent tests: the 21 null edges of one
data set share a system and its estimate. Measured over 60 data sets: 1.0 to 1.6."""


def allowed(share, num_tests, num_errors=3.0):
    """Interval that holds the share of p-values below `share` if they are honest."""
    half = num_errors * np.sqrt(OVERDISPERSION * share * (1 - share) / num_tests)
    return max(0.0, share - half), share + half


@pytest.mark.slow  # a coarse study; make test-all has the fine one too
def test_p_values_are_not_grossly_off():
    """16 data sets with 21 null edges each: 336 tests, so 5 % may show as 0 to 10 %.

    Blocks have four entries, so standard errors that are 15 % too small would reject 14 %; too
    large by 30 %, and 22 % instead of half of the p-values would lie below one half.
    """
    records = [run_data_set(Setting("base", 500), seed) for seed in range(16)]
    p = null_p_values(records)
    assert len(p) == 336
    assert not np.isnan(p).any()
    for share in (0.05, 0.2, 0.5, 0.8):
        low, high = allowed(share, len(p))
        assert low <= (p <= share).mean() <= high, share
    assert summarise(records).edge_power > 0.95


@pytest.mark.slow  # 18 fits; inference/test_estimate.py has the formulas, their limit without E
def test_measurement_error_must_be_taken_out(monkeypatch):
    """Noise of the size of the signal: without the correction a third of the null edges appear."""
    monkeypatch.setitem(
        calibration_trials.SCENARIOS, "loud", {"measurement_var": 2.0, "sensor_dims": 4}
    )
    setting = Setting("loud", 1000, known_models=True)
    p = null_p_values([run_data_set(setting, seed) for seed in range(12)])
    limit = allowed(0.05, len(p))[1]
    assert (p <= 0.05).mean() < limit
    right = calibration_trials.state_source

    def uncorrected(*args):
        source = right(*args)
        return source._replace(error_covs=tuple(np.zeros_like(E) for E in source.error_covs))

    monkeypatch.setattr(calibration_trials, "state_source", uncorrected)
    p = null_p_values([run_data_set(setting, seed) for seed in range(6)])
    assert (p <= 0.05).mean() > 2 * limit


@pytest.mark.slow  # 36 fits; test_added_noise.py has the formulas
def test_added_noise_must_be_taken_out(monkeypatch):
    """Half of each state's s.d. added: as `measurement_error` above, with N alone known."""
    setting = Setting("base", 1000, added_noise=0.5)
    p = null_p_values([run_data_set(setting, seed) for seed in range(12)])
    limit = allowed(0.05, len(p))[1]
    assert (p <= 0.05).mean() < limit
    right = calibration_trials.with_added_noise

    def untold(*args):
        return right(*args)._replace(added_covs=())

    monkeypatch.setattr(calibration_trials, "with_added_noise", untold)
    p = null_p_values([run_data_set(setting, seed) for seed in range(6)])
    assert (p <= 0.05).mean() > 2 * limit


@pytest.mark.slow  # 40 fits for each size of noise
@pytest.mark.parametrize("added_noise", [0.1, 0.3, 1.0])
def test_size_with_added_noise(added_noise):
    """Within 3 standard errors of 3.5 % to 6.5 %, up to noise as large as the signal."""
    setting = Setting("base", 2000, added_noise=added_noise)
    found = summarise([run_data_set(setting, seed) for seed in range(40)])
    for name in ("edge_size", "entry_size"):
        size, error = getattr(found, name), getattr(found, f"{name}_se")
        assert 0.035 - 3 * error <= size <= 0.065 + 3 * error, name
    assert found.num_refused <= (12 if added_noise == 1 else 1)
    assert found.edge_power > 0.94


@pytest.mark.slow  # 60 fits for each length
@pytest.mark.parametrize("num_steps", [500, 2000])
def test_size_of_edge_and_entry_tests(num_steps):
    """Within 3 Monte Carlo standard errors of 3.5 % to 6.5 %, C and R identified."""
    records = [run_data_set(Setting("base", num_steps), seed) for seed in range(60)]
    found = summarise(records)
    for name in ("edge_size", "entry_size"):
        size, error = getattr(found, name), getattr(found, f"{name}_se")
        assert error < 0.012, name
        assert 0.035 - 3 * error <= size <= 0.065 + 3 * error, name
    assert abs(found.coverage - (1 - found.entry_size)) < 1e-12  # p < 0.05 is "0 outside"
    assert found.edge_power > 0.97


@pytest.mark.slow  # 40 fits for each scenario
@pytest.mark.parametrize("scenario", ["missing10", "student4", "correlated"])
def test_size_in_harder_scenarios(scenario):
    records = [run_data_set(Setting(scenario, 2000), seed) for seed in range(40)]
    found = summarise(records)
    assert 0.03 - 3 * found.edge_size_se <= found.edge_size <= 0.07 + 3 * found.edge_size_se
    assert found.edge_power > 0.95


@pytest.mark.slow  # 40 fits for each scenario
@pytest.mark.parametrize("scenario", ["base", "missing10"])
def test_coverage_of_true_values(scenario):
    """Models known: intervals of all entries, also of the edges that exist."""
    found = summarise([run_data_set(Setting(scenario, 2000, True), seed) for seed in range(40)])
    assert 0.935 - 3 * found.coverage_se <= found.coverage <= 0.965 + 3 * found.coverage_se
