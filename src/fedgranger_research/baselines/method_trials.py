"""One method on one problem, timed and scored; and the mean of many."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from fedgranger_research.baselines.method_protocol import BaselineError, EdgeScores, Method
from fedgranger_research.baselines.problems import Problem
from fedgranger_research.baselines.scoring import LEVELS, MEASURES, score_method

COSTS = ("seconds", "messages", "bytes_sent")


def run_method(
    name: str, method: Method, problem: Problem, options: Mapping[str, Any] | None = None
) -> EdgeScores:
    """Fit with the method's defaults and these options; `seconds` are measured here.

    A method that asks for `self_transitions` gets those that the simulation knows.

    Raises:
        BaselineError: an option is unknown, or the method refuses the columns.
    """
    options = dict(options or {})
    for key in options:
        if key not in method.defaults:
            known = ", ".join(method.defaults) or "none"
            raise BaselineError(f"method '{name}' has no option '{key}'; its options are: {known}")
    asked = {**method.defaults, **options}
    if "self_transitions" in method.defaults and problem.own_transitions is not None:
        asked["self_transitions"] = problem.own_transitions
    started = time.perf_counter()
    with threadpool_limits(1):  # on several threads small products wait for each other
        found = method.fit(problem.columns, asked)
    return found._replace(seconds=time.perf_counter() - started)


def score_trial(name: str, method: Method, problem: Problem) -> list[dict[str, Any]]:
    """Rows of a table, one per level; a refusal has its reason and no scores."""
    row: dict[str, Any] = {"method": name, "mode": method.mode}
    try:
        found = run_method(name, method, problem)
    except BaselineError as error:
        nothing = dict.fromkeys((*MEASURES, *COSTS, "residual"), np.nan)
        return [
            row | {"level": level} | nothing | {"status": "refused", "reason": str(error)}
            for level in LEVELS
        ]
    return scored_rows(name, method, found, problem)


def scored_rows(
    name: str, method: Method, found: EdgeScores, problem: Problem
) -> list[dict[str, Any]]:
    """Rows of an answer, with what it cost."""
    row: dict[str, Any] = {"method": name, "mode": method.mode}
    costs = {key: float(getattr(found, key)) for key in (*COSTS, "residual")}
    rest = {"status": found.status, "reason": ""}
    return [
        row
        | {key: np.nan if value is None else value for key, value in scored.items()}
        | costs
        | rest
        for scored in score_method(name, found, problem)
    ]


def summarise_trials(trials: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Mean and standard deviation over data sets; refused ones are counted, not averaged."""
    rows = []
    for key, group in trials.groupby(by, sort=False):
        values = key if isinstance(key, tuple) else (key,)
        row: dict[str, Any] = dict(zip(by, values, strict=True))
        made = group.loc[group["status"] != "refused"]
        row |= {"data_sets": len(group), "refused": len(group) - len(made)}
        row["stopped"] = int((made["status"] == "stopped").sum())
        for name in (*MEASURES, "messages", "bytes_sent"):
            column = made[name].astype(np.float64).dropna()
            row[name] = float(column.mean()) if len(column) else np.nan
            row[f"{name}_sd"] = float(column.std(ddof=1)) if len(column) > 1 else np.nan
        # The first data set of a process compiles; a median is not moved by it.
        row["seconds"] = float(made["seconds"].median()) if len(made) else np.nan
        rows.append(row)
    return pd.DataFrame(rows)
