"""The answer in a sentence, and what gives reason to doubt it."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from fedgranger.report.facts import section_of
from fedgranger.report.markup import escape, format_number
from fedgranger.report.selection import by_strength, edge_flags, has_test

__all__ = ["absence", "cautions", "headline"]

NAMED = 3


def headline(pairs: pd.DataFrame, manifest: Mapping[str, Any]) -> str:
    """Return how many edges hold and which are the strongest."""
    flags, order = edge_flags(pairs), by_strength(pairs)
    if has_test(pairs):
        tested = sum(flag is not None for flag in flags)
        supported = [row for row in order if flags[row] is True]
        verb = "is" if len(supported) == 1 else "are"
        level = _level_text(pairs, manifest)
        text = f"{len(supported)} of {tested} possible edges {verb} supported{level}."
        text = " ".join([text, *absence(manifest)])
        return f"<p class='headline'>{escape(text)}</p>{_strongest(pairs, supported)}"
    if not order or not abs(pairs["strength"].iloc[order[0]]) > 0:
        return "<p class='headline'>No influence between clients was found; no test was run.</p>"
    top = pairs.iloc[order[0]]
    text = (
        f"The strongest influence found is {top['cause']} → {top['effect']} "
        f"(strength {format_number(top['strength'])}); "
        "edges are ranked by strength, no test was run."
    )
    return f"<p class='headline'>{escape(text)}</p>"


def absence(manifest: Mapping[str, Any]) -> list[str]:
    """Say that every edge is conditional on fewer clients when some stayed away."""
    names = [f"'{name}'" for name in manifest.get("left_out") or []]
    if not names:
        return []
    return [
        f"Tested without {', '.join(names)}: what runs through an absent client can look like a "
        "direct edge."
    ]


def cautions(manifest: Mapping[str, Any]) -> str:
    """What gives reason to doubt: doubtful tests, training that did not converge."""
    sentences = [str(note) for note in section_of(manifest, "inference").get("warnings", [])]
    training = section_of(manifest, "training")
    if training.get("converged") is False:
        status = training.get("status")
        reason = f" ({status})" if status else ""
        sentences.append(
            f"FedGC's training stopped before it converged{reason}; its strengths may still change."
        )
    return "".join(
        f"\n<p class='warning'><strong>Caution:</strong> {escape(sentence)}</p>"
        for sentence in sentences
    )


def _strongest(pairs: pd.DataFrame, supported: list[int]) -> str:
    if not supported:
        return ""
    named = [
        f"{pairs['cause'].iloc[row]} → {pairs['effect'].iloc[row]}" for row in supported[:NAMED]
    ]
    which = "The edge is" if len(supported) == 1 else "The strongest:"
    text = f"{which} {', '.join(named)}."
    return f"\n<p class='strongest'>{escape(text)}</p>"


def _level_text(pairs: pd.DataFrame, manifest: Mapping[str, Any]) -> str:
    level = section_of(manifest, "inference").get("alpha")
    if not isinstance(level, float):
        return " by the test"
    has_q = "q_value" in pairs.columns and bool(pairs["q_value"].notna().any())
    return f" at {'q' if has_q else 'p'} ≤ {level:g}"
