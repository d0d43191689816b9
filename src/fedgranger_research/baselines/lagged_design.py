"""Who holds which variables at which steps: the split that a compared method works on.

All variables are the columns at t ("present") followed by the columns at t − 1 ("past"). A pair of
steps is used where the later one does not start a stretch. Time order forbids edges from present
to past; a method says nothing about edges between variables that no client holds together.

- vertical: a client holds its own columns, present and past, at all steps;
- horizontal: every client holds all columns, in one of as many consecutive stretches as clients; a
  column may be constant in some of them;
- central: one party holds all columns at all steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fedgranger_research.baselines.method_protocol import BaselineError, Columns

MODES = ("vertical", "horizontal", "central")


class Share(NamedTuple):
    """What one client holds.

    Attributes:
        name: of the client.
        rows: its samples of its variables, centred by itself.
        places: where its variables stand among all.
    """

    name: str
    rows: Float[np.ndarray, "sample variable"]
    places: Int[np.ndarray, " variable"]

    @property
    def cov(self) -> Float[np.ndarray, "variable variable"]:
        """Second moments of its samples, divided by their number."""
        return self.rows.T @ self.rows / len(self.rows)


class Design(NamedTuple):
    """The clients' shares and which edges are possible.

    Attributes:
        shares: one per client.
        is_past: whether a variable is a column at t − 1; none in data without time.
        allowed: `[cause, effect]`: the edge goes not back in time, and a client holds both ends.
        num_holders: how many clients hold both variables.
    """

    shares: tuple[Share, ...]
    is_past: Bool[np.ndarray, " variable"]
    allowed: Bool[np.ndarray, "cause effect"]
    num_holders: Int[np.ndarray, "cause effect"]

    @property
    def num_present(self) -> int:
        """How many variables are columns at t."""
        return int((~self.is_past).sum())

    def lagged(self, matrix: np.ndarray) -> np.ndarray:
        """Of a matrix `[cause, effect]` of all variables: past causes of present effects, turned.

        Returns:
            `[effect, cause]`, one row and column per column of the data.
        """
        P = self.num_present
        return matrix[P:, :P].T


def split_columns(columns: Columns, mode: str, *, time_order: bool = True) -> Design:
    """Split lagged columns among the clients.

    Args:
        columns: what the clients hold.
        mode: vertical, horizontal or central.
        time_order: forbid edges from present to past; without, a method has to find out.

    Raises:
        BaselineError: a column is constant or not finite, or a client has too few pairs of steps.
    """
    if mode not in MODES:
        raise BaselineError(f"mode is '{mode}'; use one of {', '.join(MODES)}")
    check_columns(columns)
    paired = ~columns.starts[1:]
    everything, P = np.concatenate(columns.series, axis=1), sum(columns.dims)
    if mode == "vertical":
        own = np.split(np.arange(P), np.cumsum(columns.dims)[:-1])
        parts = [(name, where, paired) for name, where in zip(columns.names, own, strict=True)]
    else:
        names = columns.names if mode == "horizontal" else ("all",)
        parts = [(name, np.arange(P), used) for name, used in _stretches(names, paired)]
    shares = []
    for name, where, used in parts:
        values = everything[:, where]
        rows = np.hstack([values[1:][used], values[:-1][used]])
        shares.append(make_share(name, rows, np.concatenate([where, P + where])))
    return make_design(shares, np.arange(2 * P) >= P, time_order=time_order)


def split_samples(parts: Sequence[np.ndarray]) -> Design:
    """Clients with samples of the same variables and no time: what most of the methods are for."""
    num_variables = parts[0].shape[1]
    everything = np.arange(num_variables)
    shares = [make_share(f"client{k + 1}", rows, everything) for k, rows in enumerate(parts)]
    return make_design(shares, np.zeros(num_variables, dtype=bool))


def make_share(name: str, rows: np.ndarray, places: np.ndarray) -> Share:
    """A client's samples, centred; too few samples are refused."""
    if len(rows) <= rows.shape[1] + 1:
        raise BaselineError(
            f"client '{name}': {len(rows)} samples of {rows.shape[1]} variables; give at least "
            f"{rows.shape[1] + 2}, from a longer recording or fewer clients"
        )
    return Share(name, rows - rows.mean(axis=0), places)


def make_design(shares: Sequence[Share], is_past: np.ndarray, *, time_order: bool = True) -> Design:
    """Count who holds what, and forbid what time order forbids."""
    Z = len(is_past)
    num_holders = np.zeros((Z, Z), dtype=int)
    for share in shares:
        num_holders[np.ix_(share.places, share.places)] += 1
    back_in_time = ~is_past[:, None] & is_past & time_order
    allowed = (num_holders > 0) & ~np.eye(Z, dtype=bool) & ~back_in_time
    return Design(tuple(shares), is_past, allowed, num_holders)


def check_columns(columns: Columns) -> None:
    """Refuse columns that no method can use."""
    num_steps = len(columns.starts)
    if not num_steps or not columns.starts[0]:
        raise BaselineError("starts[0] is not True; the first step always starts a stretch")
    for name, part in zip(columns.names, columns.series, strict=True):
        if part.ndim != 2 or len(part) != num_steps or not part.shape[1]:
            raise BaselineError(
                f"client '{name}': its columns have shape {part.shape}; give {num_steps} rows and "
                "at least one column"
            )
        wrong = np.argwhere(~np.isfinite(part))
        if len(wrong):
            step, column = wrong[0]
            raise BaselineError(
                f"client '{name}': column {column + 1} is {part[step, column]} at step {step}; "
                "fill missing values or leave these steps out and mark a start"
            )
        still = np.flatnonzero(part.max(axis=0) == part.min(axis=0))
        if len(still):
            raise BaselineError(
                f"client '{name}': column {still[0] + 1} never changes; leave it out"
            )


def _stretches(names: Sequence[str], paired: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Consecutive stretches of time; the pair across a cut belongs to nobody."""
    num_steps = len(paired) + 1
    cuts = np.linspace(0, num_steps, len(names) + 1).round().astype(int)
    later = np.arange(1, num_steps)
    return [
        (name, paired & (later > begin) & (later < end))
        for name, begin, end in zip(names, cuts[:-1], cuts[1:], strict=True)
    ]
