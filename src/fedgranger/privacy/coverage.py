"""What ε does not speak of, in sentences: nothing that leaves a client is left out silently."""

from __future__ import annotations

from fedgranger.manifest_types import PrivacyFacts

ALWAYS = (
    "when a client measured and when not, its clock and version: taken as known",
    "which samples count as missing because they hold a code, or because a counter was reset, and "
    "how missing sensors change the mean measurement error of the states",
    "which sensors are used by their change per row, where the data were looked at to choose them "
    "(name them with --difference, or use 'none')",
    "that a client refuses or fails, and how long it takes to answer",
    "in a watch over new data: what is normal (how sensors are weighed, where the range ends), "
    "which was learned from the training data",
    "attacks on the rounding of noise in floating-point numbers",
)
IDENTIFIED = (
    "which combinations of sensors the states are, how many, how they move by themselves, their "
    "unit and their measurement error: the local model was identified from the same data (declare "
    "one with --models, from older data or the plant's own documents, and it is covered)"
)
SEASON = (
    "what repeats: its pattern was fitted to the same data (period = 'none' leaves it in, and it "
    "is covered)"
)
EDGES = (
    "the edges, to whoever is shown the server's result; the alarms that it tells the clients, and "
    "after how many rounds it ends"
)


def privacy_sentence(facts: PrivacyFacts) -> str:
    """What the noise of a run is worth, for the terminal and the page."""
    whom = "the server and everybody else" if facts.direction == "to-server" else "other clients"
    return (
        f"noise was added against {whom}: ε = {facts.epsilon:.3g} at δ = {facts.delta:g} "
        f"for {facts.neighbours}; 'fedgranger privacy RUN' says what that does not cover"
    )


def not_covered(
    *, is_declared: bool, has_season: bool, is_to_server: bool = True
) -> tuple[str, ...]:
    """Sentences for a client that declared its local model or not, and took out what repeats."""
    found = () if is_declared else (IDENTIFIED,)
    found += (SEASON,) if has_season else ()
    found += () if is_to_server else (EDGES,)
    return (*found, *ALWAYS)
