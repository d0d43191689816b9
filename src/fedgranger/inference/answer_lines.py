"""A run's answer in about ten lines: as text for a terminal, as a card for a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd

from fedgranger.inference.answer import answer_sentence, count_edges, question_sentences
from fedgranger.inference.response_words import edge_sentences
from fedgranger.text import format_probability, shorten

SHOWN_EDGES = 5
SHOWN_CLIENTS = 8


def summary_lines(edges: pd.DataFrame, manifest: Mapping[str, Any]) -> list[str]:
    """The data, the answer, the question, the edges that were found and what to know of them.

    `edges` are sorted, most certain first.
    """
    facts, data = manifest["inference"], manifest["data"]
    names = [shorten(name) for name in data["clients"]]
    listed = ", ".join(names[:SHOWN_CLIENTS])
    if len(names) > SHOWN_CLIENTS:
        listed += f" and {len(names) - SHOWN_CLIENTS} more"
    period = (data.get("period") or {}).get("text") or f"{data['num_steps']} steps"
    out = [f"{len(names)} clients ({listed}), {period}", answer_sentence(edges, facts)]
    out += question_sentences(facts)[:1]
    if count_edges(edges).tested:
        out += _edge_lines(edges, facts, data)
    notes = sorted(data.get("notes") or [], key=lambda note: "left out" not in note)
    out += _first("Data", notes, "manifest['data']['notes']")
    from fedgranger.inference.audit_words import reservation  # needs scipy, the rest does not

    cautions = [*filter(None, [reservation(facts)]), *(facts.get("warnings") or [])]
    return out + _first("Caution", cautions, "diagnose")


def _first(word: str, sentences: list[str], where: str) -> list[str]:
    """The first of some sentences, and where the others are."""
    more = f" ({len(sentences) - 1} more in {where})" if len(sentences) > 1 else ""
    return [f"{word}: {sentence}{more}" for sentence in sentences[:1]]


def _edge_lines(
    edges: pd.DataFrame, facts: Mapping[str, Any], data: Mapping[str, Any]
) -> list[str]:
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


def summary_html(edges: pd.DataFrame, manifest: Mapping[str, Any]) -> str:
    """The same as a card."""
    first, *rest = summary_lines(edges, manifest)
    items = "".join(f"<li>{escape(line.strip())}</li>" for line in rest)
    return f"<div><strong>{escape(first)}</strong><ul>{items}</ul></div>"
