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
        before = P
        P = A @ (P - P @ np.linalg.solve(P + noise, P)) @ A.T + np.eye(state_dim)
        if np.abs(P - before).max() <= 1e-15 * np.abs(P).max():
            break
    K = P @ np.linalg.inv(P + noise)
    return Filter(A, np.eye(state_dim) - K, K @ rng.standard_normal((state_dim, input_dim)))


def run(filter, inputs, observed, starts):
    """The filter's trajectory, step by step as the docstring of `Filter` has it.

    Inputs are (time, k), or (time, k, case) for many trajectories at once.
    """
    A, D, G = filter
    start = np.zeros((len(A), *inputs.shape[2:]))
    state, states = start, []
    for y, is_observed, is_start in zip(inputs, observed, starts, strict=True):
        state = A @ (start if is_start else state)
        if is_observed:
            state = D @ state + G @ y
        states.append(state)
    return np.array(states)


def response(filter, observed, starts):
    """R: what each input at each time does to the whole trajectory; (time p, time, k)."""
    num_steps, k = len(observed), filter.gain.shape[1]
    one_by_one = np.eye(num_steps * k).reshape(num_steps, k, -1)
    return run(filter, one_by_one, observed, starts).reshape(-1, num_steps, k)


def worst_change(R, length, rng, num_starts=6, num_rounds=60):
    """Search for the inputs of norm one, in `length` steps, that move the trajectory farthest.

    Block power iteration from the leading eigenvector, from a constant, from random directions
    and from roundings of the same iteration with several columns (which rarely gets stuck).
    """
    k, begins = R.shape[2], range(R.shape[1] - length + 1)
    parts = np.stack([R[:, begin : begin + length].reshape(len(R), -1) for begin in begins])
    T = np.swapaxes(parts, 1, 2) @ parts
    lifted = ascend(T, rng.standard_normal((len(parts), length, k, 6)), num_rounds)
    starts = [
        np.linalg.eigh(T)[1][:, :, -1:],
        np.ones((len(parts), length * k, 1)),
        rng.standard_normal((len(parts), length * k, num_starts)),
        (lifted @ rng.standard_normal((len(parts), 1, 6, num_starts))).reshape(
            len(parts), length * k, num_starts
        ),
    ]
    at = np.moveaxis(np.concatenate(starts, axis=2), 2, 0)  # (start, window, length k)
    U = ascend(T, at.reshape(-1, len(parts), length, k, 1), num_rounds)[..., 0]
    changes = np.linalg.norm(parts @ U.reshape(*at.shape, 1), axis=(2, 3))
    which = np.unravel_index(np.argmax(changes), changes.shape)
    return changes[which], (int(which[1]), U[which])


def ascend(T, U, num_rounds):
    """u_i <- (T u)_i / |(T u)_i|, which never makes u'Tu smaller; (..., length, k, column)."""
    shape = U.shape
    for _ in range(num_rounds):
        V = (T @ U.reshape(*shape[:-3], -1, shape[-1])).reshape(shape)
        norms = np.sqrt((V**2).sum(axis=(-2, -1), keepdims=True))
        U = V / np.where(norms > 0, norms, 1.0)
    return U
