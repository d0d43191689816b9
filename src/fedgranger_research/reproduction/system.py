r"""The system behind the figures: clients in pairs, the first of a pair drives the second.

Two clients are the paper's setting: \(p = 2\), \(d = 8\), \(A_{12} = 0\), \(A_{21} \ne 0\). The
paper prints no matrices; these are ours. Every \(A_{mm}\) is a damped rotation, so states have
about the same variance in all directions, and with more clients no variance grows along a chain.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedgranger.data.linear_system import client_names
from fedgranger.data.panel import Panel
from fedgranger.data.synthetic import simulate
from fedgranger.data.truth import Truth

STATE_DIM = 2
INFLUENCE = np.array([[0.4, 0.2], [-0.3, 0.4]])
"""A_21: how the first client of a pair acts on the second."""
DAMPING = 0.7
SILENT_VAR = 1e-20
"""Variance of sensors that show the mean of the measurements: zero, for all a filter can tell."""


def paired_system(num_clients: int, sensor_dim: int, noise_var: float, seed: int = 0) -> Truth:
    """Return the system; observation matrices are standard normal, process noise has variance 1.

    Example:
        >>> paired_system(2, 8, 0.1).edges
        (('client1', 'client2'),)
    """
    names = client_names(num_clients)
    edges = tuple((names[m], names[m + 1]) for m in range(0, num_clients - 1, 2))
    A = np.zeros((STATE_DIM * num_clients, STATE_DIM * num_clients))
    for m in range(num_clients):
        own = slice(STATE_DIM * m, STATE_DIM * (m + 1))
        A[own, own] = DAMPING * _rotation(0.3 + 0.4 * m)
        if m % 2:
            A[own, STATE_DIM * (m - 1) : STATE_DIM * m] = INFLUENCE
    rng = np.random.default_rng(seed)
    return Truth(
        names,
        edges,
        A,
        dict.fromkeys(names, STATE_DIM),
        {name: rng.standard_normal((sensor_dim, STATE_DIM)) for name in names},
        np.eye(len(A)),
        {name: noise_var * np.eye(sensor_dim) for name in names},
    )


def mean_panel(system: Truth, num_steps: int, seed: int = 0) -> tuple[Panel, Truth]:
    """Measure the system with silent sensors: the means ȳ, and the system that has such sensors.

    The states are one realisation and stay as they are (assumption A1 of the paper); what is
    random along training is the measurement noise, which the recursion is given as a covariance.
    """
    covs = {name: SILENT_VAR * np.eye(len(R)) for name, R in system.measurement_covs.items()}
    silent = replace(system, measurement_covs=covs)
    panel, _ = simulate(num_steps=num_steps, seed=seed, system=silent)
    return panel, silent


def _rotation(angle: float) -> np.ndarray:
    cos, sin = np.cos(angle), np.sin(angle)
    return np.array([[cos, -sin], [sin, cos]])
