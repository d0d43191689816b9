"""The edge tests by name: what is asked, and the words for it. A new test begins with a line here.

>>> STATE_TESTS
('debiased', 'readings', 'nonlinear')
"""

from __future__ import annotations

from typing import NamedTuple


class EdgeTestKind(NamedTuple):
    """One test.

    Attributes:
        title: what it is called in a sentence.
        label: what it is called on the page.
        question: what it asks, without the question mark.
        file_word: ending of its tables in a run folder where another test gave the answer.
        needs_states_only: sites may allow it in their policy; others need all data in one place.
        estimates_transition: its coefficients are those of the model's transition matrix.
    """

    title: str
    label: str
    question: str
    file_word: str
    needs_states_only: bool
    estimates_transition: bool


EDGE_TESTS = {
    "debiased": EdgeTestKind(
        "latent test",
        "latent influence",
        "does the latent influence exist, that is, does the cause's true state move the effect's "
        "once measurement noise is taken out, given all clients' pasts",
        "latent",
        needs_states_only=True,
        estimates_transition=True,
    ),
    "readings": EdgeTestKind(
        "readings' test",
        "readings, shifted clocks",
        "do the cause's past states help to predict the effect beyond the effect's own past and "
        "the other clients",
        "readings",
        needs_states_only=True,
        estimates_transition=False,
    ),
    "nonlinear": EdgeTestKind(
        "nonlinear test",
        "nonlinear influence",
        "does what is new in the cause's states move the effect's next states, linearly, through "
        "squares and products, or together with the effect's own state or a third client's, given "
        "the effect's past and the other clients",
        "nonlinear",
        needs_states_only=True,
        estimates_transition=False,
    ),
    "asymptotic": EdgeTestKind(
        "test of FedGC's limit",
        "FedGC's limit (asymptotic)",
        "is FedGC's own limit different from zero (which is not the same as an influence)",
        "asymptotic",
        needs_states_only=False,
        estimates_transition=True,
    ),
}
STATE_TESTS = tuple(name for name, test in EDGE_TESTS.items() if test.needs_states_only)
"""What clients' states may be used for."""
AUTO_TESTS = ("debiased", "readings")
"""Between which `test = "auto"` chooses."""
