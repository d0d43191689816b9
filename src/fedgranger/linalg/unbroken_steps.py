"""Unbroken stretches of observed time steps."""

from __future__ import annotations

import numpy as np

LONGEST_GAP = 5
"""Consecutive rows that may be missing; after a longer gap a record goes on as a new stretch. The
Monte Carlo behind the number is in docs/theory/inference.md."""


def rows_at(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """These rows, increasing; where they follow each other a view, which copies nothing."""
    return values[span(rows)]


def span(rows: np.ndarray) -> slice | np.ndarray:
    """The rows, increasing, as a slice where they follow each other."""
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return slice(rows[0], rows[-1] + 1)
    return rows


def unbroken_steps(last: np.ndarray, observed: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Unbroken observed steps that end at each step, (time, client); 0 where one is missing.

    `last` are the lengths at the end of the chunk before, (client,); `starts` is (time,), or
    (time, client) where they differ.
    """
    step = np.arange(len(starts))[:, None]
    starts = starts[:, None] if starts.ndim == 1 else starts
    observed = observed[:, :1] if observed.all() else observed  # one column is like all others
    begin = np.where(observed, np.where(starts, step, -1), step + 1)
    begin = np.maximum.accumulate(begin, axis=0)
    return np.where(begin < 0, last + step + 1, step - begin + 1)
