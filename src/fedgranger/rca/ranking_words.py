"""A ranking's reasons in words."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedgranger.rca.evidence import Evidence
from fedgranger.text import counted

CLEAR_SHARE = 0.1
FEWEST_STEPS = 5
"""Resamples of fewer steps are all alike, which says nothing about how sure a ranking is."""
CALM = "No client left its normal range in this window: what follows may be ordinary scatter."


def sentences(
    table: pd.DataFrame, edges: pd.DataFrame | None, is_clear: bool, evidence: Evidence
) -> tuple[str, ...]:
    """Sentences on the first suspect; before them, that there is none where all is calm."""
    if not is_clear:
        return ("The scores do not separate the clients: this window has no ranking.",)
    top = table.iloc[0]
    name = top["client"]
    out = [CALM] if np.isnan(table["onset"].to_numpy()).all() else []
    out.append(f"{name}'s own one-step errors are {top['surprise']:.3g} times their usual energy.")
    later = table.loc[table["onset"] > top["onset"]]
    if pd.notna(top["onset"]):
        others = table["onset"].iloc[1:]
        order = (
            ", the only client to do so"
            if others.isna().all()
            else ", before any other client"
            if top["onset"] < others.min()
            else ""
        )
        when = _when(evidence, top["onset"], "step {} of the window")
        out.append(f"It left its normal range at {when}{order}.")
    if np.isnan(top["explained"]):
        out.append("Whether others explain it is unknown: they were not observed.")
    elif top["explained"] > CLEAR_SHARE and isinstance(top["explained_by"], str):
        out.append(
            f"Other clients explain {100 * top['explained']:.0f} % of it, mostly "
            f"{top['explained_by']}."
        )
    else:
        out.append("Other clients explain almost none of it.")
    followers = _followers(name, later, edges, evidence)
    if followers:
        out.append(f"Along its edges the anomaly then reaches {', '.join(followers)}.")
    unseen = table.loc[table["surprise"].isna(), "client"].tolist()
    if unseen:
        out.append(f"Not observed in this window: {', '.join(unseen)}.")
    runner_up = table.iloc[1]
    if len(evidence) < FEWEST_STEPS:
        out.append(
            f"{counted(len(evidence), 'step')} cannot show how sure this is; give a window of "
            f"{FEWEST_STEPS} or more."
        )
    elif runner_up["probability"] > CLEAR_SHARE:
        out.append(
            f"{runner_up['client']} comes first in {100 * runner_up['probability']:.0f} % of the "
            "resamples."
        )
    return tuple(out)


def horizon_sentence(evidence: Evidence, horizon: int) -> str:
    """Which steps of a long window were used, and what to do about the others."""
    last = _when(evidence, horizon - 1, "step {}")
    return (
        f"Scores are of the window's first {horizon} of {len(evidence)} steps, up to {last}: later "
        "ones show where an anomaly has spread. For another one begin the window later."
    )


def _when(evidence: Evidence, step: float, words: str) -> str:
    """A step in words, with its clock time where it has one."""
    clock, text = evidence.when(int(step)), words.format(int(step))
    return f"{clock} ({text})" if clock else text


def _followers(
    name: str, later: pd.DataFrame, edges: pd.DataFrame | None, evidence: Evidence
) -> list[str]:
    """Clients that left their range later and that a tested edge leads to, in order of onset."""
    if edges is None or not bool(np.any(edges["is_edge"].notna().to_numpy())):
        return []
    reached = edges.loc[(edges["cause"] == name) & edges["is_edge"].fillna(False), "effect"]
    rows = later.loc[later["client"].isin(reached)].sort_values("onset")
    return [
        f"{row.client} ({evidence.when(int(row.onset)) or f'step {row.onset:.0f}'})"
        for row in rows.itertuples()
    ]
