r"""Moments of data that drift: how much every time step counts, and moments that follow the data.

One rule for all of the library. A moment at target time t is a weighted mean over the steps before,

$$\mu_t = \frac{\sum_s w_t(s)\, x_s}{\sum_s w_t(s)}, \qquad
  M_t = \frac{\sum_s w_t(s)\, x_s x_s^\top}{\sum_s w_t(s)},$$

and the kinds differ in \(w_t\):

| kind | \(w_t(s)\) for \(s \le t\) |
|---|---|
| `none` | 1: the data are taken as stationary |
| `ewma` | \((1 - \lambda)^{t-s}\), λ such that it halves every `span` steps |
| `window` | 1 for the last `span` steps |
| `periodic` | 1 for steps at the same phase of a period of `span` steps (1/48 of it either way) |
| `regime` | 1 since the regime began; before, 0, or halving every `span` steps |

The paper's appendix ("Relaxing Stationary Assumptions") has `ewma` as the recursion
\(\mu_t = (1-\lambda)\mu_{t-1} + \lambda x_t\), \(\Sigma_t = (1-\lambda)\Sigma_{t-1} + \lambda x_t
x_t^\top\); \(\Sigma_t\) is not centred there, so it is the second moment M. Where moments move by
at most δ per step, the lag of `ewma` behind them is at most \(\delta (1-\lambda)/\lambda\).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import signal

from fedgranger.errors import ConfigError

WEIGHTINGS = ("none", "ewma", "window", "periodic", "regime")
NEGLIGIBLE = 1e-12
"""Smaller weights of time steps count as zero."""
PHASES = 48
"""1/48 of a period either way of the target's phase counts as the same: half an hour of a day."""


class Weighting(NamedTuple):
    """How much time steps count.

    Attributes:
        kind: one of `WEIGHTINGS`.
        span: half-life, length or period in steps, by kind.
        start: first step of the present regime.
    """

    kind: str = "none"
    span: float | int = 0
    start: int = 0

    def weights(self, steps: Int[np.ndarray, " time"], target: int) -> Float[np.ndarray, " time"]:
        """Weights of the steps (positions in time) for moments at step `target`; its own is 1."""
        past = target - np.asarray(steps)
        if self.kind == "none":
            return np.ones(len(past))
        if self.kind == "window":
            return ((past >= 0) & (past < self.span)).astype(np.float64)
        if self.kind == "periodic":
            return ((past >= 0) & self._is_same_phase(past)).astype(np.float64)
        start = self.start if target >= self.start else 0
        before = past if self.kind == "ewma" else np.maximum(start - np.asarray(steps), 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = np.where(before > 0, 0.5 ** (before / np.float64(self.span)), 1.0)
        return np.where((weight > NEGLIGIBLE) & (past >= 0), weight, 0.0)

    def _is_same_phase(self, past: np.ndarray) -> np.ndarray:
        phase = past % self.span
        return np.minimum(phase, self.span - phase) <= self.span / PHASES


def regime_step(times: np.ndarray, regime_start: str) -> int:
    """The first step of a regime that begins at a time of the data.

    Raises:
        ConfigError: it is no time like theirs, or later than all of them.
    """
    is_stamp = times.dtype.kind == "M"
    try:
        start = np.datetime64(regime_start) if is_stamp else float(regime_start)
    except ValueError:
        kind = "a time stamp" if is_stamp else "a number"
        raise ConfigError(
            f"regime_start is '{regime_start}'; it must be {kind} like the data's own "
            f"({time_of_step(times, 0)}) or 'auto'"
        ) from None
    step = int(np.searchsorted(times, start))
    if step >= len(times):
        raise ConfigError(
            f"regime_start is '{regime_start}'; it must not be later than the last time of "
            f"the data, {time_of_step(times, len(times) - 1)}"
        )
    return step


def time_of_step(times: np.ndarray, step: int) -> str:
    """The time of a step as people write it."""
    time = times[min(step, len(times) - 1)]
    return str(time.astype("datetime64[s]")) if times.dtype.kind == "M" else f"{float(time):.10g}"


def forgetting_factor(half_life: float | int) -> float:
    """The paper's λ of `ewma` with this half-life in steps."""
    return float(-np.expm1(-np.log(2.0) / half_life))


def tracked_means(
    values: Float[np.ndarray, "time n"],
    weighting: Weighting,
    initial: Float[np.ndarray, " n"] | None = None,
) -> Float[np.ndarray, "time n"]:
    r"""Weighted mean at every step of the steps up to it.

    With an `initial` mean the time before the record counts too, as if it had been there all
    along: `ewma` is then the paper's own recursion from it, and with a span that tends to infinity
    (λ → 0) both `ewma` and `window` stay there. The other kinds do without.

    Example:
        >>> x = np.array([[1.0], [3.0]])
        >>> tracked_means(x, Weighting("window", 1)).ravel().tolist()
        [1.0, 3.0]
    """
    T, rows = len(values), np.concatenate([np.ones((len(values), 1)), values], axis=1)
    before = None if initial is None else np.concatenate([[1.0], initial])
    if weighting.kind == "ewma":
        keep, rate = 0.5 ** (1.0 / weighting.span), forgetting_factor(weighting.span)
        past = np.zeros((1, rows.shape[1])) if before is None else keep * before[None]
        sums = np.asarray(signal.lfilter([rate], [1.0, -keep], rows, axis=0, zi=past)[0])
    elif weighting.kind == "window":
        length = int(weighting.span)
        sums = np.cumsum(rows, axis=0)
        sums[length:] -= sums[:-length].copy()
        if before is not None:
            sums += np.maximum(length - 1 - np.arange(T), 0)[:, None] * before
    elif weighting.kind == "periodic":
        sums = _periodic_sums(rows, weighting)
    else:
        sums = _regime_sums(rows, weighting)
    return sums[:, 1:] / sums[:, :1]


def _periodic_sums(rows: np.ndarray, weighting: Weighting) -> np.ndarray:
    """Sums over the same phase, up to every step: those of earlier periods, offset by offset."""
    T, period = len(rows), int(weighting.span)
    own = np.zeros_like(rows)
    for phase in range(min(period, T)):
        own[phase::period] = np.cumsum(rows[phase::period], axis=0)
    reach, sums = int(period // PHASES), own.copy()
    for offset in range(1, reach + 1):
        sums[offset:] += own[:-offset]
        if period - offset < T:  # a later phase, last met in the period before
            sums[period - offset :] += own[: T - period + offset]
    return sums


def _regime_sums(rows: np.ndarray, weighting: Weighting) -> np.ndarray:
    """Sums since the regime began, and what counts of the time before; all of it for `none`."""
    T = len(rows)
    if weighting.kind == "none":
        return np.cumsum(rows, axis=0)
    own = weighting.weights(np.arange(T), T - 1)
    sums = np.cumsum(own[:, None] * rows, axis=0)
    first = min(weighting.start, T)
    sums[:first] = np.cumsum(rows[:first], axis=0)  # a target before the regime has one of its own
    return sums
