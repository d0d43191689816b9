"""The first screen, for the person who must decide: data, answer, trust, gaps, what to do next."""

from collections import Counter

import pandas as pd

from fedgranger.inference.answer import (
    absence,
    answer_sentence,
    count_edges,
    question_sentences,
    untested_reasons,
)
from fedgranger.inference.audit_words import controls, verdict
from fedgranger.inference.response_words import edge_sentences
from fedgranger.manifest_types import DataFacts, Manifest
from fedgranger.report.pairs import supported_edges
from fedgranger.report.view import Section
from fedgranger.tested_facts import InferenceFacts
from fedgranger.text import counted, format_share

NAMED = 5
"""So many edges, and so many reasons why pairs were not tested, are given."""


def first_screen(pairs: pd.DataFrame, manifest: Manifest) -> Section:
    """What the page says before any picture."""
    facts, data = manifest.inference, manifest.data
    counts, edges = count_edges(pairs), supported_edges(pairs)
    choose = ["Choose it under 'test' below."] if facts.beside else []
    courses = edge_sentences(facts, data)
    words = [
        (f"{cause} → {effect}", courses.get(f"{cause} -> {effect}", ""))
        for cause, effect in edges[:NAMED]
    ]
    cautions = _cautions(manifest)
    return {
        "answer": answer_sentence(pairs, facts),
        "is_tested": counts.tested > 0,
        "data": data_sentence(data),
        "edges": words,
        "more_edges": max(len(edges) - NAMED, 0),
        "question": " ".join([*question_sentences(facts), *choose, *absence(manifest)]),
        "trust": verdict(facts) if counts.tested else "",
        "untested": _untested(pairs, facts) if counts.tested else [],
        "next": _next_steps(edges, counts.tested, counts.untested, facts, bool(cautions)),
        "cautions": cautions,
    }


def data_sentence(data: DataFacts) -> str:
    """Clients, sensors, period, interval and what is missing; empty when nothing is known."""
    rows = data.clients.values()
    if not rows:
        return ""
    sensors = sum(row.num_sensors or 0 for row in rows)
    out = f"{len(rows)} clients" + (f" with {counted(sensors, 'sensor')}" if sensors else "")
    if data.period is not None:
        out += f"; {data.period.text}"
    elif data.num_steps:
        out += f"; {data.num_steps} time steps"
    missing = max(row.missing_share or 0.0 for row in rows)
    if missing:
        out += f"; up to {format_share(missing)} of a client's time steps missing"
    return f"{out}."


def _untested(pairs: pd.DataFrame, facts: InferenceFacts) -> list[str]:
    """The reasons why pairs have no test, with their pairs, most frequent first."""
    reasons = untested_reasons(pairs, facts)
    names = [f"{c} → {e}" for c, e in zip(pairs["cause"], pairs["effect"], strict=True)]
    by_reason = Counter(reason for reason in reasons if reason)
    out = []
    for reason, count in by_reason.most_common(NAMED):
        first = [name for name, why in zip(names, reasons, strict=True) if why == reason][:NAMED]
        more = f" and {count - len(first)} more" if count > len(first) else ""
        out.append(f"{', '.join(first)}{more}: {reason}")
    return out


def _next_steps(
    edges: list[tuple[str, str]],
    tested: int,
    untested: int,
    facts: InferenceFacts,
    has_cautions: bool,
) -> list[str]:
    """What a reader can do with this answer."""
    if not tested:
        return [
            "Do what the reason above names, and fit again; 'fedgranger check DATA' proposes "
            "options."
        ]
    out = ["Read the cautions first."] if has_cautions else []
    if edges:
        out += [_ask(edges[0], facts), COMMON_DRIVER]
        out.append("When something goes wrong: 'fedgranger rca RUN --data NEW' ranks who began.")
    elif found := controls(facts):
        out.append(
            "No edge is not no influence: with these data influences up to "
            f"{found[0].size:.2g} innovation s.d. could have been missed; more data would show "
            "smaller ones."
        )
    if untested:
        out.append("Pairs that were not tested are unknown, not absent; their reasons are above.")
    return out


COMMON_DRIVER = (
    "Ask whether something that nobody here records (weather, load, a common supply) moves both: "
    "it would look the same."
)


def _ask(edge: tuple[str, str], facts: InferenceFacts) -> str:
    """Whom to ask about the strongest edge, and which sensors to open."""
    cause, effect = edge
    found = (facts.sensor_responses or {}).get(f"{cause} -> {effect}")
    sensors = ""
    if found:
        sensors = f" Open {cause}.{found.cause_sensor} and {effect}.{found.effect_sensor}."
    return f"Ask those who run {cause} and {effect} whether the one can act on the other.{sensors}"


def _cautions(manifest: Manifest) -> list[str]:
    """What gives reason to doubt: doubtful tests, training that did not converge."""
    headline, training = manifest.inference.reason, manifest.training
    # not what the headline says already
    sentences = [
        note for note in manifest.inference.warnings if not (headline and headline in note)
    ]
    if training.converged is False:
        reason = f" ({training.status})" if training.status else ""
        sentences.append(
            f"FedGC's training stopped before it converged{reason}; its strengths may still change."
        )
    return sentences
