"""Edges over time in words: when an edge is there, how strong it is at least and at most.

Terminal and page take their lines from here, so that they agree. The table is that of
`over_time.edges_over_time`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from fedgranger.edge_test_kinds import EDGE_TESTS
from fedgranger.tested_facts import InferenceFacts

MARKS = {True: "#", False: ".", None: "?"}
"""The edge is there, is not shown, was not tested."""


PICTURE = "take them as a picture, not as tests"


class FollowedEdge(NamedTuple):
    """One edge along the record.

    Attributes:
        cause: client.
        effect: client.
        stretches: its rows of the table, in time.
        path: a mark per stretch.
        when: from the first stretch that has the edge to the last; empty without any.
        least: smallest strength, None where nothing could be estimated.
        most: largest strength.
        p_value: smallest one, which holds for all stretches together; infinite without any.
    """

    cause: str
    effect: str
    stretches: pd.DataFrame
    path: str
    when: str
    least: float | None
    most: float | None
    p_value: float


def followed_edges(table: pd.DataFrame, limit: int | None = None) -> list[FollowedEdge]:
    """The pairs of the table, most certain first, at most so many; None: all."""
    rows: dict[tuple[str, str], list[int]] = {}
    for place, pair in enumerate(zip(table["cause"], table["effect"], strict=True)):
        rows.setdefault(pair, []).append(place)
    p = table["p_value"].to_numpy(dtype=np.float64)
    p = np.where(np.isnan(p), np.inf, p)
    certain = sorted(rows.values(), key=lambda own: float(p[own].min()))
    return [_followed(table.iloc[own]) for own in certain[:limit]]


def _followed(own: pd.DataFrame) -> FollowedEdge:
    cause, effect = str(own["cause"].iloc[0]), str(own["effect"].iloc[0])
    there = [None if pd.isna(value) else bool(value) for value in own["is_edge"]]
    at = [k for k, value in enumerate(there) if value]
    when = f"{own['start'].iloc[at[0]]} to {own['end'].iloc[at[-1]]}" if at else ""
    p, strength = (own[name].to_numpy(dtype=np.float64) for name in ("p_value", "strength"))
    known = strength[np.isfinite(strength)]
    least, most = (float(known.min()), float(known.max())) if len(known) else (None, None)
    smallest = float(np.min(p[np.isfinite(p)], initial=np.inf))
    path = "".join(MARKS[value] for value in there)
    return FollowedEdge(cause, effect, own, path, when, least, most, smallest)


def over_time_doubt(facts: InferenceFacts) -> str:
    """Why edges over time are not the run's own edges in time; empty where they are."""
    test = facts.test
    if test in ("", "debiased"):
        return ""
    what = "come from the latent test by formula"
    if test == "nonlinear":
        what = "follow the linear influence alone, by the formula of the latent test"
    return (
        f"edges over time {what}, and the edges of this run come from the {EDGE_TESTS[test].title}"
        f": {PICTURE}"
    )


def change_sentences(facts: InferenceFacts) -> list[str]:
    """What the drift tests of a run found, a sentence per change; `facts` are the test's."""
    if facts.drift is None:
        return []
    return [
        f"{one.what} of {one.client} around {one.time} "
        f"(p = {one.p_value:.2g} after {facts.drift.num_tests} tests)"
        for one in facts.drift.changes
    ]
