"""Drive the covariance recursion over a run's data: in simulation, where all data are in one place.

In a deployment nobody holds both a client's measurements and the other clients' states; what each
party can compute by itself is in `uncertainty.deployed`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import numpy as np

from fedgranger.config import RunConfig, check_choice
from fedgranger.errors import UnstableRecursionError
from fedgranger.runtime.propagation_table import Checkpoint, collect
from fedgranger.runtime.rows import model_noise, row_params, row_windows, single_row, start_rows
from fedgranger.runtime.setup import Setup
from fedgranger.uncertainty import stability, statistics
from fedgranger.uncertainty.inputs import RowWindow
from fedgranger.uncertainty.mean_square import gain_noise
from fedgranger.uncertainty.noise import Noise, noise_of
from fedgranger.uncertainty.propagate import advance_rounds, look, measure
from fedgranger.uncertainty.record import Propagation

__all__ = ["propagate"]

CHUNK_BYTES = 64 * 2**20
CHECKED_ROUNDS = 1024
LARGEST_GROWTH = 10.0
"""Variances that grow by more over the second half are examined for divergence."""


def propagate(
    setup: Setup,
    config: RunConfig,
    noise: Mapping[str, np.ndarray | float] | None = None,
    *,
    level: str = "joint",
    split: bool = True,
    num_checkpoints: int = 40,
    report: Callable[[str, int, int], None] = lambda *_: None,
    observe: Callable[[float], None] = lambda _: None,
) -> Propagation:
    """Propagate mean and covariance of every row along one pass over the data.

    The panel's values are the means of the measurements; the noise is what would change if they
    were measured again. One pass only: a second one would meet the same noise again.

    Args:
        setup: the run.
        config: its options (priors).
        noise: covariance per client (see `uncertainty.noise.noise_of`); default its model's R.
        level: "joint", or "blockwise" without covariances between causes (assumption A2).
        split: tell the prior's share from the data's.
        num_checkpoints: how often the quantities are recorded, evenly spaced in rounds.
        report: called with (what, done, total).
        observe: called with the sum of all parameters' variances at every checkpoint.

    Raises:
        UnstableRecursionError: the covariances diverge; names step sizes that do not.
    """
    check_choice("uncertainty", level, ("joint", "blockwise"))
    dims = [stream.model.num_sensors for stream in setup.streams]
    given = model_noise(setup) if noise is None else noise
    prepared = noise_of(given, setup.names, dims, len(setup.streams[0].values))
    marks = _checkpoints(setup.num_rounds, num_checkpoints)
    size = _chunk_size(setup, marks)
    seen, growth = [], []
    with jax.enable_x64(True):
        params = row_params(setup, config, prepared)
        rounds = _Rounds(setup, prepared, size)
        state = start_rows(setup, config, level=level, split=split, full=prepared.is_full)
        for first, last in zip([0, *marks[:-1]], marks, strict=True):
            for begin in range(first, last, size):
                windows = rounds.stretch(begin, min(begin + size, last))
                state = advance_rounds(params, state, windows)
            found = measure(params, state, rounds.at(last))
            seen.append(Checkpoint(last, *jax.device_get((*found, state.mean.granger))))
            growth.append(_total_variance(seen[-1].total))
            if not np.isfinite(growth[-1]).all():
                break
            observe(float(growth[-1].sum()))
            report("uncertainty", last, marks[-1])
        quantities, _ = look(params, state, rounds.at(seen[-1].round))
        final = jax.device_get((quantities, state.mean.augmentation))
    _check_bounded(setup, config, prepared, np.stack(growth))
    return collect(setup.names, prepared, level, seen, *final)


class _Rounds:
    """Inputs of all rows, gathered for several stretches at a time."""

    def __init__(self, setup: Setup, noise: Noise, stretch: int) -> None:
        self._setup, self._noise = setup, noise
        p, d = setup.padded_dims
        M = len(setup.streams)
        row = d * (1 + d if noise.is_full else 2) + p * M
        fitting = CHUNK_BYTES // (8 * M * row * setup.window)
        self._size = min(max(fitting, stretch), setup.num_rounds)
        self._begin, self._windows = 0, self._gather(0)

    def _gather(self, begin: int) -> RowWindow:
        count = min(self._size, self._setup.num_rounds - begin)
        everyone = np.arange(len(self._setup.streams))
        return jax.device_get(row_windows(self._setup, self._noise, begin, count, everyone))

    def at(self, place: int) -> RowWindow:
        """Return one round."""
        return jax.tree.map(lambda leaf: leaf[0], self.stretch(place, place + 1))

    def stretch(self, begin: int, stop: int) -> RowWindow:
        """Leading axes (round, row)."""
        if not self._begin <= begin < stop <= self._begin + len(self._windows.measurements):
            self._begin, self._windows = begin, self._gather(begin)
        return jax.tree.map(
            lambda leaf: leaf[begin - self._begin : stop - self._begin], self._windows
        )


def _total_variance(sizes: dict[str, np.ndarray]) -> np.ndarray:
    """Sum of all parameters' variances, per row."""
    return sizes["augmentation_cov"] + sizes["granger_cov"].sum(axis=1)


def _check_bounded(setup: Setup, config: RunConfig, noise: Noise, growth: np.ndarray) -> None:
    """Examine the rows whose variances grew; a slow start is not a divergence."""
    half = growth[len(growth) // 2]
    with np.errstate(invalid="ignore"):
        suspects = np.flatnonzero(~(growth[-1] <= LARGEST_GROWTH * np.maximum(half, growth[0])))
    for m in suspects.tolist():
        with jax.enable_x64(True):
            row = single_row(setup, config, m, rounds=CHECKED_ROUNDS, noise=noise)
            averages = statistics.collect(row.params, row.windows)
            noisy_gain = gain_noise(row.params, row.windows, averages)
            found = stability.analyse(averages, noisy_gain)
            if found.largest_factor <= 1:
                stability.check(found, row.params, setup.names[m])
    if not np.isfinite(growth[-1]).all():
        worst = setup.names[int(np.argmin(np.isfinite(growth[-1])))]
        raise UnstableRecursionError(
            f"client '{worst}': its variances overflowed; use smaller step sizes or 'auto'"
        )


def _checkpoints(num_rounds: int, count: int) -> list[int]:
    """Round indices at which to look: evenly spaced, the last round included."""
    stretch = max(-(-(num_rounds - 1) // count), 1)  # equal ones: each length is compiled
    return [*range(0, num_rounds - 1, stretch), num_rounds - 1]


def _chunk_size(setup: Setup, marks: list[int]) -> int:
    p, d = setup.padded_dims
    M = len(setup.streams)
    columns = d + p * (M - 1)
    factors, written_out = 40 * p * columns * setup.window, p * d * p * columns
    per_round = 8 * M * (factors + written_out)
    return int(max(1, min(max(np.diff([0, *marks]), default=1), CHUNK_BYTES // per_round)))
