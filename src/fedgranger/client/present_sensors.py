r"""Least-squares states of rows in which some sensors are missing, from those that are there.

With o the sensors of a row that are present,

$$s_t = (C_o^\top R_o^{-1} C_o)^{-1} C_o^\top R_o^{-1} y_o, \qquad
  E_t = (C_o^\top R_o^{-1} C_o)^{-1}.$$

The missing ones m are filled with what the model expects of them given the present ones, so that
the weights of a complete row give this \(s_t\) of the filled row: with \(\Lambda = R^{-1}\),
\(V = \Lambda C\) and \(J = C^\top V\),

$$G = \Lambda_{mm}^{-1} V_m, \quad E_t^{-1} = J - V_m^\top G, \quad
  E_t^{-1} s_t = (V_o^\top - G^\top \Lambda_{mo})\, y_o, \quad
  y_m = G s_t - \Lambda_{mm}^{-1} \Lambda_{mo}\, y_o$$

which costs what the few missing sensors cost, not what all do. A complete row is not touched. A row
stays missing when its sensors leave less than `LEAST_SHARE` of what all sensors say of some
direction of the states (the smallest root of \(E_t^{-1} x = \lambda J x\)), so always with fewer
sensors than states.

Moments of the states hold the mean of \(E_t\) over the rows instead of E. Taking that mean out is
exact when it does not depend on the states which sensors are missing. Where only a share c of E is
white (`noise_limit`), the same share of every \(E_t\) is taken to be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.linalg

from fedgranger.client.params import LocalModel
from fedgranger.client.state_noise import state_readout
from fedgranger.data.client_data import ClientData
from fedgranger.linalg.psd import symmetrise

LEAST_SHARE = 0.1
"""Of what all sensors say of any direction of the states, a row must have at least this much left:
its error variance is then at most ten times the usual one."""


class PartialRows(NamedTuple):
    """Rows with missing sensors, filled.

    Attributes:
        values: of all rows, with the missing cells of `is_filled` ones filled.
        is_filled: per row: sensors were missing and the others gave the state.
        pattern: per row: which of `error_covs` it has; -1 for rows that are not filled.
        error_covs: (pattern, p, p), one for every distinct set of sensors.
    """

    values: np.ndarray
    is_filled: np.ndarray
    pattern: np.ndarray
    error_covs: np.ndarray


class FilledRows(NamedTuple):
    """A client's data with the rows filled whose sensors suffice.

    Attributes:
        data: every row is complete or missing as a whole.
        error_cov: mean error covariance of its states over the rows that are there.
        pattern: per row: which of `error_covs` it has; -1 for complete and for missing rows.
        error_covs: of every distinct set of sensors.
        num_filled: rows that were saved.
        num_lost: rows with some sensors, too few to tell the state.
    """

    data: ClientData
    error_cov: np.ndarray
    pattern: np.ndarray
    error_covs: np.ndarray
    num_filled: int
    num_lost: int

    @property
    def note(self) -> str:
        """A sentence for people; empty when every row is complete or missing as a whole."""
        if not self.num_filled + self.num_lost:
            return ""
        rest = f"; {self.num_lost} more have too few and stay missing" if self.num_lost else ""
        return (
            f"in {self.num_filled} of {len(self.pattern)} rows some sensors are missing and the "
            f"others give the state{rest}"
        )


def fill_partial(
    values: np.ndarray, observed: np.ndarray, C: np.ndarray, R: np.ndarray
) -> PartialRows:
    """Fill rows of scaled measurements; with R = 0 by plain least squares and without error."""
    pattern, covs = np.full(len(values), -1), []
    filled, unknowns = values.copy(), _Unknowns.of(C, R)
    for rows, absent in missing_patterns(observed):
        found = unknowns.weights(absent)
        if found is not None:
            filled[np.ix_(rows, absent)] = values[np.ix_(rows, ~absent)] @ found[0].T
            pattern[rows] = len(covs)
            covs.append(found[1])
    shape = (-1, C.shape[1], C.shape[1])
    return PartialRows(filled, pattern >= 0, pattern, np.array(covs).reshape(shape))


def missing_patterns(observed: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows that lack the same sensors, but not all, and which sensors those are."""
    count = np.add.reduce(observed, axis=1)
    rows = np.flatnonzero((count > 0) & (count < observed.shape[1]))
    if not len(rows):
        return
    kinds, which = np.unique(np.packbits(observed[rows], axis=1), axis=0, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel(), minlength=len(kinds)))
    for part in np.split(order, ends[:-1]):
        yield rows[part], ~observed[rows[part[0]]]


class _Unknowns(NamedTuple):
    """Normal equations of a row's state and its missing sensors; see the module's equations."""

    precision: np.ndarray
    weighted: np.ndarray
    information: np.ndarray
    whiten: np.ndarray
    has_error: bool

    @classmethod
    def of(cls, C: np.ndarray, R: np.ndarray) -> _Unknowns:
        has_error = bool(R.any())
        scale = np.sqrt(np.diag(R)) if has_error else np.ones(len(C))
        unit = R / np.outer(scale, scale) if has_error else np.eye(len(C))
        precision = symmetrise(np.linalg.inv(unit)) / np.outer(scale, scale)
        V = precision @ C
        J = symmetrise(C.T @ V)
        root = np.linalg.cholesky(J)
        whiten = scipy.linalg.solve_triangular(root, np.eye(len(J)), lower=True)
        return cls(precision, V, J, whiten, has_error)

    def weights(self, absent: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """From the present sensors to the missing ones, and E_t; None where they do not suffice."""
        own, V_m = self.precision[np.ix_(absent, absent)], self.weighted[absent]
        beside = self.precision[np.ix_(absent, ~absent)]
        solved = np.linalg.solve(own, np.concatenate([V_m, beside], axis=1))
        G, shift = solved[:, : V_m.shape[1]], solved[:, V_m.shape[1] :]
        left = symmetrise(self.information - V_m.T @ G)
        share = float(np.linalg.eigvalsh(self.whiten @ left @ self.whiten.T)[0])
        if share < LEAST_SHARE:
            return None
        state = np.linalg.solve(left, self.weighted[~absent].T - G.T @ beside)
        cov = symmetrise(np.linalg.inv(left)) if self.has_error else np.zeros_like(left)
        return G @ state - shift, cov


class SensorModel(NamedTuple):
    """How a client's sensors show its states.

    Attributes:
        observation_matrix: C.
        measurement_cov: all of R, white or not.
        centre: subtracted from the measurements.
        scale: they are divided by it.
        error_cov: of the state of a complete row, its white part.
        noise_share: c, the white part of R in the directions of the states.
    """

    observation_matrix: np.ndarray
    measurement_cov: np.ndarray
    centre: np.ndarray
    scale: np.ndarray
    error_cov: np.ndarray
    noise_share: float = 1.0


def sensor_model(model: LocalModel) -> SensorModel:
    r"""The sensors of a local model; its R was limited to the white share c, here it is whole.

    $$R = R_c + (1/c - 1)\, C E_c C^\top$$
    """
    C, R, share = model.observation_matrix, model.measurement_cov, model.noise_share
    E = state_readout(C, R).error_cov
    if share < 1 and R.any():
        R = symmetrise(R + (1 / share - 1) * C @ E @ C.T)
    return SensorModel(C, R, model.centre, model.scale, E, share)


def fill_rows(client: ClientData, sensors: SensorModel) -> FilledRows:
    """Fill a client's rows; where none lacks single sensors the data are the same object."""
    E, complete = sensors.error_cov, client.row_observed
    num_partial = int((client.observed.any(axis=1) & ~complete).sum())
    if not num_partial:
        none = np.full(len(complete), -1)
        return FilledRows(client, E, none, np.zeros((0, *E.shape)), 0, 0)
    centre, scale = sensors.centre, sensors.scale
    y = np.where(client.observed, (client.values - centre) / scale, 0.0)
    found = fill_partial(y, client.observed, sensors.observation_matrix, sensors.measurement_cov)
    covs = sensors.noise_share * found.error_covs
    there = complete | found.is_filled
    cells = found.is_filled[:, None] & ~client.observed
    values = np.where(cells, centre + scale * found.values, client.values)
    observed = np.repeat(there[:, None], client.num_sensors, axis=1)
    num_filled = int(found.is_filled.sum())
    return FilledRows(
        replace(client, values=values, observed=observed),
        mean_error(E, int(complete.sum()), found.pattern, covs),
        found.pattern,
        covs,
        num_filled,
        num_partial - num_filled,
    )


def mean_error(
    error_cov: np.ndarray, num_complete: int, pattern: np.ndarray, error_covs: np.ndarray
) -> np.ndarray:
    """Mean of E_t over complete rows, which have E, and filled ones."""
    counts = np.bincount(pattern[pattern >= 0], minlength=len(error_covs))
    total = num_complete * error_cov + np.tensordot(counts.astype(np.float64), error_covs, 1)
    return symmetrise(total / max(num_complete + counts.sum(), 1))
