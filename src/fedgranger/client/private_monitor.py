r"""Reports on new data with noise: what a site that watches after a private run sends.

States get the noise of the run, so that the server finds them as it knows them. A number of
surprise is capped at `LARGEST_SURPRISE` and gets noise of its own: a time step enters its own and
the next one, so w steps move w + 1 numbers by at most the cap. The noise is a function
of the site's secret, the time stamp and the sample as measured, not of the numbers that are sent:
their last bits depend on how many are computed at once, so a server that asked for messages of
other sizes would have got new noise for the same states, and their mean.

What is normal (how sensors are weighed, where the range ends) was learned from training data, and
ε does not cover what it discloses of those; the sizes here are about the new data.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg

from fedgranger.client.client_side import ClientSide
from fedgranger.client.monitor_fit import MARGIN
from fedgranger.client.own_normal import OwnNormal, monitor_message
from fedgranger.client.private_states import clip_in_units, moved_steps
from fedgranger.data.treatment import Treatment
from fedgranger.errors import DataError
from fedgranger.linalg.smoothing import MEMORY, smooth
from fedgranger.messages import MonitorMessage
from fedgranger.privacy.accounting import composed
from fedgranger.privacy.release import SecretNoise
from fedgranger.privacy.sensitivity import Neighbours, memoryless
from fedgranger.privacy.terms import PrivacyTerms

LARGEST_SURPRISE = 20.0
"""1 is usual."""


class MonitorNoise(NamedTuple):
    """The noise on a client's reports.

    Attributes:
        unit: L of `private_states`.
        bound: largest norm of a state in those units.
        state_scale: standard deviation of the noise in them.
        surprise_scale: of the noise on a number of surprise.
    """

    unit: np.ndarray
    bound: float
    state_scale: float
    surprise_scale: float

    def size(self, neighbours: Neighbours, treatment: Treatment) -> float:
        """μ of a report about data that differ in so many steps."""
        near = moved_steps(neighbours, treatment)
        states = memoryless(self.bound, near, 2**62) / self.state_scale
        numbers = math.sqrt(near.length(2**62) + 1) * LARGEST_SURPRISE / self.surprise_scale
        return composed((states, numbers))


def monitor_noise(side: ClientSide, terms: PrivacyTerms) -> MonitorNoise:
    """Noise for the reports of a client after this run, both parts as large as its states'.

    Raises:
        DataError: the run sent no states, or hides whole records.
    """
    sent = side.protected
    if sent is None:
        raise DataError("a private run without tests sends no states to compare new ones with")
    if terms.neighbours.kind == "record":
        raise DataError("reports on new data never end, so no noise could hide a whole record")
    near = moved_steps(terms.neighbours, side.data.treatment)
    size = memoryless(sent.bound, near, 2**62) / sent.scale
    moved = math.sqrt(near.length(2**62) + 1) * LARGEST_SURPRISE
    return MonitorNoise(sent.unit, sent.bound, sent.scale, moved / size)


class StampedRows(NamedTuple):
    """Time stamps of the steps that are reported on, and their samples as measured."""

    time: np.ndarray
    samples: np.ndarray


def protect_report(
    message: MonitorMessage,
    steps: StampedRows,
    noise: MonitorNoise,
    secret: SecretNoise,
    identity: str,
) -> MonitorMessage:
    """A report with noise; `identity` names what is normal, by which the steps were judged."""
    states, observed = np.asarray(message.states), np.asarray(message.is_observed)
    surprise = np.minimum(np.asarray(message.surprise), LARGEST_SURPRISE)
    clipped, _ = clip_in_units(states, noise.unit, noise.bound)
    clean = np.column_stack([clipped @ noise.unit.T, np.nan_to_num(surprise)])
    scale = np.asarray(
        scipy.linalg.block_diag(noise.state_scale * noise.unit, noise.surprise_scale)
    )
    sent = np.zeros_like(clean)
    for t in np.flatnonzero(observed):
        place = f"monitor {identity} {steps.time[t]}"
        sent[t], _ = secret.add(place, clean[t], scale, of=steps.samples[t])
    numbers = np.where(np.isnan(surprise), np.nan, np.maximum(sent[:, -1], 0.0))
    with jax.enable_x64(True):
        return MonitorMessage(
            jnp.asarray(sent[:, :-1]), jnp.asarray(numbers), jnp.asarray(observed)
        )


def with_noisy_range(
    own: OwnNormal, side: ClientSide, time: np.ndarray, noise: MonitorNoise, secret: SecretNoise
) -> OwnNormal:
    """The same with a normal range that holds the noise of the reports."""
    message = monitor_message(own.monitor, side.data, side.starts)
    steps = StampedRows(time, side.data.values)
    surprise = np.asarray(protect_report(message, steps, noise, secret, "training").surprise)
    threshold = MARGIN * float(smooth(surprise[1:, None], 1.0, MEMORY).max())
    return own._replace(monitor=replace(own.monitor, threshold=threshold))
