r"""How well a client's local model fits: facts for its own page of the report.

The innovations \(y^t - C A h_c^{t-1}\), whitened by their model covariance
\(S = C P C^\top + R\), have mean 0, variance 1 and no autocorrelation when the client's own past
is all there is to know. Variance above 1 or autocorrelation is what the local model cannot
explain, other clients' influence included.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from fedgranger.client.kalman import FilteredData, steady_gain

MOST_STEPS = 20_000
NUM_QUANTILES = 41
MOST_SENSORS = 200


class LocalFit(NamedTuple):
    """Facts on one client's local model; all of them stay with the client in a deployment.

    Attributes:
        explained: share of each sensor's variance that the filtered states explain.
        innovation_variance: mean variance of the whitened innovations (1 when the model fits).
        autocorrelation: largest autocorrelation at lag one among the whitened innovations.
        quantiles: of the whitened innovations, at evenly spaced probabilities (i + ½)/41.
        steps: steps examined.
    """

    explained: np.ndarray
    innovation_variance: float
    autocorrelation: float
    quantiles: np.ndarray
    steps: int

    def to_mapping(self, sensors: tuple[str, ...], missing: np.ndarray) -> dict[str, Any]:
        """Plain values for the manifest, with every sensor's name and missing share."""
        shares = [None if np.isnan(share) else round(float(share), 6) for share in self.explained]
        rows = zip(sensors, shares, missing.tolist(), strict=True)
        return {
            "steps": self.steps,
            "innovation_variance": _rounded(self.innovation_variance),
            "autocorrelation": _rounded(self.autocorrelation),
            "quantiles": [_rounded(float(q)) for q in self.quantiles],
            "sensors": [
                {"name": name, "explained": share, "missing_share": round(missing, 6)}
                for name, share, missing in list(rows)[:MOST_SENSORS]
            ],
            "num_sensors": len(sensors),
        }


def local_fit(data: FilteredData) -> LocalFit:
    """Examine the last 20 000 steps of a client's data."""
    model = data.model
    last = len(data.values)
    first = max(0, last - MOST_STEPS)
    y, ok = data.scaled(first, last), data.is_observed[first:last]
    h = data.filtered_states[first:last]
    C = model.observation_matrix

    explained = np.full(y.shape[1], np.nan)
    if ok.any():
        total, left = y[ok].var(axis=0), (y - h @ C.T)[ok].var(axis=0)
        explained[total > 0] = (1 - left / np.maximum(total, 1e-300))[total > 0]

    paired = data.has_next[first : last - 1]
    innovation = y[1:] - h[:-1] @ model.predicted_observation.T
    whitened = np.where(paired[:, None], innovation @ _whitener(data).T, 0.0)
    used = whitened[paired]
    if not len(used):
        return LocalFit(explained, np.nan, np.nan, np.full(NUM_QUANTILES, np.nan), 0)
    both = paired[1:] & paired[:-1]
    lagged = (whitened[1:] * whitened[:-1])[both].sum(axis=0)
    rho = lagged / np.maximum((used**2).sum(axis=0), 1e-300)
    probabilities = (np.arange(NUM_QUANTILES) + 0.5) / NUM_QUANTILES
    return LocalFit(
        explained,
        float((used**2).mean()),
        float(rho[np.argmax(np.abs(rho))]),
        np.quantile(used, probabilities),
        int(paired.sum()),
    )


def _whitener(data: FilteredData) -> np.ndarray:
    """W with W S Wᵀ = I; directions in which S vanishes are left out."""
    model = data.model
    C, P = model.observation_matrix, steady_gain(model).predicted_cov
    s, basis = scipy.linalg.eigh(C @ P @ C.T + model.measurement_cov)
    keep = s > 1e-10 * s[-1]
    return (basis[:, keep] / np.sqrt(s[keep])).T


def _rounded(value: float) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None
