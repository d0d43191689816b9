"""The learner of one row as linear equations, section 3 of the theory notes, step by step."""

import numpy as np
import scipy.linalg


def per_step_equations(setup, m, ridge):
    """(K_t, b_t) of row m for every step: x⁺ = x − K_t x + b_t, x = [vec θ; vec Â]."""
    stream = setup.client_data[m]
    A, CA = stream.model.self_transition, stream.model.predicted_observation
    sizes, gamma = setup.client_step_sizes[m], setup.server_step_sizes[m].server
    p = len(A)
    N = np.block(
        [
            [2 * sizes.local * CA.T @ CA + 2 * sizes.feedback * A.T @ A, -2 * sizes.feedback * A.T],
            [-2 * gamma * A, 2 * gamma * np.eye(p)],
        ]
    )
    y = stream.scaled(0, setup.num_pairs + 1)
    others = [s.filtered_states for n, s in enumerate(setup.client_data) if n != m]
    g = np.concatenate(others, axis=1)
    size_theta, size_granger = p * y.shape[1], p * g.shape[1]
    decay = np.diag(
        np.repeat([2 * sizes.local * ridge, 2 * gamma * ridge], [size_theta, size_granger])
    )
    for t in range(setup.num_pairs):
        L = scipy.linalg.block_diag(
            np.kron(y[t][:, None], np.eye(p)), np.kron(g[t][:, None], np.eye(p))
        )
        innovation = y[t + 1] - CA @ stream.filtered_states[t]
        b = 2 * sizes.local * np.kron(y[t][:, None], CA.T) @ innovation
        yield L @ N @ L.T + decay, np.concatenate([b, np.zeros(size_granger)])


def solve(setup, m, ridge):
    """The vector at which they are zero on average; columns stacked."""
    gains, pulls = zip(*per_step_equations(setup, m, ridge), strict=True)
    return np.linalg.solve(np.mean(gains, axis=0), np.mean(pulls, axis=0))
