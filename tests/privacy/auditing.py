"""What an observer who knows everything but the noise can tell apart, from real executions.

Two clients run whose data are neighbours. One of them really talks to the server (`Tapped` writes
down what it told); the other one is asked what it would have said at every point of that very
conversation (`Replayed` puts the told numbers into its mouth). The sum of Gaussian log-likelihood
ratios over everything that was told is the best test there is (Neyman & Pearson), for whoever sees
all that was charged: more than a server does, which never sees moments and gradients times data.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from fedgranger.privacy.accounting import epsilon_of
from fedgranger.privacy.release import SecretNoise

ERROR = 1e-3
"""Chance that a lower bound is wrong."""


class Told(NamedTuple):
    """One release: its name, what it hides, the scale of its noise, and what is told."""

    message: str
    clean: np.ndarray
    scale: float | np.ndarray
    noisy: np.ndarray


class Tapped(SecretNoise):
    """The real noise, written down; wrong variants have `factor` of it, or none on `silent`."""

    def __new__(cls, secret, factor=1.0, silent=()):
        self = super().__new__(cls, secret)
        self.told, self.factor, self.silent = [], factor, silent
        return self

    def add(self, message, clean, scale, of=None):
        noisy, name = SecretNoise(self.secret).add(message, clean, scale, of)
        noisy = clean + self.factor * (noisy - clean)
        if message.partition(" ")[0] in self.silent:
            return clean, name
        self.told.append(Told(message, clean, scale, noisy))
        return noisy, name


class Replayed(SecretNoise):
    """Tells what another one has told, and keeps what it would have hidden."""

    def __new__(cls, told, silent=()):
        self = super().__new__(cls, b"unused")
        self.others, self.silent, self.cleans = list(told), silent, []
        return self

    def add(self, message, clean, scale, of=None):
        if message.partition(" ")[0] in self.silent:
            return clean, "its own"
        other = self.others[len(self.cleans)]
        assert other.message == message
        if not self.silent:  # nothing of the data decides how much noise there is
            assert np.array_equal(scale, other.scale)
        self.cleans.append(clean)
        return other.noisy, "the other's"


def log_ratio(told, cleans):
    """How much likelier what was told is with the teller's data than with the other's."""
    total = 0.0
    for one, clean in zip(told, cleans, strict=True):
        if not np.any(one.scale):
            continue
        errors = np.stack([one.noisy - one.clean, one.noisy - clean])
        if np.ndim(one.scale) == 0:
            errors = errors / one.scale
        else:
            errors = errors @ np.linalg.inv(one.scale).T
        own, other = (errors**2).reshape(2, -1).sum(axis=1) / 2
        total += other - own
    return total


def mu_bound(scores, others):
    """Lower bound of μ from scores of both data sets, whatever their law is.

    A release of size μ has TPR ≤ Φ(Φ⁻¹(FPR) + μ) at every threshold. The threshold is chosen on
    one half; Clopper and Pearson bound both rates on the other.
    """
    half = len(scores) // 2
    candidates = np.quantile(np.concatenate([scores[:half], others[:half]]), np.linspace(0, 1, 101))
    found = [_mu_at(scores[:half], others[:half], at) for at in candidates]
    return _mu_at(scores[half:], others[half:], candidates[int(np.argmax(found))])


def _mu_at(scores, others, threshold):
    n, hits, errors = len(scores), int((scores > threshold).sum()), int((others > threshold).sum())
    tpr = stats.beta.ppf(ERROR / 2, hits, n - hits + 1) if hits else 0.0
    fpr = stats.beta.ppf(1 - ERROR / 2, errors + 1, n - errors) if errors < n else 1.0
    return float(stats.norm.ppf(tpr) - stats.norm.ppf(fpr)) if tpr > 0 and fpr < 1 else 0.0


def gaussian_mu_bound(scores, others):
    """Lower bound of μ for scores that are normal with the same variance: sharper."""
    n = len(scores)
    deviation = math.sqrt((scores.var(ddof=1) + others.var(ddof=1)) / 2)
    found = float(scores.mean() - others.mean()) / deviation
    return found - stats.norm.isf(ERROR) * math.sqrt(2 / n + found**2 / (4 * n))


def epsilon_bound(mu, delta):
    """ε that a lower bound of μ stands for."""
    return epsilon_of(max(mu, 0.0), delta)
