r"""What a client keeps of its normal operation, and how it reports on new data.

From normal training data the client learns to predict every standardised sensor from its own last
sample by ridge regression. The surprise of a step is the energy of the prediction error in units
of its usual size,

$$u^t = \frac{r_t^\top S^{-1} r_t}{\text{mean of the same over training}}, \qquad
  r_t = z_t - B z_{t-1} - b$$

1 on average in normal operation. It sees what the few states do not, and is a single number: it
is all that leaves the client beside the states (`messages.MonitorMessage`).

New data go through the same hands as those of training, in the same order: codes are masked and
counters differenced, then what repeats is taken out, then the monitor looks. All of it stays at
the client.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from fedgranger.client.client_side import ClientSide
from fedgranger.client.monitor_fit import energy_of, fit_monitor
from fedgranger.client.present_sensors import fill_partial
from fedgranger.client.season import apply_season
from fedgranger.client.usual_levels import (
    Stretch,
    level_limits,
    moving_levels,
    unusual_stretches,
)
from fedgranger.data.client_data import ClientData, sensor_columns, step_lengths
from fedgranger.data.time_axis import interval_text
from fedgranger.data.treatment import NO_TREATMENT, treat_columns
from fedgranger.errors import DataError
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.messages import LARGEST_NUMBER, MonitorMessage
from fedgranger.normal_operation import Monitor, Season

SHOWN_SENSORS = 3
PAST_STEPS = 2
"""A report on a step needs the one before, and the change at that one needs one more."""
INTERVAL_TOLERANCE = 0.05
"""By how much the sampling interval of new data may differ from that of training."""
CHECKED_STEPS = 20
"""The interval of fewer steps is not checked: half of them may lie after gaps."""


class OwnNormal(NamedTuple):
    """What a client knows of its own normal operation.

    The season is None in runs that took nothing out, the interval (ticks per step of the training
    data) in runs of older versions.
    """

    monitor: Monitor
    season: Season | None
    interval: float | None

    def report(
        self, client: ClientData, time: np.ndarray, starts: np.ndarray, skip: int = 0
    ) -> MonitorMessage:
        """States and surprise of new samples, whose sensors are found by name.

        The first `skip` steps are only the past of the others (`PAST_STEPS`).

        Raises:
            DataError: a sensor is absent, the data were treated in another way, or the time axis
                is of another kind.
        """
        with threadpool_limits(1):  # the same sums at every site
            client = self._prepared(client, time, starts)
            return monitor_message(self.monitor, client, starts, skip)

    def sensor_surprise(
        self, client: ClientData, time: np.ndarray, starts: np.ndarray, skip: int = 0
    ) -> np.ndarray:
        """Per step and sensor the energy of its error, in units of its usual one; stays here.

        NaN for a step without a predecessor, and where the sensor is missing.
        """
        with threadpool_limits(1):
            client = self._prepared(client, time, starts)
            seen = _standardised(self.monitor, client, starts)
        regression = self.monitor.regression
        errors = seen.z - seen.previous @ regression[:-1] - regression[-1]
        usual = np.diag(np.linalg.inv(self.monitor.precision))
        is_known = seen.follows[:, None] & seen.observed
        return np.where(is_known, errors**2 / usual, np.nan)[skip:]

    def unusual_levels(
        self, client: ClientData, time: np.ndarray, starts: np.ndarray
    ) -> tuple[list[Stretch], int]:
        """Where sensors strayed from their usual level, and how many were looked at.

        The columns are those of the monitor. A differenced sensor has no level; of others there
        may be too few samples, here or in training.
        """
        monitor, client = self.monitor, self._prepared(client, time, starts)
        columns = sensor_columns(client, monitor.sensors)
        z = (client.values[:, columns] - monitor.centre) / monitor.scale
        observed = client.observed[:, columns] & ~np.isin(
            np.array(monitor.sensors), np.array(monitor.treatment.differenced, dtype=np.str_)
        )
        limits = level_limits(monitor.levels, len(monitor.sensors), len(z))
        has_level = ~np.isnan(moving_levels(z, observed)).all(axis=0)
        num_judged = int((has_level & np.isfinite(limits)).sum())
        return unusual_stretches(z, observed, limits), num_judged

    def _prepared(self, client: ClientData, time: np.ndarray, starts: np.ndarray) -> ClientData:
        """New data treated like those of training, what repeats taken out."""
        client = treat(self.monitor, client, starts)
        return client if self.season is None else apply_season(self.season, client, time)

    def most_surprising(self, energy: np.ndarray) -> list[tuple[str, float]]:
        """The sensors with the largest mean of `sensor_surprise` over some steps, and that mean."""
        known = np.isfinite(energy)
        mean = np.where(known, energy, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        order = np.argsort(-mean, kind="stable")
        first = [k for k in order if known[:, k].any()][:SHOWN_SENSORS]
        return [(self.monitor.sensors[k], float(mean[k])) for k in first]


def learn_own_normal(side: ClientSide) -> OwnNormal:
    """Learn it from the training data."""
    with threadpool_limits(1):
        monitor = fit_monitor(side.data, side.starts, side.model)
    return OwnNormal(monitor, side.season, side.interval)


def is_same_interval(found: float, interval: float | None) -> bool:
    """Whether new data come as often as those of training, whose dynamics are per step."""
    return interval is None or abs(found / interval - 1) <= INTERVAL_TOLERANCE


def check_interval(interval: float | None, time: np.ndarray, *, may_be_finer: bool = False) -> None:
    """Refuse data at other intervals than those of training.

    Those of one client alone `may_be_finer`: of its rows the ones count that all clients have.
    """
    if interval is None or len(time) < CHECKED_STEPS:
        return
    found = float(np.median(step_lengths(time)))
    if may_be_finer:
        found *= max(1, round(interval / found))
    if not is_same_interval(found, interval):
        kind = "stamps" if time.dtype.kind == "M" else "numbers"
        raise DataError(
            f"the new data come every {interval_text(found, kind)}, those that the run learned "
            f"from came every {interval_text(interval, kind)}; resample the new data to that "
            "interval"
        )


def monitor_message(
    monitor: Monitor, client: ClientData, starts: np.ndarray, skip: int = 0
) -> MonitorMessage:
    """States and surprise of new samples; a step without a predecessor has no surprise.

    New measurements are as measured or treated like the training data already; sensors are found
    by name. The first `skip` steps are only the past of the others. What is larger than a message
    may hold is cut off there, far outside any range.

    Raises:
        DataError: a sensor is absent, or the data were treated in another way.
    """
    seen = _standardised(monitor, treat(monitor, client, starts), starts)
    energy = energy_of(seen.z, seen.previous, monitor.regression, monitor.precision, seen.observed)
    surprise = energy / monitor.usual_energy
    surprise = np.where(seen.follows, np.minimum(surprise, LARGEST_NUMBER), np.nan)
    states = np.where(seen.is_there[:, None], seen.scaled @ monitor.readout.T, 0.0)
    states = np.clip(states, -LARGEST_NUMBER, LARGEST_NUMBER)
    with jax.enable_x64(True):
        return MonitorMessage(
            jax_array(states[skip:]),
            jax_array(surprise[skip:]),
            jax_array(seen.is_there[skip:]),
        )


class _Seen(NamedTuple):
    """New samples as a monitor sees them.

    Attributes:
        scaled: in the local model's units; rows that lack sensors are filled by the others.
        z: in the sensors' usual units, likewise.
        previous: z of the step before.
        observed: which samples were there.
        is_there: which rows have a state.
        follows: which have one, and so has the step before.
    """

    scaled: np.ndarray
    z: np.ndarray
    previous: np.ndarray
    observed: np.ndarray
    is_there: np.ndarray
    follows: np.ndarray


def _standardised(monitor: Monitor, client: ClientData, starts: np.ndarray) -> _Seen:
    """Sensors in their usual units, those of the step before, and which steps have both."""
    columns = sensor_columns(client, monitor.sensors)
    values, observed = client.values[:, columns], client.observed[:, columns]
    scaled = (values - monitor.model_centre) / monitor.model_scale
    z = (values - monitor.centre) / monitor.scale
    is_there = np.all(observed, axis=1)
    C, R = monitor.observation_matrix, monitor.measurement_cov
    if C is not None and R is not None and (observed.any(axis=1) & ~is_there).any():
        found = fill_partial(np.where(observed, scaled, 0.0), observed, C, R)
        cells = found.is_filled[:, None] & ~observed
        scaled, is_there = np.where(cells, found.values, scaled), is_there | found.is_filled
        raw = monitor.model_centre + monitor.model_scale * scaled
        z = np.where(cells, (raw - monitor.centre) / monitor.scale, z)
    follows = ~starts & is_there
    follows[1:] &= is_there[:-1]
    follows[:1] = False
    return _Seen(scaled, z, np.concatenate([z[:1], z[:-1]]), observed, is_there, follows)


def treat(monitor: Monitor, client: ClientData, starts: np.ndarray) -> ClientData:
    """New data with their codes masked and their sensors differenced as in training."""
    done, wanted = client.treatment, monitor.treatment
    if done == wanted:
        return client
    if done != NO_TREATMENT:
        raise DataError(
            f"client '{client.name}': the new data were differenced or masked in another way "
            "than the training data; read them as measured: Panel.read(path, missing='mask', "
            "constant='keep')"
        )
    sensor_columns(client, monitor.sensors)  # refuses data that lack one
    values = np.where(client.observed, client.values, np.nan)
    treat_columns(client.sensors, values, starts, wanted)
    observed = ~np.isnan(values)
    values[~observed] = 0.0
    return ClientData(client.name, client.sensors, values, observed, wanted)
