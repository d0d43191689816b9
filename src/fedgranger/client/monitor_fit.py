"""Learn a client's `Monitor` from normal training data (equations in `own_normal`)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedgranger.client.incomplete_rows import own_means, rows_together
from fedgranger.client.params import LocalModel
from fedgranger.client.present_sensors import (
    FilledRows,
    fill_rows,
    missing_patterns,
    sensor_model,
)
from fedgranger.client.state_noise import state_readout
from fedgranger.client.usual_levels import usual_levels
from fedgranger.data.client_data import ClientData
from fedgranger.errors import DataError
from fedgranger.linalg.psd import project
from fedgranger.linalg.smoothing import MEMORY, smooth, squared_norms
from fedgranger.normal_operation import Monitor

RIDGE = 1e-2
"""Of the regression and of the errors' covariance, in units of a sensor's variance."""
MOST_STEPS = 200_000
"""Of longer training data the last steps are used."""
MARGIN = 1.2
"""Out of range: above this many times the largest smoothed surprise of the training data."""


def fit_monitor(client: ClientData, starts: np.ndarray, model: LocalModel) -> Monitor:
    """Learn what is normal from training data.

    Where rows lack single sensors they are filled by the others for the regression, while means,
    deviations and the errors' covariance are those of samples that were there.

    Raises:
        DataError: too few pairs of consecutive samples.
    """
    recent = slice(max(0, len(client.values) - MOST_STEPS), None)
    client = replace(client, values=client.values[recent], observed=client.observed[recent])
    sensors = sensor_model(model)
    rows, starts = fill_rows(client, sensors), starts[recent]
    samples, there = rows.data.values, rows.data.row_observed
    paired = there[1:] & there[:-1] & ~starts[1:]
    if paired.sum() < 2:
        raise DataError(
            f"client '{client.name}': {int(paired.sum())} pairs of complete consecutive samples "
            "are too few to learn what is normal; give more data"
        )
    seen = client.observed[1:][paired]
    centre, scale = _usual(client, rows)
    scale = np.where(scale > 0, scale, 1.0)
    z = (samples - centre) / scale
    before, after = z[:-1][paired], z[1:][paired]
    x = np.concatenate([before, np.ones((len(before), 1))], axis=1)
    gram = x.T @ x / len(x) + RIDGE * np.eye(x.shape[1])
    regression = np.linalg.solve(gram, x.T @ after / len(x))
    error_cov = _error_cov(after - x @ regression, seen)
    precision = np.linalg.inv(error_cov + RIDGE * np.eye(len(error_cov)))
    energy = energy_of(after, before, regression, precision, seen)
    usual = max(float(energy.mean()), 1e-12)
    surprise = np.full((len(paired), 1), np.nan)
    surprise[paired, 0] = energy / usual
    return Monitor(
        client.sensors,
        state_readout(model.observation_matrix, model.measurement_cov).weights,
        model.centre,
        model.scale,
        centre,
        scale,
        regression,
        precision,
        usual,
        MARGIN * float(smooth(surprise, 1.0, MEMORY).max()),
        client.treatment,
        sensors.observation_matrix,
        sensors.measurement_cov,
        usual_levels((client.values - centre) / scale, client.observed),
    )


def _usual(client: ClientData, rows: FilledRows) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of every sensor, over complete rows or its own samples."""
    if rows.num_filled:
        centre, squares = own_means(client)
        return centre, np.sqrt(squares)
    values = client.values[client.row_observed]
    return values.mean(axis=0), values.std(axis=0)


def _error_cov(errors: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Covariance of errors, each entry over the rows that have both sensors."""
    if observed.all():
        away = errors - errors.mean(axis=0)
        return away.T @ away / len(errors)
    count = np.maximum(np.add.reduce(observed, axis=0), 1)
    away = np.where(observed, errors - np.where(observed, errors, 0.0).sum(axis=0) / count, 0.0)
    return project(away.T @ away / np.maximum(rows_together(observed), 1.0), 0.0).matrix


def energy_of(
    after: np.ndarray,
    before: np.ndarray,
    regression: np.ndarray,
    precision: np.ndarray,
    observed: np.ndarray,
) -> np.ndarray:
    r"""Energy of the errors that is expected given those of the sensors that are there.

    $$E[r^\top S^{-1} r \mid r_o] = r_o^\top S_{oo}^{-1} r_o + |m|$$

    The first part is the energy of all with the missing errors set to what the present ones make
    expected; the second is the usual energy of what is not known, one per missing sensor.
    """
    errors = after - before @ regression[:-1] - regression[-1]
    unknown = np.zeros(len(errors))
    for rows, absent in missing_patterns(observed):
        own, beside = precision[np.ix_(absent, absent)], precision[np.ix_(absent, ~absent)]
        expected = np.linalg.solve(own, beside)
        errors[np.ix_(rows, absent)] = -errors[np.ix_(rows, ~absent)] @ expected.T
        unknown[rows] = absent.sum()
    return squared_norms(errors, precision) + unknown
