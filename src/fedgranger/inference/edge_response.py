r"""What one edge does: the response of the effect's states to a shock in the cause's, with a band.

States have no units and their signs are arbitrary: what an edge does is shown along the direction
in which it is strongest, in standard deviations of the effect's states for a shock of one standard
deviation. What that means for sensors is computed where the sensors are known
(`sensor_responses`). Errors come from a jackknife over blocks of time: with \(\theta_{(g)}\) the
value without block g of G

$$\operatorname{var} \hat\theta = \frac{G-1}{G} \sum_g (\theta_{(g)} - \bar\theta)^2, \qquad
  \hat\theta \pm t_{G-1} \operatorname{sd}$$

(Künsch 1989). Blocks keep what neighbouring steps have in common, so neither independent nor normal
errors are assumed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float
from scipy import stats

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

    def facts(self) -> dict[str, Any]:
        """Plain values for the manifest."""
        columns = {name: part.round(6).tolist() for name, part in self._asdict().items()}
        return columns | {"peak": self.peak, "gone": self.gone}


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
        root = np.real(scipy.linalg.sqrtm(self.shock_cov))
        white = np.real(scipy.linalg.sqrtm(np.linalg.pinv(self.state_cov)))
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


def band(values: Float[np.ndarray, "block step"], confidence: float) -> Curve:
    """Jackknife band of a curve; the first row is the whole record's."""
    G = len(values) - 1
    spread = values[1:] - values[1:].mean(axis=0)
    sd = np.sqrt((G - 1) / G * (spread**2).sum(axis=0))
    half = stats.t.ppf((1 + confidence) / 2, G - 1) * sd
    return Curve(values[0], values[0] - half, values[0] + half)
