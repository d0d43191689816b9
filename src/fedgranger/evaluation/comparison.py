"""What changed between two runs, or between a run and a known graph.

Strengths are compared by their intervals only. A z value for their difference would need runs on
independent data and a strength that is nearly normal; both fail in the common case (the same data
with another option, strengths near zero), so none is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import pandas as pd

from fedgranger.data.known_graph import KnownGraph
from fedgranger.errors import DataError, RunError
from fedgranger.option_fields import check_level
from fedgranger.results import Result
from fedgranger.text import counted

CHANGES = ("appeared", "disappeared", "stayed", "absent", "not tested")
MATCHES = ("missed", "extra", "confirmed", "absent", "not tested")
"""The same five cases against a known graph: in it only, in the run only, in both, in none."""
SCALE_OPTIONS = ("state_model", "state_dim", "max_state_dim", "standardise", "lags", "confidence")
"""Options on which strengths and their intervals depend."""
Rows = dict[tuple[str, str], dict[str, Any]]


class Comparison(NamedTuple):
    """The difference between a first run and a second run or known graph.

    Attributes:
        edges: one row per pair of common clients: `change` (one of `CHANGES` or `MATCHES`),
            cause, effect, strength and q-value (of both runs), changes first, strongest first.
            `intervals` is "apart" or "overlap", empty where there are none or they cannot be
            compared.
        only_first: clients that only the first has, with the number of supported edges they have.
        only_second: clients that only the second has, likewise.
        settings: options that differ: columns `option`, `first`, `second`.
        is_same_data: whether the data are the same; None when that is not known.
        notes: sentences on what to keep in mind.
        headline: the outcome in one sentence.
    """

    edges: pd.DataFrame
    only_first: dict[str, int]
    only_second: dict[str, int]
    settings: pd.DataFrame
    is_same_data: bool | None
    notes: tuple[str, ...]
    headline: str


def compare_runs(
    first: Result, second: Result, *, alpha: float | None = None, correction: str | None = None
) -> Comparison:
    """Compare the edges of two runs over the clients that both have.

    Level and correction are those given, by default each run's own.

    Raises:
        RunError: a run has no tests, or the runs have no two clients in common.
    """
    one = _tested(first, "the first run", alpha, correction)
    two = _tested(second, "the second run", alpha, correction)
    common = [client for client in first.clients if client in second.clients]
    if len(common) < 2:
        raise RunError(
            f"the runs have {counted(len(common), 'client')} in common, so there is no edge to "
            "compare; give runs over the same clients"
        )
    is_comparable = _scale(first, common) == _scale(second, common)
    rows = [
        {
            "change": _change(one[pair]["is_edge"], two[pair]["is_edge"], CHANGES),
            "cause": pair[0],
            "effect": pair[1],
            "strength_first": one[pair]["strength"],
            "strength_second": two[pair]["strength"],
            "strength_change": two[pair]["strength"] - one[pair]["strength"],
            "q_value_first": one[pair]["q_value"],
            "q_value_second": two[pair]["q_value"],
            "intervals": _intervals(one[pair], two[pair]) if is_comparable else None,
        }
        for pair in one
        if pair in two
    ]
    counts = Counter(row["change"] for row in rows)
    settings = _settings(first, second)
    hashes = [run.manifest.data.hash for run in (first, second)]
    is_same_data = hashes[0] == hashes[1] if all(hashes) else None
    notes = _level_notes(first, second, alpha, correction)
    notes += _run_notes(rows, is_comparable, is_same_data)
    return Comparison(
        _table(rows, CHANGES, "strength_second"),
        _left_over(one, first.clients, common),
        _left_over(two, second.clients, common),
        settings,
        is_same_data,
        tuple(notes),
        f"{counted(counts['stayed'], 'edge')} stayed, {counts['appeared']} appeared and "
        f"{counts['disappeared']} disappeared, of {len(rows)} possible between {len(common)} "
        "common clients.",
    )


def compare_with_graph(
    result: Result, graph: KnownGraph, *, alpha: float | None = None, correction: str | None = None
) -> Comparison:
    """Compare the edges of a run with a known graph.

    Clients of the run that the graph does not name have no edges in it. Level and correction are
    those given, by default the run's own.

    Raises:
        DataError: the graph names a client that the run does not have.
        RunError: the run has no tests.
    """
    unknown = [client for client in graph.clients if client not in result.clients]
    if unknown:
        raise DataError(
            f"the known graph names a client '{unknown[0]}' that the run does not have; "
            f"its clients are {', '.join(result.clients)}"
        )
    found = _tested(result, "the run", alpha, correction)
    rows = [
        {
            "change": _change(values["is_edge"], pair in graph.edges, MATCHES),
            "cause": pair[0],
            "effect": pair[1],
            "strength": values["strength"],
            "q_value": values["q_value"],
        }
        for pair, values in found.items()
    ]
    counts = Counter(row["change"] for row in rows)
    silent = [client for client in result.clients if client not in graph.clients]
    notes = []
    if silent:
        names = ", ".join(f"'{name}'" for name in silent)
        notes.append(f"the known graph does not name {names}: taken as without edges")
    untested = sum(bool(pd.isna(found[pair]["is_edge"])) for pair in graph.edges)
    if untested:
        notes.append(f"{counted(untested, 'known edge')} could not be tested in the run")
    return Comparison(
        _table(rows, MATCHES, "strength"),
        _left_over(found, silent, []),
        {},
        pd.DataFrame(columns=["option", "first", "second"]),
        None,
        tuple(notes),
        f"{counts['confirmed']} of {counted(len(graph.edges), 'known edge')} confirmed, "
        f"{counts['missed']} missed, {counts['extra']} extra, of {len(rows)} possible.",
    )


def _tested(result: Result, name: str, alpha: float | None, correction: str | None) -> Rows:
    """Rows of the edge table by pair, or a refusal."""
    check_level("alpha", alpha)
    if result.inference is None:
        reason = result.manifest.inference.reason
        raise RunError(
            f"{name} has no edge tests{f' ({reason})' if reason else ''}, so it does not say which "
            "edges exist; fit with test='debiased'"
        )
    rows: list[dict[str, Any]] = result.edges(alpha=alpha, correction=correction).to_dict("records")
    return {(row["cause"], row["effect"]): row for row in rows}


def _table(rows: list[dict[str, Any]], words: tuple[str, ...], strength: str) -> pd.DataFrame:
    return pd.DataFrame(sorted(rows, key=lambda row: (words.index(row["change"]), -row[strength])))


def _left_over(rows: Rows, clients: Iterable[str], common: list[str]) -> dict[str, int]:
    """Clients that the other side lacks, with the supported edges from or to them."""
    found = [pair for pair, row in rows.items() if not pd.isna(row["is_edge"]) and row["is_edge"]]
    return {
        client: sum(client in pair for pair in found) for client in clients if client not in common
    }


def _change(first: Any, second: Any, words: tuple[str, ...]) -> str:
    if pd.isna(first) or pd.isna(second):
        return words[4]
    cases = {(False, True): words[0], (True, False): words[1], (True, True): words[2]}
    return cases.get((bool(first), bool(second)), words[3])


def _intervals(first: dict[str, Any], second: dict[str, Any]) -> str | None:
    """Do the intervals of the two strengths meet?"""
    ends: list[Any] = [row.get(name) for row in (first, second) for name in ("ci_low", "ci_high")]
    if any(pd.isna(end) for end in ends):
        return None
    low_1, high_1, low_2, high_2 = map(float, ends)
    return "overlap" if low_1 <= high_2 and low_2 <= high_1 else "apart"


def _scale(run: Result, common: list[str]) -> tuple[Any, ...]:
    """How states are made, on which strengths depend: only of one scale can they be compared."""
    dims = dict(zip(run.clients, run.state_dims, strict=True))
    options = [getattr(run.config, name) for name in SCALE_OPTIONS]
    return options, [dims[name] for name in common], run.manifest.inference.test


def _settings(first: Result, second: Result) -> pd.DataFrame:
    one, two = (
        {"version": run.manifest.fedgranger_version, "runtime": run.manifest.runtime}
        | run.config.to_mapping()
        for run in (first, second)
    )
    rows = [
        (name, one.get(name), two.get(name))
        for name in dict.fromkeys([*one, *two])
        if one.get(name) != two.get(name)
    ]
    return pd.DataFrame(rows, columns=["option", "first", "second"], dtype=object)


def _level_notes(
    first: Result, second: Result, alpha: float | None, correction: str | None
) -> list[str]:
    """Edges may come and go only because the runs decide at different levels."""
    one, two = (
        f"{correction or run.config.correction} {run.config.alpha if alpha is None else alpha:g}"
        for run in (first, second)
    )
    if one == two:
        return []
    return [f"the runs decide at their own levels, {one} and {two}; set --alpha and --correction"]


def _run_notes(
    rows: list[dict[str, Any]], is_comparable: bool, is_same_data: bool | None
) -> list[str]:
    notes = []
    untested = sum(row["change"] == "not tested" for row in rows)
    if untested:
        notes.append(f"{counted(untested, 'pair')} could not be tested in one of the runs")
    if not is_comparable:
        notes.append(
            "the runs make their states or intervals differently, so strengths cannot be compared"
        )
    elif any(row["intervals"] for row in rows):
        notes.append(
            "intervals that do not overlap suggest a change; overlapping ones do not exclude it"
        )
        if is_same_data is False:
            notes.append(
                "the data differ and states are scaled by them, so part of a change may be scale"
            )
    return notes
