"""A chain a → b → c of made clients, with or without a shock at one of them."""

import numpy as np

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
