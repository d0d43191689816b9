r"""Noise on what a trusted server sends back, so that a client learns little of the others.

A gradient \(2A^\top r_t\) holds the other clients' states, and through \(\hat A\) all of their
data: whatever one client measured at one time step may move every row that every other client
receives. So all rows of a round, clipped to norm G, are one release with sensitivity

$$\Delta = 2 G \sqrt{T (M - 1)}$$

for the M − 1 other clients together. That is dear. Where clients add noise to their own messages
(privacy = "to-server") the gradients are computed from those and need none of their own.
"""

from __future__ import annotations

import math
import secrets

import numpy as np

from fedgranger.config import RunConfig
from fedgranger.federation.store import Store
from fedgranger.privacy.accounting import mu_of
from fedgranger.privacy.noise import clip_rows
from fedgranger.privacy.release import SecretNoise, seeded_secret

RECORD = "noise"
SECRET_BYTES = 32


class GradientNoise:
    """Clips and adds noise; `size` is μ of one round."""

    def __init__(self, config: RunConfig, noise: SecretNoise, num_steps: int, num_clients: int):
        terms = config.terms
        if terms is None:
            raise RuntimeError("the run is not private")
        self._terms, self._noise = terms, noise
        self._moved = _moved(num_steps, num_clients)
        self.size = gradient_size(config, num_steps, num_clients)

    def protect(self, round_index: int, gradients: list[np.ndarray]) -> list[np.ndarray]:
        """Gradients of all clients with noise; the same ones again get the same."""
        out = []
        for m, rows in enumerate(gradients):
            bound = self._terms.bound(rows.shape[1])
            clipped, _ = clip_rows(rows, bound)
            scale = self._moved * bound / self.size
            out.append(self._noise.add(f"gradients {round_index} {m}", clipped, scale)[0])
        return out


def gradient_size(config: RunConfig, num_steps: int, num_clients: int) -> float:
    """μ of one round's gradients to all other clients."""
    if config.added_noise == "auto":
        return mu_of(config.epsilon, config.delta) / math.sqrt(config.private_rounds)
    return _moved(num_steps, num_clients) / float(config.added_noise)


def _moved(num_steps: int, num_clients: int) -> float:
    """Δ in units of G."""
    return 2 * math.sqrt(num_steps * max(num_clients - 1, 1))


def server_noise(store: Store, config: RunConfig, *, is_local: bool) -> SecretNoise:
    """The server's own secret, on its disk; in one process of the run's seed."""
    if is_local:
        return SecretNoise(seeded_secret(config.seed, "the server"))
    with store.locked():
        record = store.load(RECORD)
        if record is None:
            store.save(RECORD, {"secret": secrets.token_hex(SECRET_BYTES)}, {})
            record = store.load(RECORD)
    if record is None:
        raise OSError("the server's disk lost its secret")
    return SecretNoise(bytes.fromhex(record[0]["secret"]))
