"""What every compared method gets and gives.

A method gets the columns that each client holds and gives a score per possible edge. What a client
computes is a function of its own columns and of what the server sent; `Post` counts what crosses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from fedgranger.errors import FedGrangerError


class BaselineError(FedGrangerError):
    """A method cannot be used on these columns; the sentence says why and what to do."""


class Columns(NamedTuple):
    """Time series side by side, each owned by one client.

    Attributes:
        names: of the clients.
        series: per client its columns, (time, column), centred by nobody, no missing values.
        starts: where an unbroken stretch of time begins; the first step always.
        error_covs: per client the covariance of the measurement error in its columns; zero where
            nothing is known. Only methods that correct for it use it.
    """

    names: tuple[str, ...]
    series: tuple[Float[np.ndarray, "time column"], ...]
    starts: Bool[np.ndarray, " time"]
    error_covs: tuple[Float[np.ndarray, "column column"], ...]

    @property
    def dims(self) -> tuple[int, ...]:
        """Columns per client."""
        return tuple(part.shape[1] for part in self.series)


class EdgeScores(NamedTuple):
    """What a method says of "column j at t − 1 drives column i at t".

    Attributes:
        score: larger is more likely an edge; 0 where the method says nothing.
        is_edge: the method's own decision.
        client_score: the same per pair of clients.
        is_client_edge: its decision per pair of clients.
        seconds: how long it took.
        messages: how many messages crossed between clients and server.
        bytes_sent: their size.
        status: "converged", "stopped" (its limit of iterations) or "direct" (nothing to iterate).
        residual: what should be zero at convergence (constraint and consensus), NaN for "direct".
    """

    score: Float[np.ndarray, "effect cause"]
    is_edge: Bool[np.ndarray, "effect cause"]
    client_score: Float[np.ndarray, "effect_client cause_client"]
    is_client_edge: Bool[np.ndarray, "effect_client cause_client"]
    seconds: float
    messages: int
    bytes_sent: int
    status: str
    residual: float


class Post:
    """Counts messages: whatever a client and the server exchange goes through `carry`."""

    def __init__(self) -> None:
        self.messages = self.bytes_sent = 0

    def carry(self, *arrays: np.ndarray) -> None:
        """One message with these arrays."""
        self.messages += 1
        self.bytes_sent += sum(np.asarray(part).nbytes for part in arrays)


class Method(NamedTuple):
    """A compared method.

    Attributes:
        fit: of the columns and the options; `seconds` of its answer may be 0, the caller measures.
        defaults: its options, those of the original.
        mode: "vertical" (a client holds its own columns), "horizontal" (every client holds all
            columns and some of the time: breaks the promise that raw data stay), "central" (all
            data in one place).
        words: one line for tables and lists.
    """

    fit: Callable[[Columns, Mapping[str, Any]], EdgeScores]
    defaults: Mapping[str, Any]
    mode: str
    words: str


def by_client(matrix: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """Largest entry of every block: a pair of clients has an edge where any of its columns has."""
    first = np.concatenate([[0], np.cumsum(dims)[:-1]])
    return np.maximum.reduceat(np.maximum.reduceat(matrix, first, axis=0), first, axis=1)


def options_of(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a method, those given over its defaults.

    Raises:
        BaselineError: an option that the method does not have.
    """
    for name in given:
        if name not in defaults:
            raise BaselineError(f"no option '{name}'; this method has {', '.join(defaults)}")
    return {**defaults, **given}


def edge_scores(
    score: np.ndarray,
    is_edge: np.ndarray,
    dims: tuple[int, ...],
    post: Post,
    *,
    status: str,
    residual: float,
) -> EdgeScores:
    """Complete an answer: pairs of clients by their largest entry, what crossed; 0 seconds."""
    return EdgeScores(
        score=score,
        is_edge=is_edge,
        client_score=by_client(score, dims),
        is_client_edge=by_client(is_edge, dims),
        seconds=0.0,
        messages=post.messages,
        bytes_sent=post.bytes_sent,
        status=status,
        residual=residual,
    )
