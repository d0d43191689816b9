r"""How well a client's local model fits: facts for its own page of the report.

The innovations \(y^t - C A h_c^{t-1}\), whitened by their model covariance
\(S = C P C^\top + R\), have mean 0, variance 1 and no autocorrelation when the client's own past
is all there is to know. Variance above 1 or autocorrelation is what the local model cannot
explain, other clients' influence included.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from fedgranger.client.kalman import FilteredData, steady_gain
from fedgranger.data.client_data import ClientData
from fedgranger.manifest_types import LocalFit, SensorFit

MOST_STEPS = 20_000
NUM_QUANTILES = 41
MOST_SENSORS = 200


def local_fit(data: FilteredData, client: ClientData) -> LocalFit:
    """Facts on the last 20 000 steps; all of them stay with a deployed client.

    Every sensor has its missing share and the share of its variance that the filtered states
    explain; the whitened innovations have their mean variance (1 when the model fits), largest
    autocorrelation at lag one, and quantiles at the probabilities (i + ½)/41. None where nothing
    was observed.
    """
    model = data.model
    last = len(data.values)
    first = max(0, last - MOST_STEPS)
    complete = client.row_observed
    y, ok = data.scaled(first, last), complete[first:last]
    h = data.filtered_states[first:last]
    C = model.observation_matrix

    explained = np.full(y.shape[1], np.nan)
    if ok.any():
        total, left = y[ok].var(axis=0), (y - h @ C.T)[ok].var(axis=0)
        explained[total > 0] = (1 - left / np.maximum(total, 1e-300))[total > 0]

    paired = data.has_next[first : last - 1] & complete[first + 1 : last]
    innovation = y[1:] - h[:-1] @ model.predicted_observation.T
    whitened = np.where(paired[:, None], innovation @ _whitener(data).T, 0.0)
    used = whitened[paired]
    variance, autocorrelation, quantiles = np.nan, np.nan, np.full(NUM_QUANTILES, np.nan)
    if len(used):
        both = paired[1:] & paired[:-1]
        lagged = (whitened[1:] * whitened[:-1])[both].sum(axis=0)
        rho = lagged / np.maximum((used**2).sum(axis=0), 1e-300)
        variance, autocorrelation = float((used**2).mean()), float(rho[np.argmax(np.abs(rho))])
        quantiles = np.quantile(used, (np.arange(NUM_QUANTILES) + 0.5) / NUM_QUANTILES)
    missing = 1 - client.observed.mean(axis=0)
    rows = zip(client.sensors, explained.tolist(), missing.tolist(), strict=True)
    sensors = [
        SensorFit(
            name=name,
            explained=None if np.isnan(share) else round(share, 6),
            missing_share=round(missing, 6),
        )
        for name, share, missing in rows
    ]
    return LocalFit(
        steps=int(paired.sum()),
        innovation_variance=_rounded(variance),
        autocorrelation=_rounded(autocorrelation),
        quantiles=[_rounded(q) for q in quantiles.tolist()],
        sensors=sensors[:MOST_SENSORS],
        num_sensors=len(sensors),
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
