"""The largest change of a filter's trajectory by brute force, for tests of its bounds."""

import numpy as np

from fedgranger.privacy.sensitivity import Filter


def random_filter(rng, state_dim, input_dim, radius=None):
    """A steady-state Kalman filter of a random system, with every kind of noise."""
    A = rng.standard_normal((state_dim, state_dim))
    A *= (rng.uniform(0.2, 1.0) if radius is None else radius) / np.abs(np.linalg.eigvals(A)).max()
    noise = np.diag(10.0 ** rng.uniform(-1, 2, state_dim))
    P = np.eye(state_dim)
    for _ in range(2000):
        P = A @ (P - P @ np.linalg.solve(P + noise, P)) @ A.T + np.eye(state_dim)
    K = P @ np.linalg.inv(P + noise)
    return Filter(A, np.eye(state_dim) - K, K @ rng.standard_normal((state_dim, input_dim)))


def run(filter, inputs, observed, starts):
    """The filter's trajectory, step by step as the docstring of `Filter` has it."""
    A, D, G = filter
    state, states = np.zeros(len(A)), []
    for y, is_observed, is_start in zip(inputs, observed, starts, strict=True):
        state = A @ (np.zeros(len(A)) if is_start else state)
        if is_observed:
            state = D @ state + G @ y
        states.append(state)
    return np.array(states)


def response(filter, observed, starts):
    """R: what each input at each time does to the whole trajectory; (time p, time, k)."""
    num_steps, k = len(observed), filter.gain.shape[1]
    R = np.zeros((num_steps * len(filter.gain), num_steps, k))
    for t in range(num_steps):
        for column in range(k):
            inputs = np.zeros((num_steps, k))
            inputs[t, column] = 1.0
            R[:, t, column] = run(filter, inputs, observed, starts).ravel()
    return R


def worst_change(R, length, rng, num_starts=6, num_rounds=60):
    """Search for the inputs of norm one, in `length` steps, that move the trajectory farthest.

    Block power iteration from the leading eigenvector, from a constant, from random directions
    and from roundings of the same iteration with several columns (which rarely gets stuck).
    """
    best, found = 0.0, (0, np.zeros((length, R.shape[2])))
    for begin in range(R.shape[1] - length + 1):
        part = R[:, begin : begin + length].reshape(len(R), -1)
        T = part.T @ part
        lifted = ascend(T, rng.standard_normal((length, R.shape[2], 6)), num_rounds)
        starts = [
            np.linalg.eigh(T)[1][:, -1].reshape(length, -1),
            np.ones((length, R.shape[2])),
            *rng.standard_normal((num_starts, length, R.shape[2])),
            *np.moveaxis(lifted @ rng.standard_normal((6, num_starts)), 2, 0),
        ]
        for start in starts:
            u = ascend(T, start[:, :, None], num_rounds)[:, :, 0]
            change = np.linalg.norm(part @ u.ravel())
            if change > best:
                best, found = change, (begin, u)
    return best, found


def ascend(T, U, num_rounds):
    """u_i <- (T u)_i / |(T u)_i|, which never makes u'Tu smaller."""
    shape = U.shape
    for _ in range(num_rounds):
        V = (T @ U.reshape(-1, shape[2])).reshape(shape)
        norms = np.sqrt((V**2).sum(axis=(1, 2)))
        U = V / np.where(norms > 0, norms, 1.0)[:, None, None]
    return U
