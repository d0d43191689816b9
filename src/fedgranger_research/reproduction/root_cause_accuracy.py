"""Accuracy of rankings per data set, part and method, beside chance and a constant guess.

Ties count by expectation (`rca.ranking_metrics`). A method that refused a data set has no ranking
of its anomalies: it is judged on the others, and how many it refused stands beside it.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.rca.ranking_metrics import Instance, chance_hits, evaluate_rankings, hits

FIGURES = ("ac1", "ac2", "ac1_low", "ac1_high", "avg3", "mrr", "balanced_ac1", "undefined")


def collect_accuracy(tables: list[pd.DataFrame], **_: Any) -> pd.DataFrame:
    """Accuracy per data set, part, kind of roots and method."""
    scores = pd.concat(tables, ignore_index=True)
    whole = [
        group.assign(part="both")
        for _, group in scores.groupby("dataset", sort=False)
        if len(set(group["part"])) > 1
    ]
    rows = []
    for key, group in pd.concat([scores, *whole]).groupby(["dataset", "part"], sort=False):
        dataset, part = np.asarray(key)
        for kind in ("single", "all"):
            chosen = group if kind == "all" else group.loc[~group["roots"].str.contains(";")]
            if chosen.empty:
                continue
            head = {"dataset": dataset, "part": part, "roots": kind}
            methods = dict(list(chosen.groupby("method", sort=False)))
            every = _instances(max(methods.values(), key=lambda one: (one["scores"] != "").sum()))
            names = str(chosen["clients"].iloc[0]).split(";")
            for method, own in methods.items():
                rows.append(head | {"method": method} | _judged(own, names))
            constant = _constant(every)
            rows.append(
                head
                | {"method": "constant", **_figures(constant)}
                | {"by_root": _by_root(constant, names)}
            )
            rows.append(head | {"method": "chance", **_chance(every)})
    return pd.DataFrame(rows)


def _judged(rows: pd.DataFrame, names: list[str]) -> dict[str, Any]:
    """Figures of one method, and what its graph was and cost where it is a compared one."""
    instances = _instances(rows)
    facts = {"refused": int(np.sum(rows["scores"].to_numpy() == ""))} | _graph_facts(rows)
    if not instances:
        return dict.fromkeys(FIGURES, np.nan) | {"count": 0, "by_root": ""} | facts
    return _figures(instances) | {"by_root": _by_root(instances, names)} | facts


def _graph_facts(rows: pd.DataFrame) -> dict[str, Any]:
    """Mean over the data set's fits (machines of SMD), not over anomalies."""
    if "graph" not in rows or not np.any(rows["graph"].notna().to_numpy()):
        return {}
    fits = rows.drop_duplicates("machine")
    made = fits.loc[fits["status"] != "refused"]
    reasons = fits.loc[fits["status"] == "refused", "reason"]
    return {
        "graph": fits["graph"].iloc[0],
        "score": fits["score"].iloc[0],
        "edges": made["edges"].mean(),
        "possible_edges": fits["possible_edges"].iloc[0],
        "seconds": made["seconds"].median(),
        "fits": len(fits),
        "stopped": int((made["status"] == "stopped").sum()),
        "reason": "; ".join(dict.fromkeys(reasons)),
    }


def _instances(rows: pd.DataFrame) -> list[Instance]:
    out = []
    for row in rows.loc[rows["scores"] != ""].to_dict("records"):
        names = row["clients"].split(";")
        roots = tuple(names.index(root) for root in row["roots"].split(";"))
        out.append(Instance(np.array(json.loads(row["scores"])), roots))
    return out


def _constant(instances: list[Instance]) -> list[Instance]:
    """Always rank by how often a client is a root: known only to who knows the answers."""
    counts = np.zeros(len(instances[0].scores))
    for instance in instances:
        counts[list(instance.roots)] += 1
    return [Instance(counts, instance.roots) for instance in instances]


def _figures(instances: list[Instance]) -> dict[str, Any]:
    found = evaluate_rankings(instances)
    low, high = found.ac1_interval
    return {
        "ac1": found.ac[0],
        "ac2": found.ac[1],
        "ac1_low": low,
        "ac1_high": high,
        "avg3": found.avg[min(2, len(found.avg) - 1)],
        "mrr": found.mrr,
        "balanced_ac1": found.balanced,
        "undefined": found.undefined,
        "count": found.num_instances,
    }


def _by_root(instances: list[Instance], names: list[str]) -> str:
    """How many anomalies of each single root were found at once: "disk 29/36, tcp 2/4"."""
    found: dict[int, list[float]] = {}
    for instance in instances:
        if len(instance.roots) == 1:
            found.setdefault(instance.roots[0], []).append(float(hits(instance)[0]))
    order = sorted(found, key=lambda root: -len(found[root]))
    return ", ".join(f"{names[root]} {sum(found[root]):.3g}/{len(found[root])}" for root in order)


def _chance(instances: list[Instance]) -> dict[str, Any]:
    M = len(instances[0].scores)
    guessed = np.mean([chance_hits(M, len(instance.roots)) for instance in instances], axis=0)
    steps = np.diff(guessed, prepend=0.0)
    return {
        "ac1": guessed[0],
        "ac2": guessed[1],
        "ac1_low": np.nan,
        "ac1_high": np.nan,
        "avg3": guessed[:3].mean(),
        "mrr": float((steps / np.arange(1, M + 1)).sum()),
        "balanced_ac1": 1 / M,
        "undefined": 1.0,
        "count": len(instances),
    }
