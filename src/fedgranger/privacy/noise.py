"""Clipping rows, and Gaussian noise that is a function of a secret and of what it is added to.

In a deployment the secret is randomness of the operating system that never leaves the site; in a
study it comes from the seed, so that the study can be repeated. Whoever does not have the secret
cannot tell the noise from independent normal numbers (as long as SHAKE-256 holds).

Put into the place what the noise is for (run, round, name of the message) and the exact content
it is added to. The same message again, say after a crash, then gets the same noise, so nothing is
learned from the second copy; another content gets other noise, so the noise of two messages never
cancels in their difference.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np
import scipy.special

from fedgranger.errors import ConfigError, DataError

CHUNK_NUMBERS = 65_536
ROUNDING = 1e-15
"""A clipped row is that much shorter than the bound, so that rounding does not make it longer."""


def clip_rows(values: np.ndarray, bound: float) -> tuple[np.ndarray, int]:
    """Shorten every row that is longer than `bound` to that length, keeping its direction.

    Returns:
        The rows, none longer than the bound, and how many were shortened.

    Raises:
        DataError: a number is not finite.

    Example:
        >>> clip_rows(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0)[0].round(3).tolist()
        [[0.6, 0.8], [0.3, 0.4]]
    """
    if not bound >= 0.0:
        raise ConfigError(f"the bound for clipping is {bound}; it must be zero or more")
    finite = np.isfinite(values).all(axis=1)
    if not finite.all():
        raise DataError(
            f"row {int(np.argmin(finite))} of what is to be clipped has a number that is not "
            "finite; leave missing rows out"
        )
    if bound == math.inf:
        return values.copy(), 0
    largest = np.abs(values).max(axis=1, initial=0.0)
    unit = np.where(largest > 0.0, largest, 1.0)  # squares of very large numbers would overflow
    relative = values / unit[:, None]
    norms = np.sqrt((relative**2).sum(axis=1))
    with np.errstate(over="ignore"):
        is_long = norms > bound / unit
    factors = (1.0 - ROUNDING) * bound / np.where(is_long, norms, 1.0)
    return np.where(is_long[:, None], relative * factors[:, None], values), int(is_long.sum())


def gaussian(
    secret: bytes, *place: str | int | bytes | np.ndarray, shape: tuple[int, ...]
) -> np.ndarray:
    """Standard normal numbers, a function of `secret`, `place` and `shape` alone.

    SHAKE-256 of the secret, the parts of the place, the shape and the number of the chunk gives
    64 bits for each number: one for the sign, 53 for a probability u in (0, 1/2], and the number
    is the normal quantile of u with that sign. It is never infinite: the largest is 8.4.
    Every part is hashed with its kind and its length, so different places never meet.

    Example:
        >>> first = gaussian(b"secret", "states", 1, shape=(2,))
        >>> bool((first == gaussian(b"secret", "states", 1, shape=(2,))).all())
        True
    """
    if not secret:
        raise ConfigError("the secret of the noise is empty; give random bytes")
    begun = hashlib.shake_256()
    for part in (b"fedgranger noise", secret, len(place), *place, *shape):
        begun.update(_encoded(part))
    numbers = np.empty(math.prod(shape))
    for chunk, start in enumerate(range(0, len(numbers), CHUNK_NUMBERS)):
        hashed = begun.copy()
        hashed.update(chunk.to_bytes(8, "little"))
        count = min(CHUNK_NUMBERS, len(numbers) - start)
        bits = np.frombuffer(hashed.digest(8 * count), dtype="<u8")
        u = ((bits >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-54
        negative = (bits & np.uint64(1)).astype(np.bool_)
        quantiles = scipy.special.ndtri(u)  # below zero
        numbers[start : start + count] = np.where(negative, quantiles, -quantiles)
    return numbers.reshape(shape)


def _encoded(part: str | int | bytes | np.ndarray) -> bytes:
    """Kind, length, content: no other part, and no two parts together, give the same bytes."""
    if isinstance(part, np.ndarray):
        if part.dtype.hasobject:
            raise TypeError("a part of the noise's place is an array of objects; give numbers")
        described = f"{part.dtype.str}{part.shape}".encode()
        content = _with_length(b"d", described) + np.ascontiguousarray(part).tobytes()
        return _with_length(b"a", content)
    if isinstance(part, bytes):
        return _with_length(b"b", part)
    if isinstance(part, str):
        return _with_length(b"s", part.encode())
    if isinstance(part, int | np.integer):
        return _with_length(b"i", str(int(part)).encode())
    raise TypeError(f"a part of the noise's place is a {type(part).__name__}; give text or bytes")


def _with_length(kind: bytes, content: bytes) -> bytes:
    return kind + len(content).to_bytes(8, "little") + content
