"""What the page's script needs, as one JSON text: pairs, tests, entries, names."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.edge_test_kinds import EDGE_TESTS
from fedgranger.inference.answer import (
    RANKING_WORDS,
    nothing_tested,
    question_sentences,
    untested_reasons,
)
from fedgranger.report.pairs import MAX_ROWS, has_test, numbers, page_reasons
from fedgranger.tested_facts import InferenceFacts
from fedgranger.text import printable, shorten, wrap

MOST_ENTRIES = 40_000
"""Above this many entries the page leaves them out."""
ENTRY_NUMBERS = {"estimate": "estimate", "low": "ci_low", "high": "ci_high", "p": "p_value"}
DRAWN = {
    "test": (
        "Drawn are the edges that the test supports. An arrow points from cause to effect; the "
        "wider it is, the stronger the influence. Point at an arrow or a client for more."
    ),
    "fedgc": (
        "FedGC's ranking is not a test, so no arrow is drawn; matrix, strengths and table show it."
    ),
    "none": "Nothing was tested, so no arrow is drawn.",
}
"""What the graph shows, by what is chosen."""
RANKING = "FedGC's ranking, not tested"


def build_payload(
    clients: Sequence[str],
    pairs: pd.DataFrame,
    entries: pd.DataFrame | None,
    fedgc: pd.DataFrame | None,
    inference: InferenceFacts,
    couplings: Any,
    beside: pd.DataFrame | None = None,
) -> dict[str, Any]:
    """Collect plain values; missing numbers are null.

    `pairs` are checked, `fedgc` and `beside` hold the same pairs (FedGC's own strengths, the other
    test), `couplings` are those that were tested ("all" or None: all).
    """
    place = {name: k for k, name in enumerate(clients)}
    causes, effects = ([place[name] for name in pairs[side]] for side in ("cause", "effect"))
    given = None if entries is None or len(entries) > MOST_ENTRIES else _entries(pairs, entries)
    return {
        "clients": [printable(name) for name in clients],
        "labels": [shorten(name, 20) for name in clients],
        "lines": [wrap(shorten(name, 30)) for name in clients],
        "cause": causes,
        "effect": effects,
        "counted": _counted(pairs, couplings),
        "tests": _tests(pairs, entries, fedgc, inference, beside),
        "drawn": DRAWN,
        "entries": given,
        "alpha": 0.05 if inference.alpha is None else inference.alpha,
        "correction": inference.correction or "bh",
        "confidence": inference.confidence,
        "mostRows": MAX_ROWS,
    }


def to_script_text(payload: Mapping[str, Any]) -> str:
    """JSON that cannot end its script element, whatever names it holds."""
    text = json.dumps(payload, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _tests(
    pairs: pd.DataFrame,
    entries: pd.DataFrame | None,
    fedgc: pd.DataFrame | None,
    inference: InferenceFacts,
    beside: pd.DataFrame | None,
) -> list[dict[str, Any]]:
    """The run's own test first, then what else its files allow."""
    out: list[dict[str, Any]] = []
    if has_test(pairs):
        own = _edge_test(pairs, inference)
        out.append(own)
        if beside is not None:
            other = inference.beside or InferenceFacts()
            out.append(_edge_test(_like(pairs, beside), other))
        if entries is not None and not entries.empty:
            kept = {key: value for key, value in own.items() if key not in ("statistic", "df")}
            p, label = _smallest_entry(pairs, entries), "smallest entry (Bonferroni)"
            out.append({**kept, "id": "entries", "label": label, "p": p, "hasEntries": True})
        own["hasEntries"] = True
    else:
        nothing = {"id": "none", "label": "nothing was tested", "strength": [None] * len(pairs)}
        words = f"Nothing was tested: {nothing_tested(inference)}."
        out.append({**nothing, "untested": page_reasons(pairs, inference), "question": words})
    if fedgc is not None:
        strength = _numbers(_like(pairs, fedgc), "strength")
        ranking = {"id": "fedgc", "label": RANKING, "strength": strength}
        out.append({**ranking, "question": RANKING_WORDS})
    return out


def _like(pairs: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """The rows of another table, in the order of the pairs."""
    order = pd.MultiIndex.from_arrays([pairs["cause"], pairs["effect"]])
    return other.set_index(["cause", "effect"]).reindex(order).reset_index()


def _edge_test(pairs: pd.DataFrame, facts: InferenceFacts) -> dict[str, Any]:
    """Numbers, question and untested pairs of one test."""
    kind = facts.test or "debiased"
    low, high = (_numbers(pairs, column) for column in ("ci_low", "ci_high"))
    has_range = any(value is not None for value in (*low, *high))
    return {
        "id": kind,
        "label": EDGE_TESTS[kind].label if kind in EDGE_TESTS else "edge test",
        "strength": _numbers(pairs, "strength"),
        **({"low": low, "high": high} if has_range else {}),
        "statistic": _numbers(pairs, "statistic"),
        "df": _numbers(pairs, "df"),
        "p": _numbers(pairs, "p_value"),
        "untested": untested_reasons(pairs, facts),
        "question": " ".join(question_sentences(facts)),
    }


def _smallest_entry(pairs: pd.DataFrame, entries: pd.DataFrame) -> list[float | None]:
    """Smallest p-value of a pair's entries times their number: finds one strong entry."""
    groups = entries.groupby(["cause", "effect"], sort=False)["p_value"]
    bound = (groups.min() * groups.size()).clip(upper=1.0)
    order = pd.MultiIndex.from_arrays([pairs["cause"], pairs["effect"]])
    table = pd.DataFrame({"p": bound.reindex(order).to_numpy()})
    table.loc[pairs["p_value"].isna().to_numpy(), "p"] = np.nan  # refused as a whole
    return _numbers(table, "p")


def _entries(pairs: pd.DataFrame, entries: pd.DataFrame) -> dict[str, Any]:
    """Entries sorted by pair; those of pair i are start[i] … start[i + 1] − 1."""
    place = {pair: i for i, pair in enumerate(zip(pairs["cause"], pairs["effect"], strict=True))}
    owner = np.array(
        [place[str(c), str(e)] for c, e in zip(entries["cause"], entries["effect"], strict=True)],
        dtype=np.int64,
    )
    ordered = entries.iloc[np.argsort(owner, kind="stable")]
    start = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(pairs)))])
    return {
        "start": start.tolist(),
        "row": ordered["row"].tolist(),
        "col": ordered["col"].tolist(),
        **{name: _numbers(ordered, column, digits=9) for name, column in ENTRY_NUMBERS.items()},
    }


def _counted(pairs: pd.DataFrame, couplings: Any) -> list[bool]:
    if couplings is None or couplings == "all":
        return [True] * len(pairs)
    wanted = {(str(cause), str(effect)) for cause, effect in couplings}
    return [pair in wanted for pair in zip(pairs["cause"], pairs["effect"], strict=True)]


def _numbers(table: pd.DataFrame, column: str, digits: int = 17) -> list[float | None]:
    """Values of a column (17 digits lose nothing), null where there is none."""
    values = numbers(table, column)
    return [float(f"{x:.{digits}g}") if np.isfinite(x) else None for x in values]
