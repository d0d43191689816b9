"""A small nonlinear system with a known transition, for several test modules."""

import numpy as np

LINEAR = np.array([[0.7, 0.3], [-0.2, 0.6]])


def curved(h):
    """Next state; bounded, with a strong bend: a straight line misses a third of its spread."""
    next_first = 0.9 * h[..., 1]
    next_second = 1.0 - 0.6 * h[..., 1] ** 2 + 0.3 * h[..., 0]
    return np.stack([next_first, next_second], axis=-1)


def straight(h):
    return h @ LINEAR.T


def trajectory(transition, num_steps, noise_std, seed):
    rng = np.random.default_rng(seed)
    h = np.zeros((num_steps, 2))
    for t in range(1, num_steps):
        h[t] = transition(h[t - 1]) + noise_std * rng.standard_normal(2)
    return h


def observe(h, noise_std, seed, num_sensors=6):
    """Linear sensors with white noise: measurements (time, sensor) and C."""
    rng = np.random.default_rng(seed)
    C = rng.standard_normal((num_sensors, 2))
    return h @ C.T + noise_std * rng.standard_normal((len(h), num_sensors)), C
