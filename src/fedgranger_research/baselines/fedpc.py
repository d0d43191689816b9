r"""FedPC: clients test, the server counts votes (Huang et al. 2023).

For sets of 0, 1, 2, 3 variables: the server sends the skeleton, every client tests its pairs on its
own correlations (`independence`), and an edge stays when at least \(\lceil 0.3K\rceil\) of the K
clients that hold it, and at least one, keep it at level 0.01. (The original rounds, which keeps
everything when K = 1.) A client that once found a pair independent keeps to that. A removed pair's
separating set is that of the client with the smallest |r|. Then `orientation`, after time order has
directed past → present.

The score of an edge is the statistic that the vote is about: per client the smallest Fisher z over
the sets tried, and of these the one that as many clients reach as are needed. It is increasing in
1 − p, without ties at 1; an edge is kept where it is above the normal quantile (2.58).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm

from fedgranger_research.baselines.independence import Layer, run_layer
from fedgranger_research.baselines.lagged_design import Design, Share, split_columns
from fedgranger_research.baselines.method_protocol import (
    BaselineError,
    Columns,
    EdgeScores,
    Method,
    Post,
    edge_scores,
    options_of,
)
from fedgranger_research.baselines.orientation import orient

DEFAULTS: dict[str, Any] = {
    "level": 0.01,
    "vote_share": 0.3,
    "largest_set": 3,
    "time_order": True,
}


class Voted(NamedTuple):
    """What the votes gave.

    Attributes:
        edges: a directed acyclic graph, `[cause, effect]`.
        skeleton: its edges without direction.
        strength: of every pair, as in the head of this module; 0 where no client holds both.
    """

    edges: np.ndarray
    skeleton: np.ndarray
    strength: np.ndarray


class ClientSide:
    """One client: its correlations, which never leave it."""

    def __init__(self, share: Share, ranks: np.ndarray) -> None:
        """Compute the correlations; a variable that is constant here is correlated with none."""
        std = np.sqrt(np.diag(share.cov))
        std[np.ptp(share.rows, axis=0) == 0] = np.inf
        self.places, self._name = share.places, share.name
        self._correlations = share.cov / np.outer(std, std)
        np.fill_diagonal(self._correlations, 1.0)
        self._num_samples, self._ranks = len(share.rows), ranks[share.places]

    def answer(self, skeleton: np.ndarray, set_size: int, largest_set: int) -> Layer:
        """Test the pairs of the skeleton that was sent."""
        return run_layer(
            *(self._correlations, self._num_samples, skeleton, self._ranks),
            *(set_size, largest_set, self._name),
        )


class ServerSide:
    """The skeleton, the votes and the separating sets."""

    def __init__(self, design: Design, options: Mapping[str, Any]) -> None:
        """Start from all pairs that a client holds."""
        d = len(design.is_past)
        self.skeleton = (design.num_holders > 0) & ~np.eye(d, dtype=bool)
        share, holders = options["vote_share"], design.num_holders
        self._needed = np.maximum(1, np.ceil(share * holders - 1e-9)).astype(int)
        self._critical = float(norm.isf(options["level"] / 2))
        self.separators = np.full((d, d, max(1, options["largest_set"])), -1)
        self._smallest = np.full((d, d), np.inf)
        self._statistics = np.full((len(design.shares), d, d), np.inf)
        for k, client in enumerate(design.shares):
            outside = np.ones((d, d), dtype=bool)
            outside[np.ix_(client.places, client.places)] = False
            self._statistics[k, outside] = -np.inf

    def count(self, answers: list[tuple[np.ndarray, Layer]]) -> None:
        """Remove pairs that too few clients keep, and remember what separates them best."""
        for k, (places, layer) in enumerate(answers):
            where = np.ix_(places, places)
            self._statistics[k][where] = np.minimum(self._statistics[k][where], layer.statistic)
            independent = layer.statistic <= self._critical
            better = independent & (layer.correlation < self._smallest[where])
            self._smallest[where] = np.where(better, layer.correlation, self._smallest[where])
            names = np.where(layer.separator >= 0, places[layer.separator], -1)
            self.separators[where] = np.where(better[..., None], names, self.separators[where])
        self.skeleton = self.skeleton & (self.strength() > self._critical)

    def strength(self) -> np.ndarray:
        """Per pair, the statistic that as many clients reach as are needed."""
        ordered = -np.sort(-self._statistics, axis=0)
        place = np.minimum(self._needed, len(ordered)) - 1
        return np.take_along_axis(ordered, place[None], axis=0)[0]


def learn(design: Design, options: Mapping[str, Any], post: Post) -> Voted:
    """Vote on the skeleton layer by layer, then give directions."""
    if not 0 < options["level"] < 1:
        raise BaselineError(f"level is {options['level']}; use a number between 0 and 1")
    known = ~design.allowed & design.allowed.T  # only one direction is possible
    ranks = np.where(design.is_past & known.any(), 0, 1)
    clients = [ClientSide(share, ranks) for share in design.shares]
    server = ServerSide(design, options)
    for set_size in range(options["largest_set"] + 1):
        answers = []
        for client in clients:
            message = server.skeleton[np.ix_(client.places, client.places)]
            post.carry(message)
            layer = client.answer(message, set_size, server.separators.shape[2])
            post.carry(*layer)
            answers.append((client.places, layer))
        server.count(answers)
    edges = orient(server.skeleton & design.allowed, lambda i, j: server.separators[i, j])
    strength = np.where(np.isfinite(server.strength()), server.strength(), 0.0)
    return Voted(edges, server.skeleton, strength)


def fit(columns: Columns, options: Mapping[str, Any], mode: str) -> EdgeScores:
    """Score past → present pairs by their strength, 0 where the edge points back in time."""
    options = options_of(DEFAULTS, options)
    design, post = split_columns(columns, mode, time_order=options["time_order"]), Post()
    found = learn(design, options, post)
    return edge_scores(
        design.lagged(np.where(found.edges.T, 0.0, found.strength)),
        design.lagged(found.edges),
        columns.dims,
        post,
        status="direct",
        residual=float("nan"),
    )


VERTICAL = Method(
    partial(fit, mode="vertical"), DEFAULTS, "vertical", "FedPC on a client's own columns"
)
HORIZONTAL = Method(partial(fit, mode="horizontal"), DEFAULTS, "horizontal", "FedPC on all columns")
