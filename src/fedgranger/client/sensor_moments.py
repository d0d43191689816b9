"""Mean, covariance and lag-one covariance of a client's measurements, in bounded memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgranger.data.panel import ClientData
from fedgranger.errors import DataError

CHUNK_STEPS = 65_536


class MeasurementMoments(NamedTuple):
    """Moments of the scaled, centred measurements over complete rows and complete pairs.

    Attributes:
        centre: mean per sensor, in raw units.
        scale: divisor per sensor, in raw units.
        cov: E[y yᵀ] over complete rows.
        lag_cov: E[y⁺ yᵀ] over pairs of consecutive complete rows.
        cov_before: E[y yᵀ] over the first rows of those pairs.
        cov_after: E[y⁺ y⁺ᵀ] over the second rows.
        num_rows: complete rows.
        num_pairs: complete pairs.
    """

    centre: np.ndarray
    scale: np.ndarray
    cov: np.ndarray
    lag_cov: np.ndarray
    cov_before: np.ndarray
    cov_after: np.ndarray
    num_rows: int
    num_pairs: int


def _fewer_missing(client: ClientData) -> str:
    """What to do about too few complete rows: which sensors lack samples, or that rows lack."""
    lacking = np.add.reduce(~client.observed, axis=0)
    if not lacking.any():
        return "give more rows or fewer sensors"
    order = np.argsort(-lacking, kind="stable")[:3]
    worst = ", ".join(f"'{client.sensors[k]}' {lacking[k]}" for k in order if lacking[k])
    return (
        f"leave out the sensors that lack most samples ({worst} of {len(client.observed)}; "
        "--leave-out), or gather rows (--resample), which fills single holes"
    )


def measurement_moments(
    client: ClientData, segment_starts: np.ndarray, *, standardise: bool
) -> MeasurementMoments:
    """Accumulate the moments chunk by chunk.

    Raises:
        DataError: too few complete rows to estimate a covariance.
    """
    values, complete = client.values, client.row_observed
    d, num_rows = client.num_sensors, int(complete.sum())
    if num_rows <= d + 1:
        raise DataError(
            f"client '{client.name}': {num_rows} complete rows for {d} sensors; "
            f"at least {d + 2} are needed, so {_fewer_missing(client)}"
        )
    chunks = [slice(k, k + CHUNK_STEPS) for k in range(0, len(values), CHUNK_STEPS)]
    centre = np.sum([values[c][complete[c]].sum(axis=0) for c in chunks], axis=0) / num_rows
    squares = sum(((values[c][complete[c]] - centre) ** 2).sum(axis=0) for c in chunks)
    scale = np.sqrt(squares / num_rows) if standardise else np.ones(d)
    first_row = values[np.argmax(complete)]
    # Compared exactly: the rounded mean of a constant differs from it, so its variance is not zero.
    varies = np.any([(values[c][complete[c]] != first_row).any(axis=0) for c in chunks], axis=0)
    if not varies.all():
        sensor = client.sensors[int(np.argmin(varies))]
        raise DataError(
            f"client '{client.name}': sensor '{sensor}' is constant over the complete rows; "
            "remove it or read the data with constant='drop'"
        )
    if not np.isfinite(1 / scale**2).all() or not np.isfinite(squares).all():
        sensor = client.sensors[int(np.argmin(np.isfinite(squares) & np.isfinite(1 / scale**2)))]
        raise DataError(
            f"client '{client.name}': the values of sensor '{sensor}' are too large or too small "
            "for their squares to be computed; change its unit"
        )
    follows = complete[1:] & complete[:-1] & ~segment_starts[1:]
    num_pairs = int(follows.sum())
    if num_pairs <= d + 1:
        raise DataError(
            f"client '{client.name}': only {num_pairs} pairs of consecutive complete rows for "
            f"{d} sensors; at least {d + 2} are needed, so {_fewer_missing(client)}"
        )
    cov, lag, before, after = (np.zeros((d, d)) for _ in range(4))
    for k in range(0, len(values), CHUNK_STEPS):
        rows = slice(k, k + CHUNK_STEPS + 1)  # one row more: the pair across the chunk's end
        y = np.where(complete[rows, None], (values[rows] - centre) / scale, 0.0)
        first = y[:-1] if len(y) > CHUNK_STEPS else y
        cov += first.T @ first
        pair = follows[rows.start : rows.start + len(y) - 1]
        now, then = y[:-1][pair], y[1:][pair]
        lag += then.T @ now
        before += now.T @ now
        after += then.T @ then
    return MeasurementMoments(
        centre,
        scale,
        cov / num_rows,
        lag / num_pairs,
        before / num_pairs,
        after / num_pairs,
        num_rows,
        num_pairs,
    )
