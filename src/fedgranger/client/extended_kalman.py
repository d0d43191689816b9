r"""Extended Kalman filter of one client: nonlinear transition f and observation g.

$$h^t = f(h^{t-1}) + w^t, \qquad y^t = g(h^t) + v^t, \qquad w \sim (0, Q), \; v \sim (0, R)$$

(the paper's appendix on nonlinear models). Both functions are replaced by their tangents, taken by
automatic differentiation, where the filter stands:

$$h^{t|t-1} = f(h^{t-1}), \quad P^{t|t-1} = F P^{t-1} F^\top + Q, \qquad
  K = P^{t|t-1} J_g^\top (J_g P^{t|t-1} J_g^\top + R)^{-1}, \quad
  h^t = h^{t|t-1} + K (y^t - g(h^{t|t-1}))$$

with the posterior in Joseph's form, \(P^t = (I - KJ_g) P^{t|t-1} (I - KJ_g)^\top + K R K^\top\),
which stays positive semidefinite. With linear f and g this is the Kalman filter. Q may depend on
the state: a Gaussian process knows less about its transition far from its data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Bool, Float

from fedgranger.errors import DataError, ModelError
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.text import kind_of


def _for_jax(value: Any) -> Any:
    """NumPy arrays become JAX arrays; functions and what JAX knows already stay."""
    if not isinstance(value, np.ndarray):
        return value
    with jax.enable_x64(True):
        return jax_array(value.astype(np.float64))


def shape_of(name: str, function: Callable, state: Any) -> tuple[int, ...]:
    """Shape of what a function gives for a state.

    Raises:
        ModelError: JAX cannot trace it, so that it has no derivatives.
    """
    try:
        made = jax.eval_shape(function, state)
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError) as error:
        raise ModelError(
            f"JAX cannot differentiate the function {name} ({type(error).__name__}): write the "
            f"{name} with jax.numpy instead of numpy or math, and with jnp.where instead of 'if'"
        ) from None
    if not isinstance(made, jax.ShapeDtypeStruct):
        raise ModelError(f"{name} gives {kind_of(made)}; one array of jax.numpy is needed")
    return made.shape


class NonlinearModel(eqx.Module):
    """Nonlinear state-space model of one client, in the units in which its measurements are given.

    Attributes:
        transition: f, from states (p,) to states (p,).
        observation: g, from states (p,) to measurements (d,).
        process_cov: Q, or a function of the state (p,) that gives it.
        measurement_cov: R, positive definite.
        initial_mean: mean of the first state of a segment, before its measurement.
        initial_cov: its covariance.
    """

    transition: Callable
    observation: Callable
    process_cov: Float[Array, "state_dim state_dim"] | Callable = eqx.field(converter=_for_jax)
    measurement_cov: Float[Array, "obs_dim obs_dim"] = eqx.field(converter=_for_jax)
    initial_mean: Float[Array, " state_dim"] = eqx.field(converter=_for_jax)
    initial_cov: Float[Array, "state_dim state_dim"] = eqx.field(converter=_for_jax)

    def __check_init__(self) -> None:
        """Refuse functions and covariances whose sizes do not fit."""
        p, d = self.initial_mean.shape[-1], self.measurement_cov.shape[-1]
        state = jax.ShapeDtypeStruct((p,), self.initial_mean.dtype)
        with jax.enable_x64(True):
            made = {
                "transition": (shape_of("transition", self.transition, state), (p,)),
                "observation": (shape_of("observation", self.observation, state), (d,)),
                "process_cov": (
                    shape_of("process_cov", self.process_cov_at, state)[-2:],
                    (p, p),
                ),
                "initial_cov": (self.initial_cov.shape[-2:], (p, p)),
                "measurement_cov": (self.measurement_cov.shape[-2:], (d, d)),
            }
        for name, (found, needed) in made.items():
            if found != needed:
                raise ModelError(
                    f"{name} gives shape {found}; with {p} states and {d} sensors {needed} "
                    "is needed"
                )

    def process_cov_at(self, state: Float[Array, " state_dim"]) -> Float[Array, "_ _"]:
        """Q at a state."""
        return self.process_cov(state) if callable(self.process_cov) else self.process_cov


class ExtendedStates(NamedTuple):
    """What the filter knows at every time step.

    Attributes:
        filtered_states: h^t, after the measurement.
        filtered_covs: P^t.
        predicted_states: h^{t|t-1}, before it; the initial mean where a segment begins.
        predicted_covs: P^{t|t-1}.
        transition_jacobians: F^t, of f at h^t: from step t to t + 1.
        observation_jacobians: J_g, of g at h^{t|t-1}; all rows, also those of missing sensors.
    """

    filtered_states: Float[Array, "time state_dim"]
    filtered_covs: Float[Array, "time state_dim state_dim"]
    predicted_states: Float[Array, "time state_dim"]
    predicted_covs: Float[Array, "time state_dim state_dim"]
    transition_jacobians: Float[Array, "time state_dim state_dim"]
    observation_jacobians: Float[Array, "time obs_dim state_dim"]


def filter_nonlinear(
    model: NonlinearModel,
    measurements: Float[Array | np.ndarray, "time obs_dim"],
    is_observed: Bool[Array | np.ndarray, "time obs_dim"],
    starts: Bool[Array | np.ndarray, " time"],
) -> ExtendedStates:
    """Filter a record.

    A sensor that is missing at a step is left out of that step's measurement; a step without any
    is predicted only. Values where `is_observed` is false are never used and may be NaN. Where
    `starts` is true, and at the first step, the filter begins from the initial mean and covariance.

    Args:
        model: f, g, Q, R and the initial law.
        measurements: y, in the units of `model.observation`.
        is_observed: which of them there are.
        starts: where segments begin.

    Returns:
        States, covariances and Jacobians of all steps, in float64.

    Raises:
        DataError: the measurements or the model are in float32; shapes do not fit; a measurement
            that is marked as observed is not finite.
    """
    arrays = (measurements, is_observed, starts)
    measurements, is_observed, starts = (
        value if isinstance(value, Array) else np.asarray(value) for value in arrays
    )
    for name, dtype in (
        ("measurements", measurements.dtype),
        ("the model", model.initial_cov.dtype),
    ):
        if dtype != np.float64:
            raise DataError(
                f"{name}: {dtype}, float64 is needed; convert with .astype('float64') before JAX "
                "takes them, or call jax.config.update('jax_enable_x64', True)"
            )
    _check_record(measurements, is_observed, starts, model.measurement_cov.shape[-1])
    with jax.enable_x64(True):
        return _filter(model, *map(jnp.asarray, (measurements, is_observed, starts)))


def _check_record(
    measurements: Array | np.ndarray,
    is_observed: Array | np.ndarray,
    starts: Array | np.ndarray,
    num_sensors: int,
) -> None:
    """Refuse arrays that do not belong together."""
    if measurements.ndim != 2 or measurements.shape[1] != num_sensors:
        raise DataError(
            f"measurements have shape {measurements.shape}; the model has {num_sensors} sensors, "
            f"so (time steps, {num_sensors}) is needed"
        )
    needed = {"is_observed": (is_observed, measurements.shape)}
    needed["starts"] = (starts, measurements.shape[:1])
    for name, (value, shape) in needed.items():
        if value.shape != shape or value.dtype != np.bool_:
            raise DataError(
                f"{name} is {value.dtype} of shape {value.shape}; true or false is needed for each "
                f"of the measurements' {'time steps' if name == 'starts' else 'values'}, {shape}"
            )
    if isinstance(measurements, Tracer) or isinstance(is_observed, Tracer):
        return  # values are not known while a gradient is traced
    bad = np.argwhere(np.asarray(is_observed) & ~np.isfinite(np.asarray(measurements)))
    if len(bad):
        row, sensor = bad[0].tolist()
        raise DataError(
            f"measurements are {np.asarray(measurements)[row, sensor]} at time step {row}, sensor "
            f"{sensor}, where is_observed is true; set is_observed to false where there is no value"
        )


@eqx.filter_jit
def _filter(
    model: NonlinearModel, measurements: Array, is_observed: Array, starts: Array
) -> ExtendedStates:
    """Scan over the steps; f and its Jacobian are taken once per step, for the next one."""

    def advance(
        prediction: tuple[Array, Array], inputs: tuple[Array, Array, Array]
    ) -> tuple[tuple[Array, Array], ExtendedStates]:
        y, observed, is_start = inputs
        predicted = jnp.where(is_start, model.initial_mean, prediction[0])
        predicted_cov = jnp.where(is_start, model.initial_cov, prediction[1])
        J_g, expected = _tangent(model.observation, predicted)
        filtered, filtered_cov = _update(
            predicted, predicted_cov, J_g, jnp.where(observed, y - expected, 0.0), observed, R
        )
        F, onwards = _tangent(model.transition, filtered)
        onwards_cov = F @ filtered_cov @ F.T + model.process_cov_at(filtered)
        known = ExtendedStates(filtered, filtered_cov, predicted, predicted_cov, F, J_g)
        return (onwards, _symmetric(onwards_cov)), known

    R = model.measurement_cov
    first = (model.initial_mean, model.initial_cov)
    return lax.scan(advance, first, (measurements, is_observed, starts))[1]


def _tangent(function: Callable, state: Array) -> tuple[Array, Array]:
    """Jacobian and value of a function at a state."""

    def twice(state: Array) -> tuple[Array, Array]:
        value = function(state)
        return value, value

    return jax.jacfwd(twice, has_aux=True)(state)


def _update(
    predicted: Array, predicted_cov: Array, J_g: Array, surprise: Array, observed: Array, R: Array
) -> tuple[Array, Array]:
    """Bring in the sensors that were observed; a missing one has a zero row in J_g and K.

    Its variance in the innovation covariance is set to 1 and it is uncorrelated with the others,
    which is the same as leaving it out.
    """
    kept = observed.astype(R.dtype)
    J = kept[:, None] * J_g
    R = R * jnp.outer(kept, kept)
    S = J @ predicted_cov @ J.T + R + jnp.diag(1 - kept)
    K = cho_solve((jnp.linalg.cholesky(S), True), J @ predicted_cov).T
    left = jnp.eye(len(predicted), dtype=R.dtype) - K @ J
    cov = left @ predicted_cov @ left.T + K @ R @ K.T
    return predicted + K @ surprise, _symmetric(cov)


def _symmetric(matrix: Array) -> Array:
    return 0.5 * (matrix + matrix.T)
