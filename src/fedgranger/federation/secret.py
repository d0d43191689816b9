"""A site's secret: random bytes that never leave it, and what is derived from them.

The hash of a site's data is keyed with it, so that nobody can test a guess of the data against the
hash. θ⁰ is drawn from it, so that nobody who sees θ⁰y knows θ⁰. Both are the same after any
restart, because the secret lies on the site's disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

import numpy as np

from fedgranger.data.time_axis import LocalSeries
from fedgranger.disk import create_private, flush_to_disk
from fedgranger.errors import RunError

SECRET_BYTES = 32
PRIOR_SCALE = 0.1
"""Standard deviation of θ⁰; the server cannot choose it."""


def read_secret(path: Path) -> bytes:
    """Read a site's secret, or make it when there is none.

    Raises:
        RunError: the file is not a secret.
    """
    if not path.exists():
        _make(path)
    content = path.read_bytes()
    if len(content) != SECRET_BYTES:
        raise RunError(
            f"{path}: is not {SECRET_BYTES} bytes long; restore it from a backup, or delete it: "
            "the site then counts its questions anew"
        )
    return content


def _make(path: Path) -> None:
    """Whole or not at all, and never over one that is there."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        create_private(beside, secrets.token_bytes(SECRET_BYTES))
        flush_to_disk(beside)
        with contextlib.suppress(FileExistsError):
            os.link(beside, path)
        flush_to_disk(path.parent)
    finally:
        beside.unlink(missing_ok=True)


def keyed_hash(secret: bytes, *parts: bytes | np.ndarray) -> str:
    """A hash that only the site can compute or check."""
    found = hashlib.blake2b(key=secret, digest_size=16)
    for part in parts:
        content = part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes()
        found.update(len(content).to_bytes(8, "little"))
        found.update(content)
    return found.hexdigest()


def data_hash(secret: bytes, series: LocalSeries) -> str:
    """Tell a site's data, and the model declared for them, from others.

    Nobody without the secret can test a guess.
    """
    model = () if series.model is None else series.model.matrices
    return keyed_hash(secret, series.time, series.client.values, series.client.observed, *model)


def draw_start(secret: bytes, data: str, shape: tuple[int, ...]) -> np.ndarray:
    """θ⁰ of a site: the same for the same data and shape, unknown to everybody else."""
    text = f"augmentation {data} {' '.join(map(str, shape))}".encode()
    key = int(keyed_hash(secret, text), 16)
    return PRIOR_SCALE * np.random.Generator(np.random.Philox(key=key)).standard_normal(shape)
