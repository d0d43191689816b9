r"""States, one-step forecasts and residuals of data, and loadings: what the fitted model says.

Only where the local models are: in a run in one process. With the least-squares coefficients that
every run with tests has for it (`inference/predictor.py`), whichever its test,

$$\hat s(t{+}1) = c + \sum_{l=1}^{L} B_l\, s(t{+}1{-}l), \qquad
  \hat y_i = \text{centre}_i + \text{scale}_i\, C_i \hat s + \text{season}_i,$$

and a residual is what was there less the forecast. Sensors whose changes were used get the last
measurement added where the data hold measurements, so a forecast always compares with the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedgranger.client.own_normal import OwnNormal
from fedgranger.client.season import apply_season
from fedgranger.data.client_data import ClientData, sensor_columns, step_lengths
from fedgranger.data.panel import Panel
from fedgranger.errors import RunError
from fedgranger.inference.predictor import Predictor
from fedgranger.normal_operation import Monitor
from fedgranger.rca.new_data import reports_on, require_normal, training_interval
from fedgranger.result_tables import check_client, state_slices
from fedgranger.results import Result


class Seen(NamedTuple):
    """Data and the states that the local models see in them.

    Attributes:
        panel: the data.
        normals: what every client knows of itself.
        starts: steps that do not follow their predecessor.
        states: (time, state), NaN where a client was not measured.
        interval: ticks of the time axis per step.
    """

    panel: Panel
    normals: dict[str, OwnNormal]
    starts: np.ndarray
    states: np.ndarray
    interval: float


def state_table(result: Result, data: Any, reading: Mapping[str, Any]) -> pd.DataFrame:
    """Least-squares states by time; columns (client, state)."""
    seen = see_states(result, data, reading)
    return pd.DataFrame(seen.states, seen.panel.time_index, _state_columns(result))


def forecast_table(
    result: Result, data: Any, reading: Mapping[str, Any], *, sensors: bool
) -> pd.DataFrame:
    """One-step forecasts by the time that is predicted; the last one is after the data."""
    seen = see_states(result, data, reading)
    states = predicted_states(seen, _predictor(result))
    index = seen.panel.indexed(_predicted_times(seen))
    if not sensors:
        return pd.DataFrame(states, index, _state_columns(result))
    parts = {name: _predicted_sensors(result, seen, name, states) for name in result.clients}
    # columns without names of their levels, as those of pd.concat(frames, axis=1)
    return pd.concat({name: part.set_axis(index) for name, part in parts.items()}, axis=1)


def residual_table(
    result: Result, data: Any, reading: Mapping[str, Any], *, sensors: bool
) -> pd.DataFrame:
    """What was there less its forecast, by time; NaN where either is unknown."""
    seen = see_states(result, data, reading)
    forecast = forecast_table(result, seen.panel, {}, sensors=sensors).iloc[:-1]
    if not sensors:
        return seen.states - forecast
    return _measured(seen, forecast.columns) - forecast


def loading_table(result: Result, client: str | None) -> pd.DataFrame:
    """Change of every sensor, in its unit, for one more of a state; rows (client, sensor)."""
    if client is not None:
        check_client(client, result.clients)
    wanted = result.clients if client is None else (client,)
    parts = {name: _loadings(result.monitors[name]) for name in wanted}
    if client is not None:
        return parts[client]
    return pd.concat(parts, names=["client", "sensor"])


def see_states(result: Result, data: Any, reading: Mapping[str, Any]) -> Seen:
    """The states of data in the coordinates of the run.

    Raises:
        DataError: a client or sensor is absent, or the data come at other intervals.
    """
    normals, _ = require_normal(result)
    panel, starts, messages = reports_on(result, normals, data, reading)
    parts = []
    for name in result.clients:
        observed = np.asarray(messages[name].is_observed)[:, None]
        parts.append(np.where(observed, np.asarray(messages[name].states), np.nan))
    interval = training_interval(result)
    step = float(np.median(step_lengths(panel.time))) if interval is None else interval
    return Seen(panel, normals, starts, np.concatenate(parts, axis=1), step)


def predicted_states(seen: Seen, found: Predictor) -> np.ndarray:
    """What is expected at every step and the one after the last.

    NaN where a step before, on which it depends, was not measured or lies before a break.
    """
    T, P = seen.states.shape
    segment = np.cumsum(seen.starts)
    segment = np.append(segment, segment[-1:])
    out = np.tile(found.constant, (T + 1, 1))
    for k in range(found.transition.shape[1] // P):
        B = found.transition[:, k * P : (k + 1) * P]
        used = (B != 0).any(axis=0)
        before = np.full((T + 1, P), np.nan)
        follows = np.flatnonzero(segment[k + 1 :] == segment[: max(T - k, 0)])
        before[follows + k + 1] = seen.states[follows]
        if used.any():
            out += before[:, used] @ B[:, used].T
    return out


def _predictor(result: Result) -> Predictor:
    found = None if result.inference is None else result.inference.predictor
    if found is None:
        raise RunError(
            "this run has no regression of the states to predict with (nothing was tested, "
            "test='asymptotic', too few rows, or an older version); fit again with test='auto'"
        )
    return found


def _predicted_times(seen: Seen) -> np.ndarray:
    time = seen.panel.time
    step = np.timedelta64(round(seen.interval), "ns") if time.dtype.kind == "M" else seen.interval
    return np.append(time, (time[-1:] + step).astype(time.dtype))


def _predicted_sensors(result: Result, seen: Seen, name: str, states: np.ndarray) -> pd.DataFrame:
    """Measurements that predicted states mean, in the form in which the data hold them."""
    normal, places = seen.normals[name], state_slices(result.clients, result.state_dims)
    monitor, client = normal.monitor, seen.panel[name]
    values = monitor.model_centre + states[:, places[name]] @ _loadings(monitor).to_numpy().T
    values = values + _season(normal, name, _predicted_times(seen))
    for k, sensor in enumerate(monitor.sensors):
        if sensor in set(monitor.treatment.differenced) - set(client.treatment.differenced):
            values[:, k] += _previous(client, sensor, seen.starts)
    return pd.DataFrame(values, columns=list(monitor.sensors))


def _season(normal: OwnNormal, name: str, time: np.ndarray) -> np.ndarray:
    """What repeats, at any times: what is taken out of zeros, with the other sign."""
    shape = (len(time), len(normal.monitor.sensors))
    if normal.season is None:
        return np.zeros(shape)
    nothing = ClientData(name, normal.monitor.sensors, np.zeros(shape), np.ones(shape, np.bool_))
    return -apply_season(normal.season, nothing, time).values


def _previous(client: ClientData, sensor: str, starts: np.ndarray) -> np.ndarray:
    """The measurement one step before, for every step and the one after the last."""
    column = client.sensors.index(sensor)
    measured = np.where(client.observed[:, column], client.values[:, column], np.nan)
    before = np.append(np.nan, measured)
    before[:-1][starts] = np.nan
    return before


def _measured(seen: Seen, columns: pd.MultiIndex | pd.Index) -> pd.DataFrame:
    parts = []
    for name, normal in seen.normals.items():
        client = seen.panel[name]
        taken = sensor_columns(client, normal.monitor.sensors)
        parts.append(np.where(client.observed, client.values, np.nan)[:, taken])
    return pd.DataFrame(np.concatenate(parts, axis=1), seen.panel.time_index, columns)


def _loadings(monitor: Monitor) -> pd.DataFrame:
    if monitor.observation_matrix is None:
        raise RunError("this run was made by an older version, without loadings; fit it again")
    values = monitor.model_scale[:, None] * monitor.observation_matrix
    sensors = pd.Index(monitor.sensors, name="sensor")
    return pd.DataFrame(values, sensors, pd.RangeIndex(values.shape[1], name="state"))


def _state_columns(result: Result) -> pd.MultiIndex:
    pairs: Sequence[tuple[str, int]] = [
        (name, state)
        for name, dim in zip(result.clients, result.state_dims, strict=True)
        for state in range(dim)
    ]
    return pd.MultiIndex.from_tuples(pairs, names=["client", "state"])
