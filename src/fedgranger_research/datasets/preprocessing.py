r"""A client's preprocessing by name: fitted on training data, stored, applied to new data.

A `LocalModel` already carries all numbers of a preprocessing: `centre` and `scale` (training mean
and standard deviation) and, in C and R, the map from scaled measurements to least-squares states.
`Preprocessing` adds what is missing to use it later on other files: the name of the recipe and
the names of the sensors. It is stored as an entry of `models.json` with those two keys more, so
`params.read_models` and `fedgranger fit --models` read the same file.

The recipes:

- `paper`: appendix "Additional Results on Real-World Dataset", subsection "Preprocessing of
  Real-world Datasets" of the paper. Every sensor is standardised with training statistics, the
  standardised training matrix is decomposed as \(U \Sigma V^\top\), samples are projected on the
  two leading right singular vectors, \(Z = \tilde Y B\), mixed by
  \(M = \begin{pmatrix}1&1\\0&1\end{pmatrix}\), \(\hat Z = Z M\), and standardised again with
  training statistics. The paper does not say whether variances are divided by T or T − 1 (here:
  T) nor how the vectors' signs are fixed (here: largest entry positive). Needs two sensors.
- `ours`: every sensor is standardised the same way; the number of states and the noise model
  (factor analysis or PPCA) are chosen by the Bayesian information criterion, and R is kept, so
  the states come with their error covariance.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedgranger.client.identify import identify
from fedgranger.client.params import LocalModel, read_models
from fedgranger.client.state_noise import state_readout
from fedgranger.data.client_data import ClientData, sensor_columns
from fedgranger.errors import ModelError
from fedgranger.option_fields import check_choice

RECIPES: dict[str, dict[str, Any]] = {
    "paper": {"method": "paper", "state_dim": 2, "standardise": True},
    "ours": {"method": "auto", "state_dim": "auto", "standardise": True},
}
"""Recipe -> arguments of `identify`."""
_MATRICES = (
    "self_transition",
    "observation_matrix",
    "process_cov",
    "measurement_cov",
    "centre",
    "scale",
)


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """From a client's measurements to its states, with training statistics only.

    Attributes:
        recipe: one of `RECIPES`.
        sensors: the training data's sensors, in the order of the model.
        model: the local model that holds the numbers.
    """

    recipe: str
    sensors: tuple[str, ...]
    model: LocalModel

    def __post_init__(self) -> None:
        """Refuse an unknown recipe and sensors that do not fit the model."""
        check_choice("recipe", self.recipe, tuple(RECIPES))
        if len(self.sensors) != self.model.num_sensors:
            raise ModelError(
                f"{len(self.sensors)} sensor names for a model of {self.model.num_sensors} "
                "sensors; give one name per sensor"
            )

    @classmethod
    def fit(
        cls,
        client: ClientData,
        segment_starts: np.ndarray,
        *,
        recipe: str = "ours",
        max_state_dim: int = 4,
    ) -> Preprocessing:
        """Learn the statistics from training data.

        Args:
            client: the client's own training measurements.
            segment_starts: steps that do not follow their predecessor.
            recipe: one of `RECIPES`.
            max_state_dim: largest number of states `ours` may choose.
        """
        check_choice("recipe", recipe, tuple(RECIPES))
        model = identify(client, segment_starts, max_state_dim=max_state_dim, **RECIPES[recipe])
        return cls(recipe, client.sensors, model)

    def apply(self, client: ClientData) -> np.ndarray:
        """States of new data, shape (time, state_dim); NaN where a sensor was not observed.

        Sensors are found by name; others that the new data have are left alone.

        Raises:
            DataError: a sensor of the training data is absent.
        """
        columns = sensor_columns(client, self.sensors)
        W = state_readout(self.model.observation_matrix, self.model.measurement_cov).weights
        states = self.model.scaled(client.values[:, columns]) @ W.T
        states[~client.observed[:, columns].all(axis=1)] = np.nan
        return states

    def to_mapping(self) -> dict[str, Any]:
        """Plain JSON values; an entry of `models.json` with the recipe and the sensors."""
        matrices = {name: getattr(self.model, name).tolist() for name in _MATRICES}
        return {
            "recipe": self.recipe,
            "sensors": list(self.sensors),
            **matrices,
            "method": self.model.method,
            "notes": list(self.model.notes),
        }

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Preprocessing:
        """Undo `to_mapping`.

        Raises:
            ModelError: a key is absent or not of its kind.
        """
        needed = ("recipe", "sensors", *_MATRICES)
        absent = [key for key in needed if key not in mapping]
        if absent:
            raise ModelError(f"'{absent[0]}' is missing; a preprocessing has {', '.join(needed)}")
        try:
            A, C, Q, R, centre, scale = (
                np.array(mapping[name], dtype=np.float64) for name in _MATRICES
            )
        except (TypeError, ValueError) as error:
            raise ModelError(f"not a numeric matrix ({error})") from None
        method, notes = str(mapping.get("method", "given")), tuple(mapping.get("notes", ()))
        model = LocalModel(A, C, Q, R, centre, scale, method, notes)
        return cls(str(mapping["recipe"]), tuple(map(str, mapping["sensors"])), model)


def write_preprocessing(path: Path, clients: Mapping[str, Preprocessing]) -> None:
    """Write `models.json` with every client's preprocessing."""
    table = {name: client.to_mapping() for name, client in clients.items()}
    path.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def read_preprocessing(path: Path) -> dict[str, Preprocessing]:
    """Read what `write_preprocessing` wrote.

    Raises:
        ModelError: names the file, the client and the field at fault.
    """
    read_models(path)  # refuses what is not a models.json in words of its own
    table = json.loads(path.read_text(encoding="utf-8"))
    result = {}
    for name, entry in table.items():
        try:
            result[name] = Preprocessing.from_mapping(entry)
        except ValueError as error:  # all our errors are
            raise ModelError(f"{path}, client '{name}': {error}") from None
    return result
