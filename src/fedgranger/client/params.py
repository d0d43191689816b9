"""`LocalModel`: what a client knows about its own subsystem. Of it only A_mm leaves the client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_discrete_lyapunov

from fedgranger.data.truth import Truth
from fedgranger.disk import write_text
from fedgranger.errors import ConfigError, ModelError
from fedgranger.linalg.psd import is_positive_definite, symmetrise
from fedgranger.linalg.spectral import spectral_radius
from fedgranger.text import counted


class LocalModel(eqx.Module):
    r"""Linear state-space model of one client, ignoring the others (Section 3 of the paper).

    $$h^{t+1} = A h^t + w, \qquad (y^t - \text{centre}) / \text{scale} = C h^t + v$$

    with \(w \sim (0, Q)\), \(v \sim (0, R)\). Q must be positive definite; R too, or exactly zero
    (the sensors are noiseless combinations of the states).

    Attributes:
        self_transition: A_mm.
        observation_matrix: C_mm, full column rank.
        process_cov: Q.
        measurement_cov: R, in scaled units.
        centre: subtracted from the measurements.
        scale: the measurements are divided by it.
        method: how the model was obtained.
        notes: sentences on repairs made while identifying it; empty when there were none.
        noise_share: share of the states' error that identification kept, the rest not being white.
        declared_cov: covariance of the states as the site declares it, for the noise of private
            runs; None: what A and Q imply, which does not know of other clients' influence.
    """

    self_transition: Float[np.ndarray, "state_dim state_dim"]
    observation_matrix: Float[np.ndarray, "obs_dim state_dim"]
    process_cov: Float[np.ndarray, "state_dim state_dim"]
    measurement_cov: Float[np.ndarray, "obs_dim obs_dim"]
    centre: Float[np.ndarray, " obs_dim"]
    scale: Float[np.ndarray, " obs_dim"]
    method: str = eqx.field(static=True, default="given")
    notes: tuple[str, ...] = eqx.field(static=True, default=())
    noise_share: float = eqx.field(static=True, default=1.0)
    declared_cov: Float[np.ndarray, "state_dim state_dim"] | None = None

    def __check_init__(self) -> None:
        """Refuse shapes and covariances that no filter can use."""
        p, d = self.state_dim, self.num_sensors
        shapes = {
            "self_transition": (p, p),
            "observation_matrix": (d, p),
            "process_cov": (p, p),
            "measurement_cov": (d, d),
            "centre": (d,),
            "scale": (d,),
        }
        for name, shape in shapes.items():
            value = getattr(self, name)
            if value.shape != shape:
                raise ModelError(f"{name} has shape {value.shape}, {shape} is needed")
            if not np.isfinite(value).all():
                raise ModelError(f"{name} has entries that are not finite; give numbers only")
        if np.linalg.matrix_rank(self.observation_matrix) < p:
            raise ModelError(
                f"observation_matrix has rank below {p}: some state is not seen by any sensor; "
                "use fewer states"
            )
        for name in ("process_cov", "measurement_cov"):
            value = getattr(self, name)
            if name == "measurement_cov" and not value.any():
                continue
            if not _is_covariance(value):
                raise ModelError(f"{name} is not symmetric positive definite")
        if not (self.scale > 0).all():
            raise ModelError("scale must be positive for every sensor")
        if self.declared_cov is not None:
            fits = self.declared_cov.shape == (p, p) and np.isfinite(self.declared_cov).all()
            if not fits or not _is_covariance(self.declared_cov):
                raise ModelError(f"state_cov is not a covariance of {p} states")

    @property
    def state_dim(self) -> int:
        """Number of states p_m."""
        return self.observation_matrix.shape[1]

    @property
    def num_sensors(self) -> int:
        """Number of sensors d_m."""
        return self.observation_matrix.shape[0]

    @property
    def is_declared(self) -> bool:
        """Whether somebody gave the model instead of identifying it; it is then never changed."""
        return self.method in ("given", "known")

    @property
    def matrices(self) -> tuple[np.ndarray, ...]:
        """All numbers of the model."""
        declared = () if self.declared_cov is None else (self.declared_cov,)
        return (*(getattr(self, name) for name in (*_FIELDS, "centre", "scale")), *declared)

    @property
    def state_cov(self) -> np.ndarray:
        """Covariance of the states: declared, or the solution of P = A P Aᵀ + Q.

        Raises:
            ModelError: the model is not stable, so its states have none.
        """
        if self.declared_cov is not None:
            return self.declared_cov
        if spectral_radius(self.self_transition) >= 1:
            raise ModelError(
                "self_transition has a root outside the unit circle, so its states have no size "
                "that noise could be measured by; declare a stable one, or state_cov"
            )
        return symmetrise(solve_discrete_lyapunov(self.self_transition, self.process_cov))

    @property
    def augmentation_shape(self) -> tuple[int, int]:
        """Shape of θ: a row per state, a column per sensor."""
        return self.state_dim, self.num_sensors

    @property
    def predicted_observation(self) -> np.ndarray:
        """C A: the next measurement that the local model expects of a state."""
        return self.observation_matrix @ self.self_transition

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Return measurements in the model's units."""
        return (values - self.centre) / self.scale


def check_model(name: str, model: LocalModel, num_sensors: int) -> None:
    """Refuse a given model that is not for the client's sensors."""
    if model.num_sensors != num_sensors:
        raise ConfigError(
            f"client '{name}': the given local model is for "
            f"{counted(model.num_sensors, 'sensor')} but "
            f"the data have {num_sensors}"
        )


def _is_covariance(matrix: np.ndarray) -> bool:
    """Symmetric positive definite, whatever units the rows are in."""
    variances = np.diag(matrix)
    if not (variances > 0).all():
        return False
    correlation = matrix / np.sqrt(np.outer(variances, variances))
    return bool(np.allclose(correlation, correlation.T)) and is_positive_definite(correlation)


_FIELDS = ("self_transition", "observation_matrix", "process_cov", "measurement_cov")


def known_models(truth: Truth, noise_factor: float = 1.0) -> dict[str, LocalModel]:
    """Return the local models of a simulated system, for studies with C, Q and R known.

    R is declared as `noise_factor` times the true one.
    """
    if truth.process_cov is None:
        raise ModelError("this truth has no noise covariances; use the one simulate() returned")
    models, whole = {}, solve_discrete_lyapunov(truth.transition, truth.process_cov)
    for name in truth.clients:
        C, rows = truth.observation_matrices[name], truth.rows(name)
        models[name] = LocalModel(
            truth.transition[rows, rows],
            C,
            truth.process_cov[rows, rows],
            noise_factor * truth.measurement_covs[name],
            np.zeros(len(C)),
            np.ones(len(C)),
            "known",
            declared_cov=symmetrise(whole[rows, rows]),
        )
    return models


def write_models(path: Path, models: Mapping[str, LocalModel]) -> None:
    """Write local models as JSON: client -> matrices (`centre` and `scale` included)."""
    table = {
        name: {key: getattr(model, key).tolist() for key in (*_FIELDS, "centre", "scale")}
        | ({} if model.declared_cov is None else {"state_cov": model.declared_cov.tolist()})
        for name, model in models.items()
    }
    write_text(path, json.dumps(table, indent=1))


def read_models(path: Path) -> dict[str, LocalModel]:
    """Read what `write_models` wrote; `centre`, `scale` and `state_cov` may be left out.

    Raises:
        ModelError: names the file, the client and the field at fault.
    """
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read as JSON ({error}); see docs/data.md") from None
    if not isinstance(table, dict):
        raise ModelError(f"{path}: must map each client to its matrices; see docs/data.md")
    return {str(name): _read_model(path, str(name), entry) for name, entry in table.items()}


def _read_model(path: Path, name: str, entry: Any) -> LocalModel:
    where = f"{path}, client '{name}'"
    if not isinstance(entry, dict):
        raise ModelError(f"{where}: must be a table with {', '.join(_FIELDS)}")
    for key in _FIELDS:
        if key not in entry:
            raise ModelError(f"{where}: '{key}' is missing; give {', '.join(_FIELDS)}")
    try:
        A, C, Q, R = (np.atleast_2d(np.array(entry[key], dtype=np.float64)) for key in _FIELDS)
        centre = np.array(entry.get("centre", [0.0] * len(C)), dtype=np.float64)
        scale = np.array(entry.get("scale", [1.0] * len(C)), dtype=np.float64)
        cov = entry.get("state_cov")
        cov = None if cov is None else np.atleast_2d(np.array(cov, dtype=np.float64))
        return LocalModel(A, C, Q, R, centre, scale, declared_cov=cov)
    except ModelError as error:
        raise ModelError(f"{where}: {error}") from None
    except (TypeError, ValueError) as error:
        raise ModelError(f"{where}: not a numeric matrix ({error})") from None
