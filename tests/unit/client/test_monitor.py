"""A client's monitor: what it calls surprising, and that it applies training statistics only."""

import numpy as np
import pytest

from fedgranger.client.monitor_fit import fit_monitor
from fedgranger.client.own_normal import monitor_message
from fedgranger.client.params import LocalModel
from fedgranger.data.client_data import ClientData
from fedgranger.errors import DataError
from fedgranger.linalg.smoothing import smooth
from fedgranger.normal_operation import Monitor

OLDER_FIELDS = {
    "sensors", "readout", "model_centre", "model_scale", "centre", "scale", "regression",
    "precision", "usual_energy", "threshold",
}  # fmt: skip

MODEL = LocalModel(
    np.array([[0.5]]),
    np.ones((3, 1)),
    np.eye(1),
    np.eye(3),
    np.array([1.0, 2.0, 3.0]),
    np.array([1.0, 2.0, 4.0]),
)


def made(num_steps, seed=0, sensors=("x", "y", "z"), missing=()):
    rng = np.random.default_rng(seed)
    values = np.zeros((num_steps, 3))
    for t in range(1, num_steps):
        values[t] = 0.7 * values[t - 1] + rng.standard_normal(3) * (1.0, 2.0, 5.0)
    observed = np.ones(values.shape, bool)
    observed[list(missing)] = False
    return ClientData("a", sensors, np.where(observed, values, 0.0), observed)


def starts_of(num_steps, *others):
    starts = np.zeros(num_steps, bool)
    starts[[0, *others]] = True
    return starts


def test_surprise_is_one_on_average_in_normal_operation():
    monitor = fit_monitor(made(4000), starts_of(4000), MODEL)
    told = np.asarray(monitor_message(monitor, made(4000), starts_of(4000)).surprise)
    assert np.isnan(told[0])
    assert np.nanmean(told) == pytest.approx(1.0, rel=1e-9)
    new = np.asarray(monitor_message(monitor, made(4000, seed=1), starts_of(4000)).surprise)
    assert np.nanmean(new) == pytest.approx(1.0, abs=5 * np.sqrt(2 / 3 / 4000))
    assert not (smooth(new[:, None], 1.0, 5.0) > monitor.threshold).any()
    peak = float(smooth(told[:, None], 1.0, 5.0).max())
    assert monitor.threshold == pytest.approx(1.2 * peak)


def test_surprise_vs_a_regression_written_out():
    train, new = made(500), made(50, seed=2)
    monitor = fit_monitor(train, starts_of(500), MODEL)
    mean, scale = train.values.mean(axis=0), train.values.std(axis=0)
    z = (train.values - mean) / scale
    x = np.column_stack([z[:-1], np.ones(499)])
    ridge = np.vstack([x, np.sqrt(0.01 * 499) * np.eye(4)])
    target = np.vstack([z[1:], np.zeros((4, 3))])
    B = np.linalg.lstsq(ridge, target, rcond=None)[0]
    S = np.cov((z[1:] - x @ B).T, bias=True) + 0.01 * np.eye(3)
    energy = lambda e: np.einsum("ti,ij,tj->t", e, np.linalg.inv(S), e)  # noqa: E731
    usual = energy(z[1:] - x @ B).mean()
    w = (new.values - mean) / scale
    expected = energy(w[1:] - np.column_stack([w[:-1], np.ones(49)]) @ B) / usual
    told = np.asarray(monitor_message(monitor, new, starts_of(50)).surprise)[1:]
    np.testing.assert_allclose(told, expected, rtol=1e-9)


def test_a_jump_is_a_surprise_once_and_a_new_level_twice_only():
    monitor = fit_monitor(made(2000), starts_of(2000), MODEL)
    calm = made(200, seed=3)
    values = calm.values.copy()
    values[100] += 50.0
    jump = ClientData("a", calm.sensors, values, calm.observed)
    told = np.asarray(monitor_message(monitor, jump, starts_of(200)).surprise)
    assert set(np.flatnonzero(told > 20)) == {100, 101}


def test_surprise_does_not_depend_on_units_or_order_of_sensors():
    train, new = made(800), made(60, seed=4)
    told = np.asarray(
        monitor_message(fit_monitor(train, starts_of(800), MODEL), new, starts_of(60)).surprise
    )
    factor, order = np.array([10.0, 0.1, 3.0]), [2, 0, 1]

    def other(client):
        names = tuple(np.array(client.sensors)[order])
        return ClientData("a", names, (client.values * factor + 7)[:, order], client.observed)

    again = monitor_message(
        fit_monitor(other(train), starts_of(800), MODEL), other(new), starts_of(60)
    )
    np.testing.assert_allclose(np.asarray(again.surprise), told, rtol=1e-8)
    shuffled = ClientData("a", ("z", "x", "y"), new.values[:, order], new.observed)
    by_name = monitor_message(fit_monitor(train, starts_of(800), MODEL), shuffled, starts_of(60))
    np.testing.assert_allclose(np.asarray(by_name.surprise), told, rtol=1e-12)


def test_states_are_the_least_squares_states_of_the_model():
    monitor = fit_monitor(made(300), starts_of(300), MODEL)
    new = made(20, seed=5)
    states = np.asarray(monitor_message(monitor, new, starts_of(20)).states)
    np.testing.assert_allclose(states[:, 0], MODEL.scaled(new.values).mean(axis=1))


def test_gaps_have_no_surprise():
    monitor = fit_monitor(made(300), starts_of(300), MODEL)
    message = monitor_message(monitor, made(20, seed=6, missing=[5]), starts_of(20, 12))
    unknown = np.flatnonzero(np.isnan(np.asarray(message.surprise)))
    assert unknown.tolist() == [0, 5, 6, 12]
    assert not np.asarray(message.is_observed)[5]


def test_wrong_data_are_refused_in_a_sentence():
    with pytest.raises(DataError, match=r"client 'a': 0 pairs of complete consecutive samples"):
        fit_monitor(made(10, missing=range(0, 10, 2)), starts_of(10), MODEL)
    monitor = fit_monitor(made(300), starts_of(300), MODEL)
    with pytest.raises(DataError, match=r"lack sensor 'z' \(they have x, y, w\)"):
        monitor_message(monitor, made(10, sensors=("x", "y", "w")), starts_of(10))


def holed(client, share, seed=9):
    observed = client.observed & (np.random.default_rng(seed).random(client.values.shape) > share)
    return ClientData("a", client.sensors, np.where(observed, client.values, 0.0), observed)


def test_a_row_that_lacks_a_sensor_is_judged_by_the_others():
    """The energy of the present errors by their own covariance, and one for the missing one."""
    monitor = fit_monitor(made(2000), starts_of(2000), MODEL)
    new = made(60, seed=5)
    observed = new.observed.copy()
    observed[30, 1] = False
    told = monitor_message(
        monitor, ClientData("a", new.sensors, new.values, observed), starts_of(60)
    )
    z = (new.values - monitor.centre) / monitor.scale
    errors = (z[30] - z[29] @ monitor.regression[:-1] - monitor.regression[-1])[[0, 2]]
    cov = np.linalg.inv(monitor.precision)[np.ix_([0, 2], [0, 2])]
    expected = (errors @ np.linalg.solve(cov, errors) + 1) / monitor.usual_energy
    assert float(told.surprise[30]) == pytest.approx(expected)
    seen = ((new.values - MODEL.centre) / MODEL.scale)[30, [0, 2]]
    np.testing.assert_allclose(told.states[30], [seen.mean()])  # equal loadings and noise
    whole = monitor_message(monitor, new, starts_of(60))
    others = np.delete(np.arange(60), [30, 31])
    np.testing.assert_array_equal(
        np.asarray(told.surprise)[others], np.asarray(whole.surprise)[others]
    )
    np.testing.assert_array_equal(told.states[31], whole.states[31])


def test_missing_samples_in_training_leave_the_normal_range_where_it_was():
    whole = fit_monitor(made(4000), starts_of(4000), MODEL)
    monitor = fit_monitor(holed(made(4000), 0.1), starts_of(4000), MODEL)
    np.testing.assert_allclose(monitor.centre, whole.centre, atol=0.4)
    np.testing.assert_allclose(monitor.scale, whole.scale, rtol=0.05)
    np.testing.assert_allclose(np.diag(monitor.precision), np.diag(whole.precision), rtol=0.25)
    assert monitor.threshold == pytest.approx(whole.threshold, rel=0.3)
    told = monitor_message(monitor, holed(made(4000, seed=1), 0.1, 3), starts_of(4000))
    assert np.nanmean(np.asarray(told.surprise)) == pytest.approx(1.0, abs=0.1)
    assert np.asarray(told.is_observed).mean() > 0.95


def test_a_monitor_of_an_older_version_takes_such_a_row_as_missing():
    monitor = fit_monitor(made(300), starts_of(300), MODEL)
    arrays = monitor.to_arrays()
    again = Monitor.from_arrays(arrays)
    np.testing.assert_array_equal(again.measurement_cov, MODEL.measurement_cov)
    older = {name: value for name, value in arrays.items() if name in OLDER_FIELDS}
    new = holed(made(60, seed=5), 0.1)
    told = monitor_message(Monitor.from_arrays(older), new, starts_of(60))
    np.testing.assert_array_equal(told.is_observed, new.row_observed)
