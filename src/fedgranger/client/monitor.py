r"""A client's watch over its own sensors: how surprising is each new sample?

From normal training data the client learns to predict every standardised sensor from its own last
sample by ridge regression. The surprise of a step is the energy of the prediction error in units
of its usual size,

$$u^t = \frac{r_t^\top S^{-1} r_t}{\text{mean of the same over training}}, \qquad
  r_t = z_t - B z_{t-1} - b$$

1 on average in normal operation. It sees what the few states do not, and is a single number: it
is all that leaves the client beside the states (`messages.MonitorMessage`).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from fedgranger.client.params import LocalModel
from fedgranger.client.state_noise import state_readout
from fedgranger.data.panel import ClientData, sensor_columns
from fedgranger.data.treatment import NO_TREATMENT, Treatment, treat_columns
from fedgranger.errors import DataError
from fedgranger.linalg.smoothing import MEMORY, smooth, squared_norms
from fedgranger.messages import LARGEST_NUMBER, MonitorMessage

__all__ = ["Monitor", "fit_monitor"]

RIDGE = 1e-2
"""Of the regression and of the errors' covariance, in units of a sensor's variance."""
MOST_STEPS = 200_000
"""Of longer training data the last steps are used."""
MARGIN = 1.2
"""Out of range: above this many times the largest smoothed surprise of the training data."""


@dataclass(frozen=True, eq=False)
class Monitor:
    """What a client keeps to judge new samples; of it only `threshold` is sent, once.

    Attributes:
        sensors: names, in the order of the matrices.
        readout: maps scaled measurements to the states that the server knows.
        model_centre: subtracted before the readout.
        model_scale: divided by before the readout.
        centre: training mean of every sensor.
        scale: training standard deviation.
        regression: B and, in the last row, b; (d + 1, d).
        precision: S⁻¹.
        usual_energy: mean energy over training.
        threshold: upper end of the client's normal range of smoothed surprise.
        treatment: what was done to the training data, and is done to new data.
    """

    sensors: tuple[str, ...]
    readout: np.ndarray
    model_centre: np.ndarray
    model_scale: np.ndarray
    centre: np.ndarray
    scale: np.ndarray
    regression: np.ndarray
    precision: np.ndarray
    usual_energy: float
    threshold: float
    treatment: Treatment = NO_TREATMENT

    def report(self, client: ClientData, starts: np.ndarray, skip: int = 0) -> MonitorMessage:
        """States and surprise of new samples; a step without a predecessor has no surprise.

        What is larger than a message may hold is cut off there, far outside any range.

        Args:
            client: the new measurements, as measured or treated like the training data already;
                sensors are found by name.
            starts: steps that do not follow their predecessor.
            skip: so many first steps are only the past of the others.

        Raises:
            DataError: a sensor is absent, or the data were treated in another way.
        """
        client = self.treated(client, starts)
        columns = sensor_columns(client, self.sensors)
        values, observed = client.values[:, columns], np.all(client.observed[:, columns], axis=1)
        states = ((values - self.model_centre) / self.model_scale) @ self.readout.T
        z = (values - self.centre) / self.scale
        follows = ~starts & observed
        follows[1:] &= observed[:-1]
        follows[:1] = False
        previous = np.concatenate([z[:1], z[:-1]])
        surprise = _energy(z, previous, self.regression, self.precision) / self.usual_energy
        surprise = np.where(follows, np.minimum(surprise, LARGEST_NUMBER), np.nan)
        states = np.clip(np.where(observed[:, None], states, 0.0), -LARGEST_NUMBER, LARGEST_NUMBER)
        with jax.enable_x64(True):
            return MonitorMessage(
                jnp.asarray(states[skip:]),
                jnp.asarray(surprise[skip:]),
                jnp.asarray(observed[skip:]),
            )

    def treated(self, client: ClientData, starts: np.ndarray) -> ClientData:
        """New data with their codes masked and their sensors differenced as in training."""
        done, wanted = client.treatment, self.treatment
        if done == wanted:
            return client
        if done != NO_TREATMENT:
            raise DataError(
                f"client '{client.name}': the new data were differenced or masked in another way "
                "than the training data; read them as measured: Panel.read(path, missing='mask', "
                "constant='keep')"
            )
        sensor_columns(client, self.sensors)  # refuses data that lack one
        values = np.where(client.observed, client.values, np.nan)
        treat_columns(client.sensors, values, starts, wanted)
        observed = ~np.isnan(values)
        values[~observed] = 0.0
        return ClientData(client.name, client.sensors, values, observed, wanted)


def fit_monitor(client: ClientData, starts: np.ndarray, model: LocalModel) -> Monitor:
    """Learn what is normal from training data.

    Raises:
        DataError: too few complete pairs of samples.
    """
    recent = slice(max(0, len(client.values) - MOST_STEPS), None)
    samples, starts = client.values[recent], starts[recent]
    observed = np.all(client.observed[recent], axis=1)
    paired = observed[1:] & observed[:-1] & ~starts[1:]
    if paired.sum() < 2:
        raise DataError(
            f"client '{client.name}': {int(paired.sum())} pairs of complete consecutive samples "
            "are too few to learn what is normal; give more data"
        )
    values = samples[observed]
    centre, scale = values.mean(axis=0), values.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    z = (samples - centre) / scale
    before, after = z[:-1][paired], z[1:][paired]
    x = np.concatenate([before, np.ones((len(before), 1))], axis=1)
    gram = x.T @ x / len(x) + RIDGE * np.eye(x.shape[1])
    regression = np.linalg.solve(gram, x.T @ after / len(x))
    errors = after - x @ regression
    error_cov = (errors - errors.mean(axis=0)).T @ (errors - errors.mean(axis=0)) / len(errors)
    precision = np.linalg.inv(error_cov + RIDGE * np.eye(len(error_cov)))
    energy = _energy(after, before, regression, precision)
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
    )


def _energy(
    after: np.ndarray, before: np.ndarray, regression: np.ndarray, precision: np.ndarray
) -> np.ndarray:
    errors = after - before @ regression[:-1] - regression[-1]
    return squared_norms(errors, precision)
