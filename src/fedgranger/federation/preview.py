"""What a site would let out, before it takes part: how much, and how well its sensors show in it.

The measure is the R² of every own sensor predicted linearly from what the server would hold of the
same and the neighbouring time steps, with the best weights that exist. A server does not know
those weights, so this is an upper bound for linear prediction.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedgranger.client.client_side import ClientSide
from fedgranger.config import RunConfig
from fedgranger.data.time_axis import LocalSeries, TimeGrid, range_of
from fedgranger.federation.agreed_options import FederationOptions
from fedgranger.federation.ledger import bytes_for_tests, payload_bytes
from fedgranger.federation.policy import SitePolicy
from fedgranger.federation.preparation import prepare_party
from fedgranger.federation.questions import question_of
from fedgranger.privacy.release import SecretNoise, seeded_secret

LARGEST_EPSILON = 1e6
"""Stands for a budget without limit."""


class Preview(NamedTuple):
    """What the default run and one with rounds would let out.

    With a privacy budget, with noise that spends all of it at once, and without rounds.

    Attributes:
        question: name of the question that the default run asks.
        bytes_default: payload that leaves in the default run.
        bytes_rounds: payload that leaves with the rounds.
        default: R² per sensor with the default run.
        after: R² per sensor after the rounds.
    """

    question: str
    num_steps: int
    state_dim: int
    num_sensors: int
    bytes_default: int
    bytes_rounds: int
    rounds: int
    default: np.ndarray
    after: np.ndarray


def make_preview(series: LocalSeries, policy: SitePolicy, rounds: int) -> Preview:
    """Prepare as for a run over all of the site's own time, and measure.

    Raises:
        PolicyError: the policy does not even allow the default run.
        FedGrangerError: the data cannot be used.
    """
    mine = range_of(series)
    grid = TimeGrid(mine.time_kind, mine.first, mine.interval, mine.stretches)
    steps = grid.num_steps
    largest = policy.largest_for(series.client.num_sensors)
    size = policy.largest_message_steps
    config = RunConfig(solver="none")
    if policy.epsilon < math.inf or policy.covered_only:  # the least noise that it lets out
        most = min(policy.epsilon, LARGEST_EPSILON)
        near = {"neighbours": policy.neighbours, "neighbour_steps": policy.neighbour_steps}
        period = "none" if policy.covered_only else config.period
        config = replace(
            config, privacy="to-server", epsilon=most, delta=policy.delta, period=period, **near
        )
        rounds = 0
    asked = FederationOptions(config, message_steps=size).for_client(series.client.name)
    policy.check_options(asked, series.client.num_sensors, is_declared=series.model is not None)
    noise = SecretNoise(seeded_secret(0, "preview"))
    prepared = prepare_party(series, grid, asked.capped(largest), np.zeros, noise)
    p, d = prepared.model.augmentation_shape
    once = bytes_for_tests(p, len(prepared.season.lengths), steps)
    hello, filtered = payload_bytes("model", client_state=p), 8 * p * (steps - 1)
    per_round = payload_bytes("message", time=steps - 1, client_state=p) - filtered
    default, after = _shares(prepared, rounds)
    return Preview(
        question_of(asked, grid, largest, series.model),
        steps,
        p,
        d,
        once,
        once + hello + filtered + rounds * per_round,
        rounds,
        default,
        after,
    )


def _shares(prepared: ClientSide, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """R² of every sensor, without rounds and after them.

    Every round shows θy with another θ; any p rows in general position stand for them.
    """
    y = prepared.model.scaled(prepared.data.values)
    sent, complete = prepared.states, prepared.is_observed
    default = explained(y, sent, complete)
    if rounds == 0:
        return default, default
    p, d = prepared.model.augmentation_shape
    theta = np.random.default_rng(0).standard_normal((rounds * p, d))
    return default, explained(y, np.hstack([sent, y @ theta.T]), complete)


def explained(y: np.ndarray, sent: np.ndarray, complete: np.ndarray) -> np.ndarray:
    """R² of every column of y on what was sent of the same and the neighbouring time steps."""
    rows = np.flatnonzero(complete[:-2] & complete[1:-1] & complete[2:]) + 1
    if len(rows) < 2:
        return np.full(y.shape[1], np.nan)
    around = np.hstack([sent[rows - 1], sent[rows], sent[rows + 1]])
    X = around - around.mean(axis=0)
    Y = y[rows] - y[rows].mean(axis=0)
    left = Y - X @ np.linalg.lstsq(X, Y, rcond=1e-12)[0]
    total = (Y**2).sum(axis=0)
    return 1 - (left**2).sum(axis=0) / np.where(total > 0, total, 1.0)
