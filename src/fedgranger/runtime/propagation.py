"""Uncertainty of a run's parameters, along training and in the long run: in simulation.

In a deployment nobody holds both a client's measurements and the other clients' states; what each
party can compute by itself is in `fedgranger_research.studies.one_party`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import jax
import numpy as np
from jaxtyping import Float

from fedgranger.config import RunConfig
from fedgranger.errors import UnstableRecursionError
from fedgranger.option_fields import check_choice
from fedgranger.runtime.row_inputs import (
    prior_rows,
    row_params,
    row_windows,
    run_noise,
    single_row,
    tracked_noise,
)
from fedgranger.runtime.setup import Setup
from fedgranger.uncertainty import stability
from fedgranger.uncertainty.inputs import MeasurementNoise, Row, RowParams, RowWindow
from fedgranger.uncertainty.record import Propagation, make_record
from fedgranger.uncertainty.recursion import (
    RowsState,
    Sizes,
    advance_and_measure,
    row_quantities,
    row_sizes,
)
from fedgranger.uncertainty.steady_state import SteadyState, solve_steady_state
from fedgranger.uncertainty.update_moments import gain_noise, update_moments

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
        noise: covariance per client (see `measurement_noise`); default its model's R, and with
            weights of time steps (`weighting`) R as it is at each time (`tracked_noise`).
        level: "joint", or "blockwise" without covariances between causes (assumption A2).
        split: keep the prior's share apart from the data's.
        num_checkpoints: how often the quantities are recorded, evenly spaced in rounds.
        report: called with (what, done, total).
        observe: called with the sum of all parameters' variances at every checkpoint.

    Raises:
        UnstableRecursionError: the covariances diverge; names step sizes that do not.
    """
    check_choice("uncertainty", level, ("joint", "blockwise"))
    if noise is None and setup.weighting.kind != "none":
        noise = tracked_noise(setup)
    prepared = run_noise(setup, noise)
    marks = _checkpoint_rounds(setup.num_rounds, num_checkpoints)
    sizes, variances = [], []
    with jax.enable_x64(True):
        params = row_params(setup, config, prepared)
        state = prior_rows(setup, config, level=level, split=split, full_noise=prepared.is_full)
        rounds = _Rounds(setup, prepared)
        pieces = _advance_to_each(params, state, rounds, marks)
        for mark, (now, found) in zip(marks, pieces, strict=True):
            state = now
            sizes.append(found)
            variances.append(found.total["augmentation_cov"] + found.total["granger_cov"].sum(1))
            if not np.isfinite(variances[-1]).all():
                break
            observe(float(variances[-1].sum()))
            report("uncertainty", mark, marks[-1])
        _check_bounded(setup, config, prepared, np.stack(variances))
        quantities, _ = row_quantities(params, state, rounds.at(marks[-1]))
        final = jax.device_get((quantities, state.mean.augmentation))
    return make_record(setup.names, prepared.bases, level, marks, sizes, *final)


def steady_states(
    setup: Setup, config: RunConfig, passes: int = 1
) -> list[tuple[Row, SteadyState]]:
    """Steady state of every row from the data as they were measured.

    With weights of time steps (`weighting`) it is that of the last time, from moments tracked to
    it.

    Raises:
        UnstableRecursionError: the step sizes have none.
    """
    rows = [single_row(setup, config, m) for m in range(len(setup.names))]
    weights = None
    if setup.weighting.kind != "none":
        last = setup.window * (1 + np.arange(len(rows[0].windows.measurements))) - 1
        weights = setup.weighting.weights(last, int(last[-1]))
    return [
        (
            row,
            solve_steady_state(
                row.params, row.windows, client=name, passes=passes, weights=weights
            ),
        )
        for name, row in zip(setup.names, rows, strict=True)
    ]


def _advance_to_each(
    params: RowParams, state: RowsState, rounds: _Rounds, marks: list[int]
) -> Iterator[tuple[RowsState, Sizes]]:
    """Run all rounds piece by piece; for every mark the state after its piece, and sizes at it."""
    for begin, stop, every in _pieces(marks, rounds.limit):
        state, sizes = advance_and_measure(params, state, rounds.between(begin, stop), every)
        if begin in marks:
            sizes = jax.device_get(sizes)
            for index in range(len(range(begin, stop, every))):
                yield state, jax.tree.map(lambda leaf, index=index: leaf[index], sizes)
    yield state, jax.device_get(row_sizes(params, state, rounds.at(marks[-1])))


class _Rounds:
    """Inputs of all rows, read for several pieces at a time.

    Attributes:
        limit: so many rounds may be run at once.
    """

    def __init__(self, setup: Setup, noise: MeasurementNoise) -> None:
        self._setup, self._noise = setup, noise
        p, d = setup.padded_dims
        M, W = len(setup.client_data), setup.window
        columns = d + p * (M - 1)
        factors, products = 40 * p * columns * W, p * d * p * columns
        self.limit = max(CHUNK_BYTES // (8 * M * (factors + products)), 1)
        row = d * (1 + d if noise.is_full else 2) + p * M
        fitting = CHUNK_BYTES // (8 * M * row * W)
        self._size = min(max(fitting, self.limit), setup.num_rounds)
        self._begin, self._windows = 0, self._read(0)

    def _read(self, begin: int) -> RowWindow:
        count = min(self._size, self._setup.num_rounds - begin)
        everyone = np.arange(len(self._setup.client_data))
        return jax.device_get(row_windows(self._setup, self._noise, begin, count, everyone))

    def at(self, place: int) -> RowWindow:
        """Return one round."""
        return jax.tree.map(lambda leaf: leaf[0], self.between(place, place + 1))

    def between(self, begin: int, stop: int) -> RowWindow:
        """Leading axes (round, row)."""
        if not self._begin <= begin < stop <= self._begin + len(self._windows.measurements):
            self._begin, self._windows = begin, self._read(begin)
        return jax.tree.map(
            lambda leaf: leaf[begin - self._begin : stop - self._begin], self._windows
        )


def _check_bounded(
    setup: Setup,
    config: RunConfig,
    noise: MeasurementNoise,
    variances: Float[np.ndarray, "checkpoint row"],
) -> None:
    """Examine the rows whose variances grew; a slow start is not a divergence."""
    half = variances[len(variances) // 2]
    with np.errstate(invalid="ignore"):
        suspects = np.flatnonzero(
            ~(variances[-1] <= LARGEST_GROWTH * np.maximum(half, variances[0]))
        )
    for m in suspects.tolist():
        with jax.enable_x64(True):
            row = single_row(setup, config, m, rounds=CHECKED_ROUNDS, noise=noise)
            moments = update_moments(row.params, row.windows)
            found = stability.analyse(moments, gain_noise(row.params, row.windows, moments))
            if found.largest_factor <= 1:
                stability.check(found, row.params, setup.names[m])
    if not np.isfinite(variances[-1]).all():
        worst = setup.names[int(np.argmin(np.isfinite(variances[-1])))]
        raise UnstableRecursionError(
            f"client '{worst}': its variances overflowed; use smaller step sizes or 'auto'"
        )


def _checkpoint_rounds(num_rounds: int, count: int) -> list[int]:
    """Rounds at which quantities are recorded: evenly spaced, the last round included."""
    distance = max(-(-(num_rounds - 1) // count), 1)  # equal ones: each length is compiled
    return [*range(0, num_rounds - 1, distance), num_rounds - 1]


def _pieces(marks: list[int], limit: int) -> list[tuple[int, int, int]]:
    """Rounds to be run at once, at most `limit`: (begin, stop, distance of the marks inside).

    Several marks in a piece where possible, because every piece has a cost of its own, and as few
    lengths as possible, because each is compiled.
    """
    if len(marks) == 1:
        return []
    distance, end = marks[1] - marks[0], marks[-1]
    if distance > limit:
        pieces = [
            (begin, min(begin + limit, last))
            for first, last in itertools.pairwise(marks)
            for begin in range(first, last, limit)
        ]
        return [(begin, stop, stop - begin) for begin, stop in pieces]
    num_whole = end // distance
    together = max(n for n in range(1, limit // distance + 1) if num_whole % n == 0)
    size, whole = together * distance, num_whole * distance
    pieces = [(begin, begin + size, distance) for begin in range(0, whole, size)]
    return [*pieces, (whole, end, end - whole)] if end > whole else pieces
