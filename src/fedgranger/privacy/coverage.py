"""What ε does not speak of, in sentences: nothing that leaves a client is left out silently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ALWAYS = (
    "when a client measured and when not, its clock and version: taken as known",
    "which samples count as missing because they hold a code, or because a counter was reset",
    "that a client refuses or fails, and how long it takes to answer",
    "attacks on the rounding of noise in floating-point numbers",
)
IDENTIFIED = (
    "which combination of sensors each state is, its unit and its measurement error: the local "
    "model was identified from the same data (declare one with --models, from older data or the "
    "plant's own documents, and it is covered)"
)
SEASON = (
    "what repeats: its pattern was fitted to the same data (period = 'none' leaves it in, and it "
    "is covered)"
)
EDGES = "the edges and alarms that the server tells the clients"


def privacy_sentence(facts: Mapping[str, Any]) -> str:
    """What the noise of a run is worth, for the terminal and the page."""
    whom = "the server and everybody else" if facts["direction"] == "to-server" else "other clients"
    return (
        f"noise was added against {whom}: ε = {facts['epsilon']:.3g} at δ = {facts['delta']:g} "
        f"for {facts['neighbours']}; 'fedgranger privacy RUN' says what that does not cover"
    )


def not_covered(
    *, is_declared: bool, has_season: bool, is_to_server: bool = True
) -> tuple[str, ...]:
    """Sentences for a client that declared its local model or not, and took out what repeats."""
    found = () if is_declared else (IDENTIFIED,)
    found += (SEASON,) if has_season else ()
    found += () if is_to_server else (EDGES,)
    return (*found, *ALWAYS)
