r"""How far a sensor's level strays in normal operation, and where new data stray further.

The level is the mean of the last 50 samples, in standard deviations of the training data, season
removed. How much it scatters in training, and over how many independent stretches that was seen,
give the limit for new data: Student's t, for a chance of one in a thousand per sensor that data of
the same kind go beyond it anywhere, and never less than 1.2 times the largest level of training.
A slow sensor has few independent stretches and so a wide limit.

Surprise looks at one step; a shift that comes slowly and stays shows here. All of it stays at the
client.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats

LEVEL_STEPS = 50
"""Samples that a level is the mean of."""
LARGEST_SAMPLE = 10.0
"""Samples are cut off here, so that a single one does not make a level."""
FALSE_ALARMS = 1e-3
"""Chance per sensor that normal data go beyond the limit anywhere."""
APART = LEVEL_STEPS // 10
"""Levels that are this many steps apart count as new ones: nearer ones hardly differ."""
MARGIN = 1.2
LEAST_SIZE = 2.0
"""Smaller shifts are not worth a word, however certain they are."""
WIDEST_LIMIT = 10.0
"""A sensor whose limit would be wider cannot be judged."""


class Stretch(NamedTuple):
    """Where a sensor's level was unusual.

    Attributes:
        column: of the sensor.
        size: median distance from its mean, in standard deviations; negative below.
        first: step.
        last: step, included.
    """

    column: int
    size: float
    first: int
    last: int


def moving_levels(z: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Mean of the last `LEVEL_STEPS` rows, per row and sensor; NaN where half of them lack."""
    known = np.where(observed, np.clip(z, -LARGEST_SAMPLE, LARGEST_SAMPLE), 0.0)
    total, count = _moving_sum(known), _moving_sum(observed.astype(np.float64))
    return np.where(count >= LEVEL_STEPS / 2, total / np.maximum(count, 1.0), np.nan)


def usual_levels(z: np.ndarray, observed: np.ndarray) -> np.ndarray:
    """Scatter of a sensor's levels, its degrees of freedom, and the largest level: (3, sensor)."""
    levels = moving_levels(z, observed)
    return np.stack([_usual(levels[:, k]) for k in range(z.shape[1])], axis=1)


def level_limits(usual: np.ndarray | None, num_sensors: int, num_steps: int) -> np.ndarray:
    """Upper end of each sensor's usual levels in so many steps; infinite where it is not known.

    Runs of older versions do not know how levels scatter: at most as much as the samples do.
    """
    looks = max(1.0, num_steps / APART)
    if usual is None:
        widest = stats.norm.isf(FALSE_ALARMS / (2 * looks))
        return np.full(num_sensors, max(LEAST_SIZE, float(widest)))
    scatter, freedom, most = usual
    limits = scatter * stats.t.isf(FALSE_ALARMS / (2 * looks), freedom)
    limits = np.maximum(np.maximum(limits, MARGIN * most), LEAST_SIZE)
    return np.where(limits <= WIDEST_LIMIT, limits, np.inf)


def unusual_stretches(z: np.ndarray, observed: np.ndarray, limits: np.ndarray) -> list[Stretch]:
    """The strongest stretch of every sensor whose level goes beyond its limit."""
    levels = moving_levels(z, observed)
    found = (
        _strongest(z[:, k], observed[:, k], levels[:, k], float(limits[k]), k)
        for k in range(z.shape[1])
    )
    return [stretch for stretch in found if stretch is not None]


def _moving_sum(values: np.ndarray) -> np.ndarray:
    """Sum of the last rows; zero before there are enough."""
    out = np.zeros(values.shape)
    total = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    out[LEVEL_STEPS - 1 :] = total[LEVEL_STEPS:] - total[:-LEVEL_STEPS]
    return out


def _usual(levels: np.ndarray) -> tuple[float, float, float]:
    """Scatter, degrees of freedom and largest of one sensor's levels.

    Levels of separate stretches are taken for an autoregression of order one, whose coefficient
    is corrected for its bias in short series. The scatter counts the error of the mean twice: it
    is missing in training, and present in new data.
    """
    known, apart = levels[~np.isnan(levels)], levels[LEVEL_STEPS - 1 :: LEVEL_STEPS]
    count = int((~np.isnan(apart)).sum())
    if count < 4:
        return 1.0, 1.0, 0.0
    away = apart - np.nanmean(apart)
    r = float(np.nansum(away[1:] * away[:-1]) / max(float(np.nansum(away**2)), 1e-12))
    r = min(max(r + (1 + 4 * r) / count, 0.0), 0.99)
    means = max(count * (1 - r) / (1 + r), 1.5)
    freedom = max(count * (1 - r**2) / (1 + r**2) - 1, 1.0)
    variance = float(np.mean(known**2)) * (1 + 1 / means) / max(1 - 1 / means, 0.3)
    return variance**0.5, freedom, float(np.abs(known).max())


def _strongest(
    z: np.ndarray, observed: np.ndarray, levels: np.ndarray, limit: float, column: int
) -> Stretch | None:
    """The stretch around the largest level, from where to where it fits best.

    Between the first and the last level beyond the limit on that side it is the stretch with the
    largest sum of samples minus half that level, as in a test for two changes of a mean.
    """
    size = np.where(np.isnan(levels), 0.0, np.abs(levels))
    peak = int(np.argmax(size)) if len(size) else 0
    if not len(size) or size[peak] <= limit:
        return None
    sign = np.sign(levels[peak])
    beyond = np.flatnonzero(sign * np.nan_to_num(levels) > limit)
    start = max(0, int(beyond[0]) - LEVEL_STEPS + 1)
    rows = slice(start, int(beyond[-1]) + 1)
    samples = np.clip(sign * z[rows], -LARGEST_SAMPLE, LARGEST_SAMPLE) - size[peak] / 2
    first, last = _largest_sum(np.where(observed[rows], samples, 0.0))
    steps = start + np.flatnonzero(observed[rows])
    steps = steps[(steps >= start + first) & (steps <= start + last)]
    return Stretch(column, float(np.median(z[steps])), int(steps[0]), int(steps[-1]))


def _largest_sum(values: np.ndarray) -> tuple[int, int]:
    """First and last place of the stretch with the largest sum."""
    total = np.concatenate([[0.0], np.cumsum(values)])
    last = int(np.argmax(total[1:] - np.minimum.accumulate(total[:-1])))
    return int(np.argmin(total[: last + 1])), last
