"""Mean, covariance and lag-one covariance of a client's measurements, in bounded memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgranger.client.incomplete_rows import own_means, row_moments, rows_together
from fedgranger.data.client_data import ClientData
from fedgranger.errors import DataError

CHUNK_STEPS = 65_536
PAIRED = ("lag_cov", "cov_before", "cov_after", "num_pairs")


class MeasurementMoments(NamedTuple):
    """Moments of the scaled, centred measurements over complete rows and complete pairs.

    Where rows lack single sensors, mean and covariance are of all rows (`incomplete_rows`), the
    number of rows is the mean over pairs of sensors, and what is over pairs of rows is added when
    the states are known (`with_pairs`).

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


def _check_spread(
    client: ClientData, varies: np.ndarray, squares: np.ndarray, scale: np.ndarray
) -> None:
    """Refuse sensors that stand still, or whose numbers are too large or too small to square."""
    if not varies.all():
        sensor = client.sensors[int(np.argmin(varies))]
        raise DataError(
            f"client '{client.name}': sensor '{sensor}' is constant over the rows that are used; "
            "remove it or read the data with constant='drop'"
        )
    is_fine = np.isfinite(squares) & np.isfinite(1 / scale**2)
    if not is_fine.all():
        sensor = client.sensors[int(np.argmin(is_fine))]
        raise DataError(
            f"client '{client.name}': the values of sensor '{sensor}' are too large or too small "
            "for their squares to be computed; change its unit"
        )


def _from_incomplete(client: ClientData, *, standardise: bool) -> MeasurementMoments:
    """The moments where rows lack single sensors."""
    centre, squares = own_means(client)
    high = np.max(np.where(client.observed, client.values, -np.inf), axis=0)
    low = np.min(np.where(client.observed, client.values, np.inf), axis=0)
    scale = np.sqrt(squares) if standardise else np.ones(client.num_sensors)
    _check_spread(client, low < high, squares, np.where(low < high, scale, 1.0))
    counts, needed = rows_together(client.observed), client.num_sensors + 2
    if counts.min() < needed:
        one, other = np.unravel_index(int(np.argmin(counts)), counts.shape)
        raise DataError(
            f"client '{client.name}': sensors '{client.sensors[one]}' and "
            f"'{client.sensors[other]}' are there together in {int(counts.min())} rows; "
            f"at least {needed} are needed, so {_fewer_missing(client)}"
        )
    found = row_moments(client, centre, np.sqrt(squares))
    scale = np.sqrt(np.diag(found.cov)) if standardise else np.ones(client.num_sensors)
    cov = found.cov / np.outer(scale, scale)
    none = np.zeros_like(cov)
    return MeasurementMoments(found.mean, scale, cov, none, none, none, int(counts.mean()), 0)


def with_pairs(
    moments: MeasurementMoments, filled: ClientData, segment_starts: np.ndarray
) -> MeasurementMoments:
    """Add what is over pairs of rows, from rows that are filled by the sensors that are there.

    Raises:
        DataError: too few pairs.
    """
    sums = _sums(filled, segment_starts, moments.centre, moments.scale)
    return moments._replace(**{name: getattr(sums, name) for name in PAIRED})


def measurement_moments(
    client: ClientData, segment_starts: np.ndarray, *, standardise: bool
) -> MeasurementMoments:
    """Accumulate the moments chunk by chunk.

    Raises:
        DataError: too few complete rows to estimate a covariance.
    """
    values, complete = client.values, client.row_observed
    if (client.observed.any(axis=1) & ~complete).any():
        return _from_incomplete(client, standardise=standardise)
    d, num_rows = client.num_sensors, int(complete.sum())
    if num_rows <= d + 1:
        raise DataError(
            f"client '{client.name}': {num_rows} complete rows for {d} sensors; "
            f"at least {d + 2} are needed, so {_fewer_missing(client)}"
        )
    chunks = [slice(k, k + CHUNK_STEPS) for k in range(0, len(values), CHUNK_STEPS)]
    centre = np.sum([values[c][complete[c]].sum(axis=0) for c in chunks], axis=0) / num_rows
    away = [((values[c][complete[c]] - centre) ** 2).sum(axis=0) for c in chunks]
    squares = np.asarray(sum(away))
    scale = np.sqrt(squares / num_rows) if standardise else np.ones(d)
    first_row = values[np.argmax(complete)]
    # Compared exactly: the rounded mean of a constant differs from it, so its variance is not zero.
    varies = np.any([(values[c][complete[c]] != first_row).any(axis=0) for c in chunks], axis=0)
    _check_spread(client, varies, squares, scale)
    return _sums(client, segment_starts, centre, scale)


def _sums(
    client: ClientData, segment_starts: np.ndarray, centre: np.ndarray, scale: np.ndarray
) -> MeasurementMoments:
    """The moments over rows that are complete, and pairs of them."""
    values, complete = client.values, client.row_observed
    d, num_rows = client.num_sensors, int(complete.sum())
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
