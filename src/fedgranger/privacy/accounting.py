r"""How much Gaussian releases disclose: size mu, and the pair (epsilon, delta) that it stands for.

Whatever leaves a client with noise is a Gaussian release of size

$$\mu = \text{sensitivity} / \text{s.d. of the noise}.$$

Telling two neighbouring data sets apart from it is exactly as hard as telling N(0, 1) from
N(mu, 1) (Gaussian differential privacy: Dong, Roth & Su 2022). Proofs: docs/theory/privacy.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import scipy.optimize
import scipy.special

from fedgranger.errors import ConfigError

FARTHEST = 40.0
"""So many standard deviations out a normal tail is below the smallest number that there is."""
SMALL_SIZE = 0.5
"""Below it the difference of two Mills ratios is an integral, which loses no digits."""
NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)


def composed(sizes: Iterable[float]) -> float:
    r"""Size of several Gaussian releases together.

    $$\mu = \sqrt{\textstyle\sum_i \mu_i^2}$$

    Exact, not a bound, for releases that all respond to the same change; also when each release
    is chosen after seeing the earlier ones (Dong, Roth & Su 2022). Sizes, too, may
    be chosen on the way, as long as a limit for the sum of squares was fixed before the first one
    and is never passed (Smith & Thakurta 2022).

    Example:
        >>> composed([3.0, 4.0])
        5.0
    """
    return math.hypot(*(_checked_size(size) for size in sizes))


def delta_of(mu: float, epsilon: float) -> float:
    r"""Smallest delta with which a release of size mu is (epsilon, delta) private.

    $$\delta = \Phi(-a) - e^{\epsilon}\,\Phi(-b), \qquad
      a = \frac{\epsilon}{\mu} - \frac{\mu}{2},\; b = a + \mu$$

    (Balle & Wang 2018, Theorem 8). Since \(\varphi(a) = e^\epsilon \varphi(b)\), this is
    \(\varphi(a)\,[m(a) - m(b)]\) with the Mills ratio \(m(x) = \Phi(-x)/\varphi(x)\): nothing
    overflows, and the digits of deltas as small as 1e-300 are right.
    """
    mu, epsilon = _checked_size(mu), _checked_epsilon(epsilon)
    if epsilon == math.inf or mu == 0.0:
        return 0.0
    if mu == math.inf:
        return 1.0
    return math.exp(_log_delta(mu, epsilon / mu - mu / 2.0))


def epsilon_of(mu: float, delta: float) -> float:
    """Smallest epsilon for which a release of size mu is (epsilon, delta) private.

    Zero when the size is so small that delta alone covers it; infinite for no noise.

    Example:
        >>> round(epsilon_of(0.5, 1e-5), 3)
        1.993
    """
    mu, delta = _checked_size(mu), _checked_delta(delta)
    if mu == math.inf:
        return math.inf
    if mu <= _largest_without_epsilon(delta):
        return 0.0
    goal = math.log(delta)

    def excess(epsilon: float) -> float:
        return _log_delta(mu, epsilon / mu - mu / 2.0) - goal

    # delta < Phi(-a), so beyond this epsilon the goal is passed
    largest = mu * (mu / 2.0 + _upper_quantile(delta) + 1.0)
    if largest == math.inf:
        return math.inf
    return _root(excess, 0.0, largest)


def mu_of(epsilon: float, delta: float) -> float:
    """Size of the largest release that is (epsilon, delta) private.

    Example:
        >>> round(mu_of(1.993, 1e-5), 3)
        0.5
    """
    epsilon, delta = _checked_epsilon(epsilon), _checked_delta(delta)
    if epsilon == math.inf:
        return math.inf
    smallest = _largest_without_epsilon(delta)
    if epsilon == 0.0:
        return smallest
    goal = math.log(delta)

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        return _log_delta(mu, epsilon / mu - mu / 2.0) - goal

    # delta < Phi(-a): a smaller size than the second has a above the quantile
    z = _upper_quantile(delta)
    root = math.hypot(z, math.sqrt(2.0 * epsilon))
    second = 2.0 * epsilon / (z + root) if z > 0 else root - z
    low = math.log(max(smallest, second)) - 1e-9
    step = 0.5
    while excess(low + step) < 0.0:
        step *= 2.0
    return math.exp(_root(excess, low, low + step))


def classical_mu(epsilon: float, delta: float) -> float:
    r"""Size that the textbook formula for the noise stands for.

    $$\sigma = \Delta\,\sqrt{2 \ln(1.25/\delta)}\,/\,\epsilon$$

    The formula is proven for epsilon < 1 only (Dwork & Roth 2014, Theorem A.1): above that it can
    promise more than it keeps. `mu_of` has the size that is right for every epsilon.
    """
    epsilon, delta = _checked_epsilon(epsilon), _checked_delta(delta)
    return epsilon / math.sqrt(2.0 * math.log(1.25 / delta))


def _log_delta(mu: float, a: float) -> float:
    """Logarithm of delta, from the size and a = epsilon / mu - mu / 2."""
    if a > FARTHEST:
        return -math.inf
    log_density = -0.5 * (a * a + math.log(2.0 * math.pi))
    if mu > SMALL_SIZE:
        if a < 0.0:
            return math.log(scipy.special.ndtr(-a) - math.exp(log_density) * float(_mills(a + mu)))
        return log_density + math.log(float(_mills(a)) - float(_mills(a + mu)))
    # m(a) - m(a + mu) is the integral of -m'(x) = 1 - x m(x), which is smooth and positive
    x = a + mu * (NODES + 1.0) / 2.0
    mean = float(WEIGHTS @ (1.0 - x * _mills(x))) / 2.0
    return log_density + math.log(mu) + math.log(mean)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where the function changes its sign."""
    found = scipy.optimize.root_scalar(
        function, bracket=(low, high), method="brentq", xtol=1e-300, rtol=1e-15
    )
    return float(found.root)


def _mills(x: float | np.ndarray) -> float | np.ndarray:
    """Upper tail of the normal law over its density."""
    return math.sqrt(math.pi / 2.0) * scipy.special.erfcx(x / math.sqrt(2.0))


def _largest_without_epsilon(delta: float) -> float:
    """Size at which epsilon = 0 needs this delta: delta = erf(mu / sqrt 8)."""
    return math.sqrt(8.0) * float(scipy.special.erfinv(delta))


def _upper_quantile(delta: float) -> float:
    return -float(scipy.special.ndtri(delta))


def _checked_size(mu: float) -> float:
    if not mu >= 0.0:
        raise ConfigError(f"the size of a release is {mu}; it must be zero or more")
    return float(mu)


def _checked_epsilon(epsilon: float) -> float:
    if not epsilon >= 0.0:
        raise ConfigError(f"epsilon is {epsilon}; it must be zero or more")
    return float(epsilon)


def _checked_delta(delta: float) -> float:
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"delta is {delta}; it must lie between 0 and 1")
    return float(delta)
