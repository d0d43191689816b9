"""Exact moments of the learner by brute force: Gauss-Hermite quadrature over the noise.

The moments are independent of `fedgranger.uncertainty`: only the learner's own steps are run.
Given the noise, a run of the learner is linear in its start, z ↦ T(ε) z with T at most cubic in
every coordinate of ε, so four nodes per coordinate integrate T M Tᵀ exactly.

`second_moments` goes round by round: with z = (θ', Â, y_p, 1) and θ = θ' + D ε y_pᵀ the noise of a
round is new. `whole_run` knows nothing of θ': it integrates over the noise of all time steps.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fedgranger.client import augment
from fedgranger.client.augment import AugmentParams, AugmentState, ClientWindow
from fedgranger.server import granger
from fedgranger.server.granger import ServerParams, ServerState
from fedgranger.uncertainty.covariance_update import next_cov, update_terms
from fedgranger.uncertainty.inputs import RowParams, row_window
from fedgranger.uncertainty.mean_recursion import RowMean, last_step_of, next_data_cov, next_means
from fedgranger.uncertainty.noise_terms import noise_factors, noise_terms, round_moments
from fedgranger.uncertainty.round_terms import sum_terms

NUM_NODES = 4
KEYS = ("A", "CA", "eta1", "eta2", "gamma", "ridge_theta", "ridge_A", "coupling")
FLAGS = ("is_observed", "has_next")


def learner_round(system, window, y, targets, theta, row):
    """Run the real steps of one row on one window; returns (θ⁺, Â⁺, h_a − h_c, gradients)."""
    A, CA, gamma, ridge, coupling = (
        system[key] for key in ("A", "CA", "gamma", "ridge_A", "coupling")
    )
    client = AugmentParams(CA.T @ CA, *(system[key] for key in ("eta1", "eta2", "ridge_theta")))
    inputs = ClientWindow(
        y, window["h"], targets, jnp.zeros(len(y)), window["is_observed"], window["has_next"]
    )
    now = AugmentState(theta)
    message = augment.send(now, inputs)
    server = ServerParams(A, gamma, ridge, coupling)
    new_row, reply, _ = granger.step(server, ServerState(row), message, window["g"])
    new_theta, _ = augment.step(client, now, inputs, reply)
    correction = message.augmented_states - message.filtered_states
    return new_theta.augmentation, new_row.granger_row, correction, reply.gradients


def second_moments(system, mean, cov, windows):
    """Yield (mean, covariance) of (θ', Â, y_p) in row-major order after every window."""
    d = len(system["CA"])
    system = as_arrays(system, KEYS)
    z = np.concatenate([mean, np.zeros(d), [1.0]])
    M = np.zeros((len(z), len(z)))
    M[: len(mean), : len(mean)] = cov
    M += np.outer(z, z)
    late_weight = 0.0
    for window in windows:
        noise, weights = nodes_of(window["V"])
        given = as_arrays(window, ("y", "h", "g", "nu", *FLAGS))
        maps = _round_maps(system, given, jnp.asarray(late_weight), noise)
        M = np.einsum("n,nij,jk,nlk->il", weights, maps, M, maps, optimize=True)
        late_weight = window["has_next"][-1] / max(window["has_next"].sum(), 1)
        center = M[-1, :-1]
        yield center.copy(), M[:-1, :-1] - np.outer(center, center)


def whole_run(system, mean, cov, windows):
    """Mean and covariance of (θ, Â, y, h_a − h_c, gradient) when the last window begins.

    The last three are those of its first time step; row-major order.
    """
    M = np.zeros((len(mean) + 1, len(mean) + 1))
    M[:-1, :-1] = cov
    z = np.append(mean, 1.0)
    M += np.outer(z, z)
    *before, last = windows
    V = [V for window in before for V in window["V"]] + [last["V"][0]]
    noise, weights = nodes_of(V)
    given = [as_arrays(window, ("y", "h", "g", "nu", *FLAGS)) for window in windows]
    maps = np.asarray(_run_maps(as_arrays(system, KEYS), given, noise))
    second = np.einsum("n,nij,jk,nlk->il", weights, maps, M, maps, optimize=True)
    first = np.einsum("n,nij,j->i", weights, maps, z)
    return first, second - np.outer(first, first)


def nodes_of(covs):
    """All nodes of the noises of some time steps (node, step, d), and their weights."""
    steps, d = len(covs), len(covs[0])
    nodes, weights = np.polynomial.hermite_e.hermegauss(NUM_NODES)
    used = [(t, j) for t, V in enumerate(covs) for j in range(d) if V.any()]
    grid = np.indices((NUM_NODES,) * len(used)).reshape(len(used), NUM_NODES ** len(used))
    unit = np.zeros((grid.shape[1], steps, d))
    for pick, (t, j) in zip(grid, used, strict=True):
        unit[:, t, j] = nodes[pick]
    roots = np.stack([np.linalg.cholesky(V) if V.any() else V for V in covs])
    share = (weights / weights.sum())[grid].prod(axis=0)
    return jnp.asarray(np.einsum("tij,ntj->nti", roots, unit)), share


def as_arrays(values, keys):
    return {key: jnp.asarray(values[key]) for key in keys}


def _noisy(system, window, noise, following):
    targets = (window["nu"] + following) @ system["CA"]
    return window["y"] + noise, targets * window["has_next"][:, None].astype(targets.dtype)


@jax.jit
def _round_maps(system, window, late_weight, noise):
    """T(ε) on (θ', Â, y_p, 1), one per node; the noise of the last target comes later."""
    (d, p), q = system["CA"].shape, len(system["coupling"])
    D = 2 * system["eta1"] * late_weight * system["CA"].T
    size = p * d + p * q

    def one(noise):
        y, targets = _noisy(system, window, noise, jnp.concatenate([noise[1:], jnp.zeros((1, d))]))

        def column(z):
            theta, row = z[: p * d].reshape(p, d), z[p * d : size].reshape(p, q)
            theta = theta + jnp.outer(D @ noise[0], z[size:-1])
            new = learner_round(system, window, y, z[-1] * targets, theta, row)
            return jnp.concatenate([new[0].reshape(-1), new[1].reshape(-1), z[-1] * y[-1], z[-1:]])

        return jax.vmap(column, out_axes=1)(jnp.eye(size + d + 1))

    return jax.lax.map(one, noise, batch_size=512)


@jax.jit
def _run_maps(system, windows, noise):
    """From (θ, Â, 1) at the start to what `whole_run` returns, one map per node."""
    (d, p), q = system["CA"].shape, len(system["coupling"])
    *before, last = windows

    def one(noise):
        def column(z):
            theta, row, t = z[: p * d].reshape(p, d), z[p * d : -1].reshape(p, q), 0
            for window in before:
                W = len(window["y"])
                here, after = noise[t : t + W], noise[t + 1 : t + W + 1]
                y, targets = _noisy(system, window, here, after)
                theta, row, *_ = learner_round(system, window, y, z[-1] * targets, theta, row)
                t += W
            here = jnp.concatenate([noise[t:], jnp.zeros((len(last["y"]) - 1, d))])
            y = last["y"] + here
            *_, state, gradient = learner_round(
                system, last, y, jnp.zeros(last["h"].shape), theta, row
            )
            parts = (theta, row, z[-1] * y[0], state[0], gradient[0])
            return jnp.concatenate([part.reshape(-1) for part in parts])

        return jax.vmap(column, out_axes=1)(jnp.eye(p * d + p * q + 1))

    return jax.lax.map(one, noise, batch_size=512)


def random_system(rng, p, d, q, **changes):
    system = {
        "A": 0.5 * rng.normal(size=(p, p)),
        "CA": rng.normal(size=(d, p)),
        "eta1": 0.07,
        "eta2": 0.11,
        "gamma": 0.09,
        "ridge_theta": 0.3,
        "ridge_A": 0.2,
        "coupling": np.ones(q),
    }
    return system | changes


def random_windows(rng, p, d, q, *, rounds, window, full, missing=False):
    """Rounds of data with noise of changing size.

    With `missing`: a sample that is not there, a round without any, and a gap in time.
    """
    T = rounds * window
    observed, follows = np.ones(T + 1, dtype=bool), np.ones(T, dtype=bool)
    if missing:
        observed[[0, 2 * window]] = False
        observed[window : window + window] = False
        follows[-1] = False
    has_next = observed[:-1] & observed[1:] & follows
    root = rng.normal(size=(T, d, d))
    V = 0.3 * root @ root.swapaxes(1, 2)
    V = V if full else V * np.eye(d)
    V *= observed[:-1, None, None]
    series = {
        "y": rng.normal(size=(T, d)) * observed[:-1, None],
        "V": V,
        "h": rng.normal(size=(T, p)),
        "g": rng.normal(size=(T, q)),
        "nu": rng.normal(size=(T, d)) * has_next[:, None],
        "is_observed": observed[:-1],
        "has_next": has_next,
    }
    cuts = [slice(k, k + window) for k in range(0, T, window)]
    return [{key: values[cut] for key, values in series.items()} for cut in cuts]


def row_params_of(system):
    return RowParams(*(jnp.asarray(system[key]) for key in KEYS))


def row_window_of(system, window, *, full):
    """The same inputs in the recursion's form."""
    V = window["V"] if full else np.diagonal(window["V"], axis1=1, axis2=2)
    return _row_window(
        window["y"],
        window["g"],
        window["nu"] @ system["CA"] * window["has_next"][:, None],
        V,
        *(window[key] for key in ("has_next", "is_observed")),
        system["coupling"],
    )


_row_window = jax.jit(row_window)  # one to compile, not one for each of its operations


@jax.jit
def one_round(params, mean, cov, window):
    """Mean and covariance of one row after one round, without the stages of `recursion`."""
    moments = round_moments(params, mean, window)
    added = noise_terms(
        params, mean, window, moments.gain, noise_factors(params, mean, window, moments)
    )
    terms = sum_terms(update_terms(added.gain, window, cov), added.steps)
    before = params, mean.augmentation, mean.granger, mean.last_step, window
    new = RowMean(*next_means(*before), last_step_of(window), next_data_cov(*before))
    return new, next_cov(added.gain, window, cov, terms, added.dense)
