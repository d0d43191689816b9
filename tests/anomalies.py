"""A chain a → b → c of made clients, with or without a shock at one of them."""

import numpy as np
from scipy.signal import lfilter

import fedgranger as fg
from tests.configs import formula_config

NAMES = ("a", "b", "c")
TRANSITION = np.array([[0.6, 0.0, 0.0], [0.8, 0.4, 0.0], [0.0, 0.8, 0.4]])


def made_panel(num_steps, seed=0, shocked=None, at=0, size=5.0, length=None, sensors=4):
    """Sensors that see one state per client through noise; the shock adds to that state."""
    rng = np.random.default_rng(seed)
    loadings = np.random.default_rng(99).uniform(0.5, 1.5, (3, sensors))
    h = np.zeros((num_steps, 3))
    for t in range(1, num_steps):
        h[t] = TRANSITION @ h[t - 1] + rng.standard_normal(3)
        if shocked is not None and at <= t < at + (length or num_steps):
            h[t, NAMES.index(shocked)] += size
    noise = 0.3 * rng.standard_normal((3, num_steps, sensors))
    arrays = {name: h[:, k : k + 1] * loadings[k][None] + noise[k] for k, name in enumerate(NAMES)}
    return fg.Panel.from_arrays(arrays)


def made_run(num_steps=1500):
    return fg.fit(made_panel(num_steps), formula_config(state_dim=1, solver="newton"))


def slow_panel(num_steps, seed=0, shift=0.0, at=0, ramp=60):
    """Two slow clients, p → q; q's state drifts by `shift` deviations and stays there."""
    noise = np.random.default_rng(seed).standard_normal((num_steps + 200, 2))
    states = lfilter([(1 - 0.95**2) ** 0.5], [1.0, -0.95], noise, axis=0)
    p, q = states[200:, 0], 0.6 * states[195:-5, 0] + 0.8 * states[200:, 1]
    q = q + shift * np.clip((np.arange(num_steps) - at) / ramp, 0, 1)
    rng = np.random.default_rng(seed + 1000)
    loadings = np.array([1.0, 0.8, 1.2])
    arrays = {
        name: state[:, None] * loadings + 0.3 * rng.standard_normal((num_steps, 3))
        for name, state in (("p", p), ("q", q))
    }
    return fg.Panel.from_arrays(arrays)


def slow_run(num_steps=3000):
    return fg.fit(slow_panel(num_steps), formula_config(state_dim=1))
