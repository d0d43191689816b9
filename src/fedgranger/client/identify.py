"""Identify a client's local model from its own data (no message, no other client)."""

from __future__ import annotations

import numpy as np

from fedgranger.client.loadings import Loadings
from fedgranger.client.model_selection import choose_loadings, select_state_dim
from fedgranger.client.noise_limit import client_noise_floor, limited_noise, share_in_words
from fedgranger.client.params import LocalModel
from fedgranger.client.present_sensors import SensorModel, fill_rows
from fedgranger.client.sensor_moments import MeasurementMoments, measurement_moments, with_pairs
from fedgranger.client.state_noise import state_readout
from fedgranger.data.client_data import ClientData
from fedgranger.errors import ModelError
from fedgranger.linalg.noise_floor import SMALLEST_SHARE
from fedgranger.linalg.psd import is_positive_definite, project
from fedgranger.linalg.spectral import spectral_radius
from fedgranger.text import format_share

PROCESS_FLOOR = 1e-6
"""Smallest eigenvalue of Q as a share of the mean state variance."""
UNIT_ROOT_SLACK = 4.0
"""A root of up to 1 + this / T is that of data that do not grow (random walks stay below it)."""


def identify(
    client: ClientData,
    segment_starts: np.ndarray,
    *,
    method: str = "auto",
    state_dim: int | str = "auto",
    max_state_dim: int = 4,
    standardise: bool = True,
) -> LocalModel:
    """Find C and R from the sensors' covariance, A and Q from the states' lag-one moments.

    Complete rows are used or, where rows lack single sensors, all samples (`incomplete_rows`),
    with every sensor divided by its standard deviation when they are to be standardised. Of R only
    as much is kept in the directions of the states as can be white noise. The method is one of
    `loadings.METHODS`, or `"auto"`; with it, and for the number of states, the Bayesian information
    criterion decides.

    Raises:
        ModelError: names the client and the remedy.
    """
    try:
        moments = measurement_moments(
            client, segment_starts, standardise=standardise or method == "paper"
        )
        notes: tuple[str, ...] = ()
        if state_dim == "auto":
            state_dim, notes = select_state_dim(moments, method, max_state_dim)
        loadings = choose_loadings(moments, int(state_dim), method)
        notes += loadings.notes
        return _limited(client, segment_starts, moments, loadings, notes)
    except ModelError as error:
        raise ModelError(f"client '{client.name}': {error}") from None


def _limited(
    client: ClientData,
    segment_starts: np.ndarray,
    moments: MeasurementMoments,
    loadings: Loadings,
    notes: tuple[str, ...],
) -> LocalModel:
    """Take out as much noise as the states' spectrum allows and the dynamics stay stable with.

    A share below 1 within sampling error is not used unless the model needs it. Least squares may
    put a root at 1 + O(1/T) of data that do not grow, because the pairs' second rows vary a little
    more than their first; with the mean of both it does not. What is left grows.
    """
    C, R = loadings.observation_matrix, loadings.measurement_cov
    sensors = SensorModel(C, R, moments.centre, moments.scale, state_readout(C, R).error_cov)
    rows = fill_rows(client, sensors)
    if not moments.num_pairs:
        moments = with_pairs(moments, rows.data, segment_starts)
    floor = client_noise_floor(rows, segment_starts, sensors)
    fewer = (floor.largest * 0.5**k for k in range(1, 8))
    shares = [floor.share, floor.largest, *fewer, SMALLEST_SHARE] if R.any() else [1.0]
    mean_cov = 0.5 * (moments.cov_before + moments.cov_after)
    models: list[LocalModel] = []
    refusals: list[ModelError] = []
    for used in (moments, moments._replace(cov_before=mean_cov, cov_after=mean_cov)):
        for share in shares:
            all_notes = notes + ((share_in_words(client.name, share),) if share < 1 else ())
            try:
                E = share * rows.error_cov
                models.append(_add_dynamics(used, loadings, E, share, all_notes))
            except ModelError as error:
                refusals.append(error)
                continue
            if spectral_radius(models[-1].self_transition) < 1:
                return models[-1]
        excess = min((spectral_radius(one.self_transition) for one in models), default=np.inf) - 1
        if excess * moments.num_pairs > UNIT_ROOT_SLACK:
            break
    if not models:
        raise refusals[0]
    return models[0]


def _add_dynamics(
    moments: MeasurementMoments,
    loadings: Loadings,
    error_cov: np.ndarray,
    share: float,
    notes: tuple[str, ...],
) -> LocalModel:
    r"""A and Q by least squares on the states, corrected for their measurement error.

    $$G_0 = E[ss^\top] - cE, \quad A = E[s^+ s^\top] G_0^{-1}, \quad
      Q = \mathrm{Cov}(s^+ - A s) - cE - c A E A^\top$$

    with c the share of the noise that can be white, E its mean over the rows. All moments are over
    the same pairs: with the covariance of all rows in \(G_0\) an exploding series would appear
    stable, its largest row being no pair's first.
    """
    C, method = loadings.observation_matrix, loadings.method
    W, E = state_readout(C, loadings.measurement_cov).weights, error_cov
    before = W @ moments.cov_before @ W.T
    G0 = before - E
    if not is_positive_definite(G0):
        weak = int((np.linalg.eigvalsh(G0) <= 0).sum())
        raise ModelError(
            f"measurement noise exceeds the signal in {weak} of {len(E)} state directions; "
            f"use state_dim {max(len(E) - weak, 1)} or another state_model"
        )
    lag = W @ moments.lag_cov @ W.T
    A = np.linalg.solve(G0, lag.T).T
    residual = W @ moments.cov_after @ W.T - A @ lag.T - lag @ A.T + A @ before @ A.T
    scale = float(np.trace(G0)) / len(G0)
    Q, change = project(residual - E - A @ E @ A.T, PROCESS_FLOOR * scale)
    if change > 0:
        notes += (
            "the process covariance was not positive definite and was changed by "
            f"{format_share(change)} (relative norm)",
        )
    radius = spectral_radius(A)
    if radius >= 1:
        notes += (
            f"the local transition has spectral radius {radius:.3f}: the data look "
            "non-stationary, consider differencing them",
        )
    R = limited_noise(C, loadings.measurement_cov, share)
    return LocalModel(A, C, Q, R, moments.centre, moments.scale, method, notes, share)
