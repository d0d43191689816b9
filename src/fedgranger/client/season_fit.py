"""The parts of a season: waves and phases of a time axis, and their weights by least squares."""

from __future__ import annotations

import numpy as np

from fedgranger.client.clock import Clock
from fedgranger.client.lines import num_harmonics
from fedgranger.data.panel import ClientData

CHUNK_STEPS = 65_536
SWEEPS = 50


def waves(clock: Clock, lengths: tuple[float, ...]) -> np.ndarray:
    """Cosines and sines of every period's harmonics, (time, column)."""
    columns = []
    for length in lengths:
        k = np.arange(1, num_harmonics(length / clock.interval) + 1)
        angle = 2 * np.pi * np.outer(clock.phase(length), k)
        columns += [np.cos(angle), np.sin(angle)]
    return np.hstack(columns)


def phases(clock: Clock, lengths: tuple[float, ...]) -> list[np.ndarray]:
    """Row of the weights that holds a sample's phase, per period."""
    out, first = [], 0
    for length in lengths:
        count = max(2, round(length / clock.interval))
        out.append(first + np.rint(clock.phase(length) * count).astype(np.int64) % count)
        first += count
    return out


def fit_waves(client: ClientData, clock: Clock, lengths: tuple[float, ...]) -> np.ndarray:
    """Least squares with an intercept, from moments gathered chunk by chunk."""
    num_columns = 1 + waves(clock._replace(ticks=clock.ticks[:1]), lengths).shape[1]
    d, whole = client.num_sensors, bool(client.observed.all())
    counts = client.observed.sum(axis=0)
    centre = client.values.sum(axis=0, where=client.observed) / np.maximum(counts, 1)
    gram = np.zeros((1 if whole else d, num_columns, num_columns))
    cross = np.zeros((num_columns, d))
    for k in range(0, len(clock.ticks), CHUNK_STEPS):
        rows = slice(k, k + CHUNK_STEPS)
        found = waves(clock._replace(ticks=clock.ticks[rows]), lengths)
        x = np.hstack([np.ones((len(found), 1)), found])
        observed = client.observed[rows]
        cross += x.T @ np.where(observed, client.values[rows] - centre, 0.0)
        for j in range(len(gram)):
            used = x if whole else x[observed[:, j]]
            gram[j] += used.T @ used
    out = np.zeros((num_columns, d))
    for j in range(d):
        if counts[j] >= 2 * num_columns:
            moments = gram[0 if whole else j]
            out[:, j] = np.linalg.lstsq(moments, cross[:, j], rcond=1e-10)[0]
    return out[1:]


def fit_profile(client: ClientData, clock: Clock, lengths: tuple[float, ...]) -> np.ndarray:
    """Means per phase, one period after the other until they do not change."""
    places = phases(clock, lengths)
    total = sum(max(2, round(length / clock.interval)) for length in lengths)
    out = np.zeros((total, client.num_sensors))
    for j, observed in enumerate(client.observed.T):
        if observed.sum() < 2 * total:
            continue
        rows = [place[observed] for place in places]
        left = client.values[observed, j] - client.values[observed, j].mean()
        scale = np.abs(left).max()
        for _ in range(SWEEPS if len(rows) > 1 else 1):
            before = out[:, j].copy()
            for place in rows:
                count = np.bincount(place, minlength=total)
                mean = np.bincount(place, left, total) / np.maximum(count, 1)
                out[:, j] += mean
                left = left - mean[place]
            if np.abs(out[:, j] - before).max() <= 1e-13 * scale:
                break
    return out
