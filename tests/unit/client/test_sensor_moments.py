"""Streaming moments against plain NumPy on all rows at once."""

import numpy as np
import pytest

from fedgranger.client import sensor_moments
from fedgranger.client.sensor_moments import measurement_moments
from fedgranger.errors import DataError
from tests.slow_sensors import first_only, make


def ar_data(seed, length=211, d=3):
    rng = np.random.default_rng(seed)
    y = rng.standard_normal((length, d)) @ rng.standard_normal((d, d))
    for t in range(1, length):
        y[t] += 0.6 * y[t - 1]
    return y * [1.0, 10.0, 0.1] + [5.0, -300.0, 0.0]


def plain(client, starts, standardise):
    """The definition, pair by pair."""
    complete = client.observed.all(axis=1)
    rows = client.values[complete]
    centre = rows.mean(axis=0)
    scale = rows.std(axis=0) if standardise else np.ones(rows.shape[1])
    z = (client.values - centre) / scale
    pairs = [t for t in range(len(z) - 1) if complete[t] and complete[t + 1] and not starts[t + 1]]
    now, then = z[pairs], z[[t + 1 for t in pairs]]
    kept = z[complete]
    return (
        centre,
        scale,
        kept.T @ kept / len(kept),
        then.T @ now / len(pairs),
        now.T @ now / len(pairs),
        then.T @ then / len(pairs),
        len(kept),
        len(pairs),
    )


def gapped(seed):
    """Rows missing here and there, two later segment starts."""
    values = ar_data(seed)
    observed = np.repeat(np.random.default_rng(seed + 1).random((len(values), 1)) > 0.1, 3, axis=1)
    starts = first_only(len(values))
    starts[[60, 150]] = True
    return make(values, observed), starts


def complete_case(seed):
    values = ar_data(seed)
    return make(values), first_only(len(values))


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("case", [complete_case, gapped])
@pytest.mark.parametrize("chunk", [65_536, 211, 210, 50, 7, 1])
def test_vs_plain_numpy(monkeypatch, case, standardise, chunk):
    """Chunks of 210 leave one row for the last; 211 and 65 536 hold all."""
    client, starts = case(0)
    monkeypatch.setattr(sensor_moments, "CHUNK_STEPS", chunk)
    got = measurement_moments(client, starts, standardise=standardise)
    for name, value, expected in zip(
        got._fields, got, plain(client, starts, standardise), strict=True
    ):
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-11, err_msg=name)


def test_standardised_covariance_has_unit_diagonal():
    client, starts = gapped(3)
    cov = measurement_moments(client, starts, standardise=True).cov
    np.testing.assert_allclose(np.diag(cov), 1.0, rtol=1e-12)


def test_values_behind_a_missing_sample_do_not_matter():
    client, starts = gapped(4)
    garbage = make(client.values, client.observed)
    garbage.values[~client.observed] = 1e9
    got = measurement_moments(garbage, starts, standardise=True)
    expected = measurement_moments(client, starts, standardise=True)
    np.testing.assert_array_equal(got.lag_cov, expected.lag_cov)


def test_too_few_complete_rows():
    observed = np.ones((20, 3), dtype=np.bool_)
    observed[4:] = False
    with pytest.raises(DataError, match=r"'boiler': 4 complete rows for 3 sensors; at least 5"):
        measurement_moments(make(ar_data(0, 20), observed), first_only(20), standardise=True)


def test_sensors_that_are_rarely_there_together():
    observed = np.ones((20, 3), dtype=np.bool_)
    observed[4:, 1] = False
    words = r"'boiler': sensors 's1' and 's2' are there together in 4 rows; at least 5 are needed"
    with pytest.raises(DataError, match=words):
        measurement_moments(make(ar_data(0, 20), observed), first_only(20), standardise=True)


def test_what_lacks_samples_is_named():
    rng = np.random.default_rng(0)
    observed = rng.random((300, 40)) > 0.1
    observed[:, 7] = rng.random(300) > 0.9
    client = make(rng.standard_normal((300, 40)), observed)
    lacking = 300 - observed[:, 7].sum()
    words = rf"leave out the sensors that lack most samples \('s8' {lacking}, .*--resample"
    with pytest.raises(DataError, match=words):
        measurement_moments(client, first_only(300), standardise=True)
    with pytest.raises(DataError, match="give more rows or fewer sensors"):
        measurement_moments(make(ar_data(0, 4)), first_only(4), standardise=True)


def test_fewest_complete_rows_that_work():
    values = ar_data(0, 6)
    got = measurement_moments(make(values), first_only(6), standardise=True)
    assert (got.num_rows, got.num_pairs) == (6, 5)
    with pytest.raises(DataError, match="only 4 pairs"):
        measurement_moments(make(values[:5]), first_only(5), standardise=True)


def test_too_few_pairs():
    observed = np.ones((20, 3), dtype=np.bool_)
    observed[1::2] = False
    with pytest.raises(DataError, match=r"'boiler': only 0 pairs of consecutive complete rows"):
        measurement_moments(make(ar_data(0, 20), observed), first_only(20), standardise=True)


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e9 / 3])
def test_constant_sensor_is_named(monkeypatch, standardise, value):
    """0.1 has a rounded mean that is not 0.1: its computed variance is not zero."""
    values = ar_data(0)
    values[:, 1] = value
    observed = np.ones(values.shape, dtype=np.bool_)
    values[3, 1], observed[3] = 77.0, False  # varies only in a row that is missing
    monkeypatch.setattr(sensor_moments, "CHUNK_STEPS", 100)
    with pytest.raises(DataError, match=r"client 'boiler': sensor 's2' is constant"):
        measurement_moments(make(values, observed), first_only(211), standardise=standardise)
