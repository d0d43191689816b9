"""The edge tests by name: what is asked, the words for it, options. A new test begins here.

>>> STATE_TESTS
('debiased', 'readings', 'nonlinear')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from fedgranger.learning_options import AUTO, Auto
from fedgranger.option_fields import check_whole, choice, flag, number, text, whole
from fedgranger.option_sets import Options


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
ESTIMATES = ("auto", *STATE_TESTS, "fedgc")
"""What a result may be asked for: the run's choice, a test's or FedGC's."""
AUTO_TESTS = ("debiased", "readings")
"""Between which `test = "auto"` chooses."""
LEAST_SPANS = {"none": 0, "ewma": 1, "window": 1, "periodic": 2, "regime": 0}
"""`weighting_span` of the weights."""
CORRECTIONS = ("bh", "by", "holm", "none")
"""Ways to correct for testing many edges."""
HAC_RULES = ("model", "newey-west", "andrews")
"""Ways to choose the lags of the sandwich."""


@dataclass(frozen=True)
class EdgeTestOptions(Options):
    """Which edges are reported."""

    subject = "edge_tests"
    test: str = choice(
        "auto",
        ("auto", *EDGE_TESTS, "none"),
        "which question is put to the clients' states. \"debiased\": does the cause's latent state "
        "drive the effect's, measurement error taken out; \"readings\": do the cause's past states "
        "help to predict the effect beyond its own past, with p-values from copies whose clocks "
        'were shifted; "auto": the first where its model passes every check, else the second; '
        '"nonlinear": is there any linear, quadratic or interacting influence. '
        "\"asymptotic\" tests FedGC's own estimate with its steady-state covariance (the paper's "
        'test, which does not control false edges); "none" does not test',
        everyday=True,
    )
    alpha: float = number(
        0.05,
        "an edge is reported when its adjusted p-value is at most this",
        above=0,
        below=1,
        everyday=True,
    )
    correction: str = choice("bh", CORRECTIONS, "for testing many edges: bh, by, holm or none")
    confidence: float = number(0.95, "level of the entries' intervals", above=0, below=1)
    lags: int | Auto = whole(
        "auto",
        'how many lags of the causes are tested, or "auto": by an information criterion '
        "(debiased), or up to the last one at which something arrives (readings)",
        least=1,
        words=AUTO,
    )
    max_lags: int = whole(10, 'largest number "auto" may choose', least=1)
    copies: int = whole(60, "copies with shifted clocks, for all tests but debiased", least=20)
    nonlinear_regression: str = choice(
        "features",
        ("features", "boosting", "network"),
        "what the nonlinear test predicts states with: products and random features by ridge, "
        "gradient-boosted trees, or a small network; only of features is the level known to hold "
        "on all systems that were tried",
    )
    covariance: str = choice(
        "sandwich",
        ("sandwich", "homoskedastic"),
        '"sandwich", or "homoskedastic" (right only without measurement noise)',
    )
    noise_correction: bool = flag(
        True,
        "take the measurement error of the states out of the debiased estimate. False tests the "
        "states as they are, which is for data whose noise cannot be told from the states: clients "
        "that share a signal can then come out as edges",
    )
    hac: str = choice(
        "model",
        HAC_RULES,
        "lags of the sandwich: model, newey-west or andrews",
    )
    weighting: str = choice(
        "none",
        ("none", "ewma", "window", "periodic", "regime"),
        "for data that drift, which time steps count in the latent test: none (all alike), ewma "
        "(less and less back in time), window (the last ones), periodic (those at the same phase "
        "of a cycle as the last one, such as the same hour of the day) or regime (those since the "
        "last change)",
    )
    weighting_span: int = whole(
        0,
        "in steps: half-life of ewma, length of window, period of periodic; of regime the "
        "half-life of what was before the change (0: it does not count)",
    )
    regime_start: str = text(
        "auto",
        'when the present regime began: a time of the data, or "auto": the last change that the '
        "clients' states show",
    )
    time_windows: int = whole(
        0,
        "also follow every edge through so many stretches of the record, each overlapping half of "
        "the next, for 'fedgranger edges RUN --over-time'; 0 does not",
        below=1000,
    )

    def __post_init__(self) -> None:
        """Check the span first: its least value is that of the weights, not that of the option."""
        least = LEAST_SPANS.get(self.weighting) if isinstance(self.weighting, str) else None
        if least is not None:
            check_whole("weighting_span", self.weighting_span, least)
        super().__post_init__()
