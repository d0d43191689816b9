r"""The paper's own formulas for noise (its appendix on privacy), by name, beside what they miss.

For one message of one step, with sensitivity \(\Delta\) for a change of that step's data,

$$\sigma = \frac{\Delta\,\sqrt{2 \ln(1.25/\delta)}}{\epsilon}, \qquad
  \Delta(\hat h) = 2B, \quad \Delta(\Gamma) = 2 B_c B_a, \quad \Delta(\Psi) = 2 B_v B_c.$$

Warning: no run should be judged by them. They do not cover

- **the whole run**: a run sends T steps, and in FedGC's loop each of them in every round;
- **the filter's memory**: one measurement moves \(\hat h_c\) of its own step and of all later ones,
  so the trajectory moves farther than any single message (`sensitivity.filtered`);
- **θ**, which was learned from all measurements, so that \(\hat h_a\), \(\Gamma\) and \(\Psi\) of
  every step depend on each of them;
- ε of 1 and more, for which the formula for σ is not proven (`accounting.classical_mu`);
- norms that are assumed instead of enforced by clipping.

Everything that a private run reports comes from `sensitivity` and `accounting` instead.
"""

from __future__ import annotations

import math

from fedgranger.errors import ConfigError
from fedgranger.privacy.accounting import classical_mu, composed, epsilon_of


def step_sensitivity(bound: float) -> float:
    """2B: of one state of one step, when its measurement is another one."""
    return 2.0 * _checked(bound)


def gamma_sensitivity(filtered_bound: float, augmented_bound: float) -> float:
    r"""\(2 B_c B_a\): of the covariance \(\Gamma\) of filtered and augmented states of one step."""
    return 2.0 * _checked(filtered_bound) * _checked(augmented_bound)


def psi_sensitivity(parameter_bound: float, filtered_bound: float) -> float:
    r"""\(2 B_v B_c\): of the covariance \(\Psi\) of vec(θ) and filtered states of one step."""
    return 2.0 * _checked(parameter_bound) * _checked(filtered_bound)


def noise_of(sensitivity: float, epsilon: float, delta: float) -> float:
    """σ by the textbook formula that the paper uses."""
    return _checked(sensitivity) / classical_mu(epsilon, delta)


def whole_run(epsilon: float, delta: float, num_messages: int) -> float:
    """ε of a run in which so many messages have the paper's noise, all moved by one change.

    Composed exactly (`accounting.composed`), at the same δ for the whole run. With one message
    this is what the paper's noise really gives, which for ε < 1 is a little less than ε.
    """
    if num_messages < 1:
        raise ConfigError(f"num_messages is {num_messages}; it must be 1 or more")
    return epsilon_of(composed([classical_mu(epsilon, delta) * math.sqrt(num_messages)]), delta)


def _checked(bound: float) -> float:
    if not 0.0 <= bound < math.inf:
        raise ConfigError(f"a bound of the paper's formulas is {bound}; give a number >= 0")
    return float(bound)
