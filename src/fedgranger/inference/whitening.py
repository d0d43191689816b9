r"""What a client's own past leaves of its states, scaled to unit covariance, and without long rows.

Rows longer than `BOUND` of normal ones would be are shortened to that length: in recordings with
bursts one event of each client would otherwise make up most of a sum over time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from fedgranger.inference.shifts import StateTable, large_zeros
from fedgranger.linalg.blocks import client_slices
from fedgranger.linalg.psd import triangle
from fedgranger.linalg.unbroken_steps import rows_at, span, unbroken_steps

BOUND = 0.99
BOUNDING_STEPS = 5
STEPS_AT_ONCE = 4096
"""Time steps whose lags are held at once."""


class Whitened(NamedTuple):
    """Own residuals of all clients on their own clocks, zero where they are not known.

    In memory a state's values follow each other in time: few states then make long sums.

    Attributes:
        bounded: `values` with long rows shortened.
        covs: covariance of each client's residuals before they were scaled.
    """

    values: Float[np.ndarray, "time state"]
    bounded: Float[np.ndarray, "time state"]
    known: Bool[np.ndarray, "time client"]
    covs: tuple[np.ndarray, ...]


def whiten(table: StateTable) -> Whitened:
    """Take out of every client's states what its own past predicts, and scale what is left."""
    source, own_lags = table.source, np.array(table.source.own_lags)
    shape = (source.total_dim, len(table.starts))
    values, short = large_zeros(shape).T, large_zeros(shape).T
    none = np.zeros(len(source.dims), dtype=np.int64)
    known = unbroken_steps(none, table.observed, table.starts) > own_lags
    covs = []
    for m, own in enumerate(client_slices(source.dims)):
        states = np.asfortranarray(table.states[:, own])
        rows = np.flatnonzero(known[:, m])
        if len(rows) <= 2 * (1 + own_lags[m] * states.shape[1]):
            known[:, m] = False
            rows = rows[:0]
        error = _own_residuals(states, rows, int(own_lags[m]))
        covs.append(error.T @ error / max(len(rows), 1))
        error = unit_covariance(error)
        values[span(rows), own] = error
        short[span(rows), own] = _shortened(error)
    return Whitened(values, short, known, tuple(covs))


def bounded(part: Float[np.ndarray, "time client_state"]) -> Float[np.ndarray, "time client_state"]:
    """One client's rows, scaled to unit covariance with long ones shortened."""
    return _shortened(unit_covariance(part))


def _own_residuals(
    states: Float[np.ndarray, "time client_state"], rows: Int[np.ndarray, " row"], lags: int
) -> Float[np.ndarray, "row client_state"]:
    """What least squares on the own lags leave of these rows."""

    def window(t: Int[np.ndarray, " _"]) -> Float[np.ndarray, "_ _"]:
        return np.hstack(
            [np.ones((len(t), 1)), *(rows_at(states, t - k) for k in range(1, lags + 1))]
        )

    p = states.shape[1]
    q = 1 + lags * p
    R, parts = np.zeros((0, q + p)), np.array_split(rows, max(-(-len(rows) // STEPS_AT_ONCE), 1))
    for t in parts:
        R = triangle(np.vstack([R, np.hstack([window(t), rows_at(states, t)])]))
    size = np.sqrt((R[:, :q] ** 2).sum(axis=0))
    size[size == 0] = 1.0
    b = np.linalg.lstsq(R[:, :q] / size, R[:, q:], rcond=None)[0] / size[:, None]
    left = [rows_at(states, t).T - b.T @ window(t).T for t in parts]
    return np.concatenate(left, axis=1).T


def unit_covariance(
    part: Float[np.ndarray, "row client_state"],
) -> Float[np.ndarray, "row client_state"]:
    """Rotate and scale the columns to unit covariance; their means are taken to be zero."""
    variances, basis = np.linalg.eigh(part.T @ part / max(len(part), 1))
    floor = max(1e-12 * variances[-1], np.finfo(np.float64).tiny)
    return ((basis / np.sqrt(np.maximum(variances, floor))).T @ part.T).T


def _shortened(
    part: Float[np.ndarray, "row client_state"],
) -> Float[np.ndarray, "row client_state"]:
    """Shorten long rows and scale to unit covariance, again and again.

    One row can make up most of a direction's scatter; only when it is shortened others show.
    """
    longest = np.sqrt(stats.chi2.ppf(BOUND, part.shape[1]))
    for _ in range(BOUNDING_STEPS):
        length = np.sqrt(np.einsum("ti,ti->t", part, part))
        part = unit_covariance(part * (longest / np.maximum(length, longest))[:, None])
    return part
