"""FedGC written as plainly as possible: NumPy, one client, one step at a time.

The equations are those of docs/theory/learner.md:

    u = y⁺ − C A h_c − C A θ y          r = A θ y − Â g
    θ⁺ = (1 − 2η1 λ_θ) θ + 2η1 (CA)ᵀ u yᵀ − 2η2 Aᵀ r yᵀ
    Â⁺ = (1 − 2γ λ_A) Â + 2γ r gᵀ

averaged over the steps of a window for which the data are there. g stacks the states of the
other clients; every client is coupled to every other one.
"""

from typing import NamedTuple

import numpy as np


class Client(NamedTuple):
    A: np.ndarray
    C: np.ndarray
    y: np.ndarray  # (time, sensor)
    h_c: np.ndarray  # (time, state)
    g: np.ndarray  # (time, states of the others)
    observed: np.ndarray  # (time,)
    eta1: float
    eta2: float
    gamma: float


def run(clients, thetas, rows, *, window, num_steps, ridge_theta, ridge_granger):
    """Return (thetas, rows) after `num_steps` training steps; `rows[m]` is Â of client m."""
    thetas, rows = list(thetas), list(rows)
    for start in range(0, num_steps, window):
        steps = range(start, min(start + window, num_steps))
        for m, client in enumerate(clients):
            A, CA, theta, A_hat = client.A, client.C @ client.A, thetas[m], rows[m]
            local, feedback = np.zeros_like(theta), np.zeros_like(theta)
            granger = np.zeros_like(A_hat)
            num_local = num_server = 0
            for t in steps:
                if not client.observed[t]:
                    continue
                y, g = client.y[t], client.g[t]
                r = A @ (theta @ y) - A_hat @ g
                feedback += np.outer(A.T @ r, y)
                granger += np.outer(r, g)
                num_server += 1
                if client.observed[t + 1]:
                    u = client.y[t + 1] - CA @ (client.h_c[t] + theta @ y)
                    local += np.outer(CA.T @ u, y)
                    num_local += 1
            if num_server == 0:
                continue
            thetas[m] = (
                (1 - 2 * client.eta1 * ridge_theta) * theta
                + 2 * client.eta1 * local / max(num_local, 1)
                - 2 * client.eta2 * feedback / num_server
            )
            rows[m] = (
                1 - 2 * client.gamma * ridge_granger
            ) * A_hat + 2 * client.gamma * granger / num_server
    return thetas, rows


def from_setup(setup):
    """Take a prepared run apart into plain arrays."""
    states = [data.filtered_states for data in setup.client_data]
    return [
        Client(
            data.model.self_transition,
            data.model.observation_matrix,
            data.scaled(0, len(data.values)),
            data.filtered_states,
            np.concatenate(states[:m] + states[m + 1 :], axis=1),
            data.is_observed,
            setup.client_step_sizes[m].local,
            setup.client_step_sizes[m].feedback,
            setup.server_step_sizes[m].server,
        )
        for m, data in enumerate(setup.client_data)
    ]


def state_to_plain(setup, state):
    """Split the stacked arrays into per-client θ and Â, without padding and own columns."""
    p, _ = setup.padded_dims
    theta = np.asarray(state.clients.augmentation)
    granger = np.asarray(state.server.granger_row)
    dims = setup.state_dims
    thetas = [
        theta[m, : dims[m], : data.model.num_sensors] for m, data in enumerate(setup.client_data)
    ]
    rows = []
    for m, own in enumerate(dims):
        columns = [n * p + np.arange(dim) for n, dim in enumerate(dims) if n != m]
        rows.append(granger[m, :own][:, np.concatenate(columns)])
    return thetas, rows
