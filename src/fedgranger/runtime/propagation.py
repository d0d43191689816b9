"""Drive the covariance recursion over a run's data: in simulation, where all data are in one place.

In a deployment nobody holds both a client's measurements and the other clients' states; what each
party can compute by itself is in `fedgranger_research.studies.one_party`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import jax
import numpy as np

from fedgranger.config import RunConfig, check_choice
from fedgranger.errors import UnstableRecursionError
from fedgranger.runtime.propagation_table import Checkpoint, collect
from fedgranger.runtime.rows import model_noise, row_params, row_windows, single_row, start_rows
from fedgranger.runtime.setup import Setup
from fedgranger.uncertainty import stability, statistics
from fedgranger.uncertainty.inputs import RowParams, RowWindow
from fedgranger.uncertainty.mean_square import gain_noise
from fedgranger.uncertainty.noise import Noise, noise_of
from fedgranger.uncertainty.propagate import RowsState, follow_rounds, look, measure
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
    seen, growth = [], []
    with jax.enable_x64(True):
        params = row_params(setup, config, prepared)
        state = start_rows(setup, config, level=level, split=split, full=prepared.is_full)
        rounds = _Rounds(setup, prepared)
        for met in _walk(params, state, rounds, marks):
            state, found = met
            seen.append(found)
            growth.append(_total_variance(found))
            if not np.isfinite(growth[-1]).all():
                break
            observe(float(growth[-1].sum()))
            report("uncertainty", found.round, marks[-1])
        _check_bounded(setup, config, prepared, np.stack(growth))
        quantities, _ = look(params, state, rounds.at(marks[-1]))
        final = jax.device_get((quantities, state.mean.augmentation))
    return collect(setup.names, prepared, level, seen, *final)


def _walk(
    params: RowParams, state: RowsState, rounds: _Rounds, marks: list[int]
) -> Iterator[tuple[RowsState, Checkpoint]]:
    """Run all rounds piece by piece; at every checkpoint, it and the state after its piece."""
    for begin, stop, every in _pieces(marks, rounds.limit):
        state, sizes = follow_rounds(params, state, rounds.stretch(begin, stop), every)
        if begin in marks:
            sizes = jax.device_get(sizes)
            for index, place in enumerate(range(begin, stop, every)):
                own = jax.tree.map(lambda leaf, index=index: leaf[index], sizes)
                yield state, Checkpoint(place, *own)
    sizes = jax.device_get(measure(params, state, rounds.at(marks[-1])))
    yield state, Checkpoint(marks[-1], *sizes)


class _Rounds:
    """Inputs of all rows, gathered for several pieces at a time.

    Attributes:
        limit: so many rounds may be run at once.
    """

    def __init__(self, setup: Setup, noise: Noise) -> None:
        self._setup, self._noise = setup, noise
        p, d = setup.padded_dims
        M, W = len(setup.streams), setup.window
        columns = d + p * (M - 1)
        factors, written_out = 40 * p * columns * W, p * d * p * columns
        self.limit = max(CHUNK_BYTES // (8 * M * (factors + written_out)), 1)
        row = d * (1 + d if noise.is_full else 2) + p * M
        fitting = CHUNK_BYTES // (8 * M * row * W)
        self._size = min(max(fitting, self.limit), setup.num_rounds)
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


def _total_variance(seen: Checkpoint) -> np.ndarray:
    """Sum of all parameters' variances, per row."""
    return seen.total["augmentation_cov"] + seen.total["granger_cov"].sum(axis=1)


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


def _pieces(marks: list[int], limit: int) -> list[tuple[int, int, int]]:
    """Rounds to be run at once, at most `limit`: (begin, stop, distance of the marks inside).

    Several stretches between marks where possible, because every piece has a cost of its own, and
    as few lengths as possible, because each is compiled.
    """
    if len(marks) == 1:
        return []
    stretch, end = marks[1] - marks[0], marks[-1]
    if stretch > limit:
        pieces = [
            (begin, min(begin + limit, last))
            for first, last in itertools.pairwise(marks)
            for begin in range(first, last, limit)
        ]
        return [(begin, stop, stop - begin) for begin, stop in pieces]
    num_whole = end // stretch
    together = max(n for n in range(1, limit // stretch + 1) if num_whole % n == 0)
    size, whole = together * stretch, num_whole * stretch
    pieces = [(begin, begin + size, stretch) for begin in range(0, whole, size)]
    return [*pieces, (whole, end, end - whole)] if end > whole else pieces
