r"""What a run asks of the noise: how much, against whom, and how it is shared among the messages.

Every message is a Gaussian release of size μ = sensitivity / noise (`privacy.accounting`), and a
run costs \(\mu^2 = \sum_i \mu_i^2\). Of a run's μ² the states that the edge tests use get all, or
half where FedGC's rounds are wanted too:

| part | of | what |
|---|---|---|
| 0.99 | tests | the states, once |
| 0.01 | tests | how many of them were clipped, once |
| 1/4 | rounds | filtered states, once |
| 1/4 | rounds | the client's own moments; they never leave, but θ is solved from them |
| 1/4 | rounds | augmented states, a part for every round |
| 1/4 | rounds | gradients times measurements, a part for every round; likewise |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from scipy import special

from fedgranger.privacy.accounting import mu_of
from fedgranger.privacy.sensitivity import Neighbours, memoryless

CLIPPED_TAIL = 1e-3
"""Share of Gaussian states of the model that the automatic bound clips."""
COUNT_SHARE = 0.01
ROUND_SHARES = {"filtered": 0.25, "moments": 0.25, "augmented": 0.25, "feedback": 0.25}


class Sizes(NamedTuple):
    """μ of every message of a run; 0: it is not sent. Those of rounds are for each round."""

    states: float
    clipped: float
    filtered: float = 0.0
    moments: float = 0.0
    augmented: float = 0.0
    feedback: float = 0.0

    def total(self, rounds: int) -> float:
        """μ of the whole run after so many rounds."""
        once = (self.states, self.clipped, self.filtered, self.moments)
        each = (self.augmented, self.feedback)
        return math.sqrt(sum(mu**2 for mu in once) + rounds * sum(mu**2 for mu in each))


@dataclass(frozen=True)
class PrivacyTerms:
    """What the clients of a run agree to.

    Attributes:
        epsilon: ε of the whole run; None: it follows from the noise.
        delta: δ at which ε is stated.
        noise: standard deviation of the noise on a state in units of the state's own; None: it
            follows from ε and δ.
        neighbours: which records must be hard to tell apart.
        clip: largest norm of a state in those units; None: for a tail of `CLIPPED_TAIL`.
        rounds: among how many rounds of FedGC their part is shared.
    """

    epsilon: float | None
    delta: float
    noise: float | None
    neighbours: Neighbours
    clip: float | None
    rounds: int

    def bound(self, dim: int) -> float:
        """Largest norm of so many numbers with variance one."""
        return self.clip or math.sqrt(special.chdtri(dim, CLIPPED_TAIL))

    def sizes(self, state_dim: int, num_steps: int, *, has_tests: bool, has_rounds: bool) -> Sizes:
        """μ of every message of a client with so many states."""
        tests = (0.5 if has_rounds else 1.0) if has_tests else 0.0
        rounds = 1 - tests if has_rounds else 0.0
        if self.noise is None:
            total = mu_of(self.epsilon or 0.0, self.delta) ** 2
        else:
            bound = self.bound(state_dim)
            states = memoryless(bound, self.neighbours, num_steps) / self.noise
            total = states**2 / ((1 - COUNT_SHARE) * (tests or rounds))
        part = {name: share * rounds * total for name, share in ROUND_SHARES.items()}
        return Sizes(
            math.sqrt((1 - COUNT_SHARE) * tests * total),
            math.sqrt(COUNT_SHARE * tests * total),
            math.sqrt(part["filtered"]),
            math.sqrt(part["moments"]),
            math.sqrt(part["augmented"] / self.rounds),
            math.sqrt(part["feedback"] / self.rounds),
        )
