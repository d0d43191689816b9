"""Sensors with slow movements of their own, which are no measurement noise."""

import numpy as np

from fedgranger.data.client_data import ClientData


def make(values, observed=None):
    observed = np.ones(values.shape, dtype=np.bool_) if observed is None else observed
    sensors = tuple(f"s{j + 1}" for j in range(values.shape[1]))
    return ClientData("boiler", sensors, np.where(observed, values, 0.0), observed)


def first_only(length):
    return np.arange(length) == 0


def slow(rng, length, num, root=0.98):
    out = np.zeros((length, num))
    for t in range(1, length):
        out[t] = root * out[t - 1] + rng.standard_normal(num)
    return out / out.std(axis=0)


def slow_sensors(seed=0, length=2000, white=0.05):
    """One common signal; every sensor has slow movement of its own and a little white noise."""
    rng = np.random.default_rng(seed)
    common = slow(rng, length, 1, 0.95)
    return common + 0.8 * slow(rng, length, 6) + white * rng.standard_normal((length, 6))
