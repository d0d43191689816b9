"""What the server works on: the clients' least-squares states, chunk by chunk.

A source can be read several times (in process the clients compute it again, in a deployment the
server keeps what it received), so no statistic needs memory that grows with time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from numpy.lib.stride_tricks import sliding_window_view

from fedgranger.linalg.blocks import block_diagonal
from fedgranger.linalg.time_weights import Weighting
from fedgranger.linalg.unbroken_steps import rows_at

CHUNK_STEPS = 16_384
"""Time steps per chunk; the same for every source, so that sums have the same last bits."""


class StateChunk(NamedTuple):
    """Consecutive time steps of all clients.

    Attributes:
        states: the clients' states side by side; zero where missing.
        starts: the step does not follow its predecessor.
        own_starts: likewise of every client by itself, where their clocks differ.
    """

    states: Float[np.ndarray, "time state"]
    observed: Bool[np.ndarray, "time client"]
    starts: Bool[np.ndarray, " time"]
    own_starts: Bool[np.ndarray, "time client"] | None = None


class StateSource(NamedTuple):
    """The least-squares states of all clients and what is known about their errors.

    Attributes:
        names: clients in the order of the columns.
        dims: states per client.
        error_covs: E_m per client, the covariance of the states' measurement error.
        chunks: returns a fresh iterator over the data from the first step.
        own_lags: how far back each client's own past matters to it, by its own choice.
        periods: steps of all cycles that clients took out of their data.
        declared: clients whose E was given by the user and is not to be changed.
        noise_shares: what each client says of its noise (`messages.StateHello`); empty: nothing.
        added_covs: N_m per client, the covariance of the noise that it added to its states before
            it sent them; empty: none. Known exactly, white and independent of everything, also in
            a control loop, so it is always taken out and nothing limits or doubts it.
        before: the last steps before the first one, where time is a circle; else there are none.
        weighting: of time steps in the latent test, for data whose statistics drift
            (`linalg.time_weights`), with its span and the first step of the present regime.
        times: of every step, numbers or time stamps, where they are known.
    """

    names: tuple[str, ...]
    dims: tuple[int, ...]
    error_covs: tuple[np.ndarray, ...]
    chunks: Callable[[], Iterator[StateChunk]]
    num_steps: int
    own_lags: tuple[int, ...]
    periods: tuple[int, ...] = ()
    declared: tuple[str, ...] = ()
    noise_shares: tuple[float, ...] = ()
    added_covs: tuple[np.ndarray, ...] = ()
    before: Callable[[int], StateChunk] | None = None
    weighting: str = "none"
    weighting_span: int | float = 0
    regime_start: int = 0
    times: np.ndarray | None = None

    def weights(self, step: Int[np.ndarray, " _"]) -> Float[np.ndarray, " _"]:
        """Weights of time steps, given by their positions; the last one's is 1."""
        last = self.num_steps - 1
        if self.weighting == "periodic" and self.times is not None:  # phases of the clock
            clock = clock_steps(self.times[: self.num_steps])
            step, last = clock[step], int(clock[last])
        weighting = Weighting(self.weighting, self.weighting_span, self.regime_start)
        return weighting.weights(step, last)

    @property
    def total_dim(self) -> int:
        """P, the sum of the state dimensions."""
        return sum(self.dims)

    @property
    def owner(self) -> Int[np.ndarray, " state"]:
        """Client index of every state coordinate."""
        return np.repeat(np.arange(len(self.dims)), self.dims)

    @property
    def sensor_cov(self) -> Float[np.ndarray, "state state"]:
        """E of all clients, block diagonal: their measurement errors are independent."""
        return block_diagonal(self.error_covs)

    @property
    def is_noise_added(self) -> bool:
        """Whether any client added noise to its states."""
        return any(N.any() for N in self.added_covs)

    @property
    def added_cov(self) -> Float[np.ndarray, "state state"]:
        """N of all clients, block diagonal; zero where nothing was added."""
        if not self.added_covs:
            return np.zeros((self.total_dim, self.total_dim))
        return block_diagonal(self.added_covs)

    @property
    def error_cov(self) -> Float[np.ndarray, "state state"]:
        """E + N, all that is white in the states and not of their dynamics."""
        return self.sensor_cov + self.added_cov if self.is_noise_added else self.sensor_cov


def clock_steps(times: Shaped[np.ndarray, " time"]) -> Int[np.ndarray, " time"]:
    """Steps of a regular clock since the first time, where some were left out in between."""
    if len(times) < 2:
        return np.zeros(len(times), dtype=np.int64)
    since = (times - times[0]).astype(np.float64)
    return np.rint(since / np.median(np.diff(since))).astype(np.int64)


def complete_rows(source: StateSource) -> StateSource:
    """The time steps at which no client is missing; a step left out starts a new segment."""
    if all(chunk.observed.all() for chunk in source.chunks()):
        return source
    return keep_rows(source, lambda chunk, _: np.all(chunk.observed, axis=1))


def keep_rows(source: StateSource, is_kept: Callable[[StateChunk, int], np.ndarray]) -> StateSource:
    """Some of the time steps; one left out starts a new segment, and time goes on without it.

    `is_kept` is of a chunk and the position of its first step.
    """

    def chunks() -> Iterator[StateChunk]:
        was_left_out, first = False, 0
        for chunk in source.chunks():
            kept = is_kept(chunk, first)
            starts = chunk.starts.copy()
            # a start that is left out passes on to the next step that is kept
            starts[1:] |= ~kept[:-1]
            starts[:1] |= was_left_out
            was_left_out = not kept[-1] if len(kept) else was_left_out
            first += len(kept)
            yield StateChunk(chunk.states[kept], chunk.observed[kept], starts[kept])

    num_steps, times = sum(len(chunk.starts) for chunk in chunks()), source.times
    if times is not None:
        firsts = np.cumsum([0, *(len(chunk.starts) for chunk in source.chunks())])
        kept = [is_kept(*one) for one in zip(source.chunks(), firsts.tolist(), strict=False)]
        times = times[: firsts[-1]][np.concatenate([np.zeros(0, dtype=np.bool_), *kept])]
    return source._replace(chunks=chunks, num_steps=num_steps, before=None, times=times)


def select_clients(source: StateSource, kept: Sequence[int]) -> StateSource:
    """Some of the clients, in the order of the source."""
    columns, clients = np.isin(source.owner, kept), sorted(kept)

    def chunks() -> Iterator[StateChunk]:
        for chunk in source.chunks():
            yield StateChunk(chunk.states[:, columns], chunk.observed[:, clients], chunk.starts)

    return source._replace(
        names=tuple(source.names[m] for m in clients),
        dims=tuple(source.dims[m] for m in clients),
        error_covs=tuple(source.error_covs[m] for m in clients),
        added_covs=tuple(source.added_covs[m] for m in clients if source.added_covs),
        chunks=chunks,
        before=None,
        own_lags=tuple(source.own_lags[m] for m in clients),
    )


class PairChunk(NamedTuple):
    """Regression pairs: next states and the lagged states before them.

    Attributes:
        after: s_{t+1}.
        before: s_t, s_{t-1}, …, s_{t-L+1} side by side.
        step: position of t in time.
        segment: number of the unbroken stretch that t lies in.
    """

    after: Float[np.ndarray, "pair state"]
    before: Float[np.ndarray, "pair lagged"]
    after_observed: Bool[np.ndarray, "pair client"]
    before_observed: Bool[np.ndarray, "pair lagged_client"]
    step: Int[np.ndarray, " pair"]
    segment: Int[np.ndarray, " pair"]


def lagged_pairs(
    source: StateSource, lags: int, mean: Float[np.ndarray, " state"]
) -> Iterator[PairChunk]:
    """Yield centred pairs; a pair needs L + 1 consecutive steps of one segment."""
    for states, observed, segments, start in centred_steps(source, lags, mean):
        whole = np.flatnonzero(segments[lags:] == segments[:-lags])
        yield PairChunk(
            rows_at(states[lags:], whole),
            rows_at(_windows(states[:-1], lags), whole),
            rows_at(observed[lags:], whole),
            rows_at(_windows(observed[:-1], lags), whole),
            start + lags - 1 + whole,
            rows_at(segments[lags:], whole),
        )


def centred_steps(
    source: StateSource, lags: int, mean: Float[np.ndarray, " state"]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
    """States about their mean, what is observed, segments, and the position of the first step.

    More than L steps each, the first L of them the last ones of the chunk before.
    """
    owner = source.owner
    states = np.zeros((0, source.total_dim))
    observed = np.zeros((0, len(source.dims)), dtype=np.bool_)
    segments = np.zeros(0, dtype=np.int64)
    last_segment, start = -1, 0
    for chunk in source.chunks():
        numbers = last_segment + np.cumsum(chunk.starts)
        last_segment = int(numbers[-1]) if len(numbers) else last_segment
        centred = chunk.states - mean
        if not chunk.observed.all():
            centred[~chunk.observed[:, owner]] = 0.0
        states = np.concatenate([states, centred])
        observed = np.concatenate([observed, chunk.observed])
        segments = np.concatenate([segments, numbers])
        num_pairs = len(states) - lags
        if num_pairs > 0:
            yield states, observed, segments, start
            start += num_pairs
            states, observed = states[num_pairs:], observed[num_pairs:]
            segments = segments[num_pairs:]


def _windows(rows: Shaped[np.ndarray, "_ _"], length: int) -> Shaped[np.ndarray, "_ _"]:
    """Every row with those before it at its side, the newest first."""
    windows = sliding_window_view(rows, length, axis=0)[..., ::-1]
    return windows.swapaxes(1, 2).reshape(len(windows), -1)
