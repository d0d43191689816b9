r"""What one edge does: the response of the effect's states to a shock in the cause's, with a band.

States have no units and their signs are arbitrary: what an edge does is shown along the direction
in which it is strongest, in standard deviations of the effect's states for a shock of one standard
deviation. What that means for sensors is computed where they are known: each side of an edge is
sent its course along its own states (`EdgeSide`). Errors come from a jackknife over blocks of time:
with \(\theta_{(g)}\) the value without block g of G

$$\operatorname{var} \hat\theta = \frac{G-1}{G} \sum_g (\theta_{(g)} - \bar\theta)^2, \qquad
  \hat\theta \pm t_{G-1} \operatorname{sd}$$

(Künsch 1989). Blocks keep what neighbouring steps have in common, so neither independent nor normal
errors are assumed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from fedgranger.tested_facts import ResponseFacts

GONE = 0.1
"""An influence is gone when it stays below this share of its largest response."""


class Curve(NamedTuple):
    """A response by step after the shock, with a band for each step."""

    value: Float[np.ndarray, " step"]
    low: Float[np.ndarray, " step"]
    high: Float[np.ndarray, " step"]

    @property
    def peak(self) -> int:
        """Steps until the largest response, of either sign."""
        return int(np.abs(self.value).argmax())

    @property
    def gone(self) -> int | None:
        """Steps after which it stays below a tenth of the largest; None: not within the curve."""
        large = np.flatnonzero(np.abs(self.value) >= GONE * np.abs(self.value[self.peak]))
        after = int(large[-1]) + 1
        return after if after < len(self.value) else None

    def upright(self) -> Curve:
        """With a largest response above 0: of a state either sign is as good."""
        if self.value[self.peak] >= 0:
            return self
        return Curve(-self.value, -self.high, -self.low)

    def facts(self) -> ResponseFacts:
        """Plain values for the manifest, of six digits: sensors have any unit."""
        value, low, high = ([float(f"{number:.6g}") for number in part] for part in self)
        return ResponseFacts(value=value, low=low, high=high, peak=self.peak, gone=self.gone)


class EdgeResponse(NamedTuple):
    """Ψ of one pair of clients, on the whole record and without each block of it.

    Attributes:
        values: on the whole record first.
        shock_cov: of what is new in the cause's states at one step.
        state_cov: of the effect's states.
        variance_share: of the effect's forecast error that the cause's shocks make up; no axes.
    """

    values: Float[np.ndarray, "block step effect_state cause_state"]
    shock_cov: Float[np.ndarray, "cause_state cause_state"]
    state_cov: Float[np.ndarray, "effect_state effect_state"]
    variance_share: Float[np.ndarray, ""]

    def directions(self) -> tuple[np.ndarray, np.ndarray]:
        """Read-out of the effect's states and shock of the cause's, where the edge is strongest."""
        root, white = _root(self.shock_cov), _root(np.linalg.pinv(self.state_cov, hermitian=True))
        scaled = white @ self.values[0] @ root
        step = int(np.linalg.norm(scaled, ord=2, axis=(1, 2)).argmax())
        left, _, right = np.linalg.svd(scaled[step])
        return white @ left[:, 0], root @ right[0]

    def along(
        self, readout: Float[np.ndarray, " effect_state"], shock: Float[np.ndarray, " cause_state"]
    ) -> Float[np.ndarray, "block step"]:
        """Response of a combination of the effect's states to a shock in the cause's."""
        return np.einsum("i,bhij,j->bh", readout, self.values, shock)

    def curve(self, confidence: float) -> Curve:
        """Along the strongest direction, which is estimated too."""
        return band(self.along(*self.directions()), confidence)

    @property
    def blocks(self) -> int:
        """How many blocks of time the errors come from."""
        return len(self.values) - 1

    def seen_by_cause(
        self,
        readout: Float[np.ndarray, " effect_state"],
        strongest: Float[np.ndarray, " cause_state"],
    ) -> EdgeSide:
        """How far a combination of the effect's states moves for every unit of the cause's.

        `strongest` is the shock of `directions`.
        """
        return _side(self.shock_cov, strongest, np.einsum("i,bhij->bhj", readout, self.values))

    def seen_by_effect(
        self,
        shock: Float[np.ndarray, " cause_state"],
        strongest: Float[np.ndarray, " effect_state"],
    ) -> EdgeSide:
        """How the effect's states move after a shock in the cause's.

        `strongest` is the read-out of `directions`.
        """
        return _side(self.state_cov, self.state_cov @ strongest, self.values @ shock)


def _root(cov: np.ndarray) -> np.ndarray:
    """Symmetric square root of a covariance, which may be singular."""
    values, vectors = np.linalg.eigh(cov)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


class EdgeSide(NamedTuple):
    """What an edge does along the states of one of its sides.

    Attributes:
        cov: of what is new in a cause's states; of an effect's states.
        direction: covariance of these with the edge's strongest shock, or with its response.
        course: by step after the shock.
        course_cov: its errors, by the jackknife.
    """

    cov: Float[np.ndarray, "state state"]
    direction: Float[np.ndarray, " state"]
    course: Float[np.ndarray, "step state"]
    course_cov: Float[np.ndarray, "step state state"]


def _side(cov: np.ndarray, direction: np.ndarray, values: np.ndarray) -> EdgeSide:
    G = len(values) - 1
    deviations = values[1:] - values[1:].mean(axis=0)
    covs = (G - 1) / G * np.einsum("bhi,bhj->hij", deviations, deviations)
    return EdgeSide(cov, direction, values[0], covs)


def course_curve(
    course: Float[np.ndarray, "step state"],
    course_cov: Float[np.ndarray, "step state state"],
    along: Float[np.ndarray, " state"],
    blocks: int,
    confidence: float,
) -> Curve:
    """Band of a combination of states, from the course and its errors as one side knows them."""
    value = course @ along
    variance = np.einsum("i,hij,j->h", along, course_cov, along)
    half = stats.t.ppf((1 + confidence) / 2, blocks - 1) * np.sqrt(np.maximum(variance, 0.0))
    return Curve(value, value - half, value + half)


def band(values: Float[np.ndarray, "block step"], confidence: float) -> Curve:
    """Jackknife band of a curve; the first row is the whole record's."""
    G = len(values) - 1
    deviations = values[1:] - values[1:].mean(axis=0)
    sd = np.sqrt((G - 1) / G * (deviations**2).sum(axis=0))
    half = stats.t.ppf((1 + confidence) / 2, G - 1) * sd
    return Curve(values[0], values[0] - half, values[0] + half)
