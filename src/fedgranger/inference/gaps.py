r"""Long gaps: rows at which one client is off for a while are left out for all clients.

Moments of two clients are averaged over the rows at which both are there. When client k is off for
a block of rows, the estimating function of an effect m that k drives is there

$$\psi_t = \Big(s_m^+ - \sum_{n \ne k} A_{mn} s_n\Big) s_j^\top = (A_{mk} s_k + e)\, s_j^\top$$

instead of \(e\,s_j^\top\): what k sent is missing from it, and \(s_k s_j^\top\) is as slow as the
states are. Its sum over the block has a variance that the lags of the model do not show. Single
missing rows do no such harm, because products from rows far apart do not add up, and leaving them
out would cost too much: 10 % missing at random in six clients leaves 53 % of the rows.

So gaps of more than `LONGEST_GAP` rows are left out for all clients (a Monte Carlo over lengths is
in docs/theory/inference.md), shorter ones stay as they are. Copies with shifted clocks are made
of what is left, so they have as many rows as the data. Where too few rows are left, the clients
that cost most of them are left out instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from fedgranger.errors import InferenceError
from fedgranger.inference.shifts import common_period
from fedgranger.inference.states import StateChunk, StateSource, keep_rows, select_clients
from fedgranger.linalg.unbroken_steps import LONGEST_GAP
from fedgranger.tested_facts import GapFacts

PAIRS_PER_STATE = 20
"""With fewer pairs of rows per state than that, a client is rather left out than its rows."""
SMALLEST_SHARE = 0.1
"""Nor may one client cost more than nine tenths of the pairs."""
LENGTHENING = 0.1
"""Gaps are lengthened to whole periods when that costs no more than this share of the rows."""


class Usable(NamedTuple):
    """What the tests are made of.

    Attributes:
        source: the rows and clients that are used.
        reasons: why a client was left out, by client.
        warnings: what was left out, in sentences.
        facts: the same as plain values; None where there is no long gap.
    """

    source: StateSource
    reasons: dict[str, str]
    warnings: list[str]
    facts: GapFacts | None


def usable(source: StateSource) -> Usable:
    """Leave out the rows inside long gaps, and clients that would cost too many of them.

    Raises:
        InferenceError: hardly any row is left, with the clients that are off.
    """
    gaps, T, names = long_gaps(source), source.num_steps, source.names
    if not any(len(gap) for gap in gaps):
        return Usable(source, {}, [], None)
    off = {name: _length(gap) for name, gap in zip(names, gaps, strict=True) if len(gap)}
    kept = _clients_kept(gaps, source.dims, T)
    out = overlap([gaps[m] for m in kept])
    if _num_pairs(out, T) <= 2 * sum(source.dims[m] for m in kept):
        raise InferenceError(
            f"only {T - _length(out)} of {T} rows are left at which no client is off for more than "
            f"{LONGEST_GAP} rows in a row ({_rows_by_client(off)}); give data with more overlap, "
            "or without the clients that are off most"
        )
    out = _whole_periods(out, common_period(source.periods, T), T)
    rest = source if len(kept) == len(names) else select_clients(source, kept)

    def is_kept(chunk: StateChunk, first: int) -> np.ndarray:
        rows = np.arange(first, first + len(chunk.starts))
        place = np.searchsorted(out[:, 0], rows, side="right") - 1
        return (place < 0) | (rows >= out[place, 1])

    if len(out):
        rest = keep_rows(rest, is_kept)
    missing = [name for m, name in enumerate(names) if m not in kept]
    cost = {name: rows for name, rows in off.items() if name not in missing}
    left = T - _num_pairs(overlap(gaps), T) - 1
    reasons = {
        name: f"not tested: '{name}' was off for {off[name]} of {T} rows, and {left} of the "
        f"{T - 1} pairs of rows would have been lost for all clients"
        for name in missing
    }
    facts = GapFacts(
        rows=T,
        rows_left_out=_length(out),
        longest_gap=LONGEST_GAP,
        rows_off=off,
        clients_left_out=missing,
    )
    return Usable(rest, reasons, _sentences(cost, _length(out), T, reasons), facts)


def _sentences(cost: dict[str, int], rows: int, T: int, reasons: dict[str, str]) -> list[str]:
    sentences = []
    if cost:
        who = f"of gaps ({_rows_by_client(cost)})"
        if len(cost) == 1:
            who = f"'{next(iter(cost))}' was off"
        sentences.append(f"{rows} of {T} rows were left out for all clients because {who}")
    if reasons:
        who = ", ".join(f"'{name}'" for name in reasons)
        sentences.append(
            f"{who}: left out of the tests because of long gaps; the edges of the others are "
            "conditional on fewer clients, so what a client left out drives in two of them can "
            "show as a link between them"
        )
    return sentences


def _rows_by_client(rows: dict[str, int]) -> str:
    order = sorted(rows.items(), key=lambda item: -item[1])
    return ", ".join(f"'{name}' off for {count}" for name, count in order)


def long_gaps(source: StateSource, longest: int = LONGEST_GAP) -> list[Int[np.ndarray, "_ 2"]]:
    """Per client (gap, 2): first row and row after the last of every gap longer than `longest`."""
    M = len(source.dims)
    changes: list[list[np.ndarray]] = [[] for _ in range(M)]
    was_off, first = np.zeros((1, M), dtype=np.bool_), 0
    for chunk in source.chunks():
        off = np.concatenate([was_off, ~chunk.observed])
        for m in range(M):
            changes[m].append(first + np.flatnonzero(off[1:, m] != off[:-1, m]))
        was_off, first = off[-1:], first + len(chunk.observed)
    out = []
    for m in range(M):
        places = np.concatenate([np.zeros(0, dtype=np.int64), *changes[m]])
        if was_off[0, m]:
            places = np.append(places, first)
        gaps = places.reshape(-1, 2)
        out.append(gaps[gaps[:, 1] - gaps[:, 0] > longest])
    return out


def overlap(stretches: Sequence[Int[np.ndarray, "_ 2"]], least: int = 1) -> Int[np.ndarray, "_ 2"]:
    """Stretches (first, after last) that at least so many of the given ones cover."""
    every = np.concatenate([np.zeros((0, 2), dtype=np.int64), *stretches])
    place = np.unique(every)
    begun, ended = (
        np.searchsorted(np.sort(every[:, side]), place, side="right") for side in (0, 1)
    )
    inside = np.concatenate([[False], begun - ended >= least])
    return place[np.flatnonzero(inside[1:] != inside[:-1])].reshape(-1, 2)


def _length(stretches: Int[np.ndarray, "_ 2"]) -> int:
    return int((stretches[:, 1] - stretches[:, 0]).sum())


def _num_pairs(out: Int[np.ndarray, "_ 2"], T: int) -> int:
    """Pairs of rows that follow each other outside the (separate) stretches."""
    ends = np.append(out.reshape(-1), T) if len(out) else np.array([T])
    kept = np.diff(np.concatenate([[0], ends]))[::2]
    return int(np.maximum(kept - 1, 0).sum())


def _clients_kept(gaps: list[Int[np.ndarray, "_ 2"]], dims: tuple[int, ...], T: int) -> list[int]:
    """All clients, or those left when the ones that cost most pairs are out, half at most."""
    M = len(dims)
    kept = list(range(M))
    largest = _num_pairs(overlap(gaps, M), T)

    def num_pairs(clients: list[int]) -> int:
        return _num_pairs(overlap([gaps[m] for m in clients]), T)

    def is_enough(clients: list[int]) -> bool:
        needed = max(PAIRS_PER_STATE * sum(dims[m] for m in clients), SMALLEST_SHARE * largest)
        return num_pairs(clients) >= needed

    while not is_enough(kept):
        without = {m: num_pairs([n for n in kept if n != m]) for m in kept if len(gaps[m])}
        if M - len(kept) >= M // 2 or len(kept) <= 2 or not without:
            return list(range(M))  # no few clients are to blame
        kept.remove(max(without, key=lambda m: (without[m], _length(gaps[m]))))
    return kept


def _whole_periods(out: Int[np.ndarray, "_ 2"], period: int, T: int) -> Int[np.ndarray, "_ 2"]:
    """Lengthen what is left out to whole periods, so that clocks stay in phase after it."""
    if period == 1:
        return out
    longer: list[tuple[int, int]] = []
    for first, end in out.tolist():
        if longer and first <= longer[-1][1]:
            before = longer.pop()
            first, end = before[0], max(end, before[1])
        longer.append((first, min(first + -(-(end - first) // period) * period, T)))
    whole = np.array(longer, dtype=np.int64).reshape(-1, 2)
    return whole if _length(whole) - _length(out) <= LENGTHENING * T else out
