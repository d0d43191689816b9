"""A message with noise: the noise that only its sender can know, and what it discloses.

The noise is a function of a secret and of what it hides: the same message again is the same bits
and discloses nothing new, other content gets other noise. In a deployment the secret is a site's
own, from the operating system's randomness; in studies it comes from a seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedgranger.privacy.noise import gaussian
from fedgranger.privacy.sensitivity import Neighbours


class Release(NamedTuple):
    """One message, or one number that others depend on, that is about to be released with noise.

    Attributes:
        message: what it is.
        content: a name for what it hides; the same content again costs nothing.
        size: μ, by which records are neighbours.
    """

    message: str
    content: str
    size: Callable[[Neighbours], float]


class SecretNoise(NamedTuple):
    """Noise that only the holder of the secret can know."""

    secret: bytes

    def add(
        self,
        message: str,
        clean: np.ndarray,
        scale: float | np.ndarray,
        of: np.ndarray | None = None,
    ) -> tuple[np.ndarray, str]:
        """Add noise; the scale is a standard deviation, or a matrix that row vectors are put to.

        `of` is what `clean` was computed from, where the last bits of that may come out in
        several ways: the noise is then a function of it, and is not drawn again for other bits.

        Returns:
            The noisy array, and a name for what it hides.
        """
        hidden = np.ascontiguousarray(clean if of is None else of)
        place = (message, hidden, np.asarray(scale, dtype=np.float64))
        noise = gaussian(self.secret, *place, shape=clean.shape)
        name = hashlib.blake2b(key=self.secret, digest_size=16)
        shapes = f"{hidden.shape} {place[2].shape} {clean.shape}".encode()
        for part in (message.encode(), shapes, hidden.tobytes(), place[2].tobytes()):
            name.update(len(part).to_bytes(8, "little"))
            name.update(part)
        added = noise * scale if np.ndim(scale) == 0 else noise @ np.asarray(scale).T
        return clean + added, name.hexdigest()


def seeded_secret(seed: int, client: str) -> bytes:
    """A secret for studies and runs in one process, in which nobody has anything to hide."""
    return hashlib.blake2b(f"{seed} {client}".encode(), digest_size=32).digest()
