"""What a run answers: which question, why that one, how many pairs, and which were not tested.

Terminal, page, export and plots take their counts and words from here, so that they agree; so does
the answer in about ten lines, as text or as a card for a notebook.
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedgranger.edge_test_kinds import EDGE_TESTS
from fedgranger.inference.response_words import edge_sentences
from fedgranger.manifest_types import DataFacts, Manifest
from fedgranger.tested_facts import InferenceFacts
from fedgranger.text import format_probability, shorten

RANKING_WORDS = (
    "FedGC's own ranking. It is not a test: strengths are shrunk and react to mere correlation, so "
    "a large one is no evidence of an edge."
)
CORRECTION_WORDS = {
    "bh": "false discovery rate",
    "by": "false discovery rate under any dependence",
    "holm": "chance of any false edge",
    "none": "level of every single test",
}
NOT_ASKED = "no test was asked for (test = 'none')"
NO_REASON = "its test could not be made"
SHOWN_EDGES = 5
SHOWN_CLIENTS = 8


class EdgeCounts(NamedTuple):
    """Pairs of clients: possible = tested + untested, found is a part of tested."""

    possible: int
    tested: int
    found: int

    @property
    def untested(self) -> int:
        """Pairs without a p-value."""
        return self.possible - self.tested


def count_edges(edges: pd.DataFrame) -> EdgeCounts:
    """Count the rows of an edge table, those with a decision and those that are edges."""
    if "is_edge" not in edges.columns:
        return EdgeCounts(len(edges), 0, 0)
    known = edges["is_edge"].dropna().to_numpy(dtype=np.bool_)
    return EdgeCounts(len(edges), len(known), int(known.sum()))


def counts_text(counts: EdgeCounts, level: str = "") -> str:
    """The counts in words; pairs without a test are never hidden in a total.

    `level` is put after the number of edges, such as "(false discovery rate 0.05)".

    Example:
        >>> counts_text(EdgeCounts(6, 5, 2))
        '2 of 5 tested pairs are edges, 1 of 6 pairs was not tested'
        >>> counts_text(EdgeCounts(6, 6, 1))
        '1 of 6 tested pairs is an edge'
    """
    if not counts.tested:
        return "nothing was tested"
    what = "is an edge" if counts.found == 1 else "are edges"
    text = f"{counts.found} of {counts.tested} tested pairs {what}{level and f' {level}'}"
    if counts.untested:
        was = "was" if counts.untested == 1 else "were"
        text += f", {counts.untested} of {counts.possible} pairs {was} not tested"
    return text


def nothing_tested(facts: InferenceFacts) -> str:
    """Why a run has no test at all."""
    return facts.reason or NOT_ASKED


def untested_reasons(edges: pd.DataFrame, facts: InferenceFacts) -> list[str | None]:
    """Per row of an edge table: None where there is a p-value, else why there is none."""
    known = facts.reasons
    default = NO_REASON if count_edges(edges).tested else nothing_tested(facts)
    column = edges["p_value"] if "p_value" in edges.columns else [None] * len(edges)
    rows = zip(edges["cause"], edges["effect"], column, strict=True)
    return [
        str(known.get(f"{cause} -> {effect}", default)) if p is None or pd.isna(p) else None
        for cause, effect, p in rows
    ]


def question_sentences(facts: InferenceFacts) -> list[str]:
    """Which question was tested, why that one, and where the other answer is."""
    kind = facts.test
    if kind not in EDGE_TESTS or facts.reason is not None:
        return []
    out = [f"Tested: {EDGE_TESTS[kind].question}?"]
    if facts.test_reason:
        out.append(f"Why this test: {facts.test_reason}.")
    if kind == "readings" and facts.responses:
        out.append("Effects are those of measured states; sensor noise makes them look smaller.")
    if facts.beside and facts.beside.test in EDGE_TESTS:
        other = EDGE_TESTS[facts.beside.test]
        out.append(f"The {other.title} was made too: edges_{other.file_word}.csv.")
    return out


def answer_sentence(
    pairs: pd.DataFrame,
    facts: InferenceFacts,
    alpha: float | None = None,
    correction: str | None = None,
) -> str:
    """How many pairs are edges, at what level and how many were not tested; or why none was.

    Level and correction are those of the facts, unless others are given.
    """
    counts = count_edges(pairs)
    if not counts.tested:
        return f"Nothing was tested: {nothing_tested(facts).rstrip('.')}."
    level = facts.alpha if alpha is None else alpha
    words = CORRECTION_WORDS.get(correction or facts.correction or "", "level")
    note = "" if level is None else f"({words} {level:g})"
    return f"{counts_text(counts, note)}."


def absence(manifest: Manifest) -> list[str]:
    """A sentence that every edge is conditional on fewer clients when some stayed away."""
    names = [f"'{name}'" for name in manifest.left_out or []]
    if not names:
        return []
    return [
        f"Tested without {', '.join(names)}: what runs through an absent client can look like a "
        "direct edge."
    ]


def summary_lines(edges: pd.DataFrame, manifest: Manifest) -> list[str]:
    """The data, the answer, the question, the edges that were found and what to know of them.

    `edges` are sorted, most certain first.
    """
    facts, data = manifest.inference, manifest.data
    names = [shorten(name) for name in data.clients]
    listed = ", ".join(names[:SHOWN_CLIENTS])
    if len(names) > SHOWN_CLIENTS:
        listed += f" and {len(names) - SHOWN_CLIENTS} more"
    period = f"{data.num_steps} steps" if data.period is None else data.period.text
    out = [f"{len(names)} clients ({listed}), {period}", answer_sentence(edges, facts)]
    out += question_sentences(facts)[:1]
    if count_edges(edges).tested:
        out += _edge_lines(edges, facts, data)
    notes = sorted(data.notes, key=lambda note: "left out" not in note)
    out += _first("Data", notes, "manifest.data.notes")
    from fedgranger.inference.audit_words import reservation  # needs scipy, the rest does not

    cautions = [*filter(None, [reservation(facts)]), *facts.warnings]
    return out + _first("Caution", cautions, "diagnose")


def _first(word: str, sentences: list[str], where: str) -> list[str]:
    """The first of some sentences, and where the others are."""
    more = f" ({len(sentences) - 1} more in {where})" if len(sentences) > 1 else ""
    return [f"{word}: {sentence}{more}" for sentence in sentences[:1]]


def _edge_lines(edges: pd.DataFrame, facts: InferenceFacts, data: DataFacts) -> list[str]:
    words = edge_sentences(facts, data)
    found = edges.loc[edges["is_edge"].fillna(False).astype(bool)]
    out = []
    for cause, effect, p in (
        found[["cause", "effect", "p_value"]].head(SHOWN_EDGES).itertuples(index=False)
    ):
        course = words.get(f"{cause} -> {effect}")
        more = f": {course}" if course else ""
        out.append(f"  {cause} -> {effect} (p {format_probability(p)}){more}")
    if len(found) > SHOWN_EDGES:
        out.append(f"  and {len(found) - SHOWN_EDGES} more: edges(sort=True)")
    return out


def summary_html(edges: pd.DataFrame, manifest: Manifest) -> str:
    """The same as a card."""
    first, *rest = summary_lines(edges, manifest)
    items = "".join(f"<li>{escape(line.strip())}</li>" for line in rest)
    return f"<div><strong>{escape(first)}</strong><ul>{items}</ul></div>"
