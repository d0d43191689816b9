"""The answer in a sentence, and what gives reason to doubt it; the same words as the terminal's."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from fedgranger.inference.answer import (
    absence,
    answer_sentence,
    count_edges,
    question_sentences,
)
from fedgranger.inference.audit_words import reservation
from fedgranger.report.facts import section_of
from fedgranger.report.selection import by_strength, edge_flags
from fedgranger.report.view import Headline

NAMED = 3


def headline_view(pairs: pd.DataFrame, manifest: Mapping[str, Any]) -> Headline:
    """How many edges hold, which question was asked, which edges are the strongest; doubts."""
    facts = section_of(manifest, "inference")
    choose = ["Choose it under 'test' below."] if section_of(facts, "beside") else []
    return Headline(
        answer=answer_sentence(pairs, facts),
        is_tested=count_edges(pairs).tested > 0,
        question=" ".join([*question_sentences(facts), *choose, *absence(manifest)]),
        strongest=_strongest(pairs),
        cautions=_cautions(manifest),
    )


def _cautions(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """What gives reason to doubt: doubtful tests, training that did not converge."""
    facts = section_of(manifest, "inference")
    headline = str(facts.get("reason", ""))
    notes = [str(note) for note in facts.get("warnings", [])]
    sentences = [
        note for note in notes if not (headline and headline in note)
    ]  # the headline has it
    sentences += [doubt] if (doubt := reservation(facts)) else []
    training = section_of(manifest, "training")
    if training.get("converged") is False:
        status = training.get("status")
        reason = f" ({status})" if status else ""
        sentences.append(
            f"FedGC's training stopped before it converged{reason}; its strengths may still change."
        )
    return tuple(sentences)


def _strongest(pairs: pd.DataFrame) -> str:
    flags = edge_flags(pairs)
    supported = [row for row in by_strength(pairs) if flags[row] is True]
    if not supported:
        return ""
    named = [
        f"{pairs['cause'].iloc[row]} → {pairs['effect'].iloc[row]}" for row in supported[:NAMED]
    ]
    which = "The edge is" if len(supported) == 1 else "The strongest:"
    return f"{which} {', '.join(named)}."
