r"""Transition functions f of a client, fitted to its states: \(h^{t+1} \approx f(h^t)\).

Three kinds by name: `linear` (least squares with an offset), `network` (the paper's MLP) and `gp`
(Gaussian process). The last two add to the linear fit what they find beside it, so that with too
few data or too little curvature they end at the linear one:

$$f(h) = A h + b + \text{correction}\big((h - \text{centre}) / \text{scale}\big)$$

What is regressed matters. With noisy states on both sides f would be flattened (errors in
variables). So the first of a pair should be filtered, and the second may be any unbiased reading of
the next state, e.g. the least-squares state: given the past, its mean is f at the filtered state,
up to \(\tfrac12 f''P\).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from threadpoolctl import threadpool_limits

from fedgranger.errors import ConfigError, DataError, ModelError
from fedgranger.linalg.jax_arrays import jax_array

TRANSITIONS = ("linear", "network", "gp")
PAIRS_PER_NUMBER = 5
"""At least so many pairs for each coefficient of a row of the linear fit."""


class TransitionPairs(NamedTuple):
    """States, and what was read of them one step later; in the order of time."""

    before: Float[np.ndarray, "pair state_dim"]
    after: Float[np.ndarray, "pair state_dim"]


class LinearTransition(eqx.Module):
    """f(h) = A h + b; a linear observation too."""

    matrix: Float[Array, "out_dim state_dim"]
    offset: Float[Array, " out_dim"]

    def __call__(self, state: Float[Array, " state_dim"]) -> Float[Array, " out_dim"]:
        """The next state, or the measurement."""
        return self.matrix @ state + self.offset

    @classmethod
    def through_zero(cls, matrix: np.ndarray) -> LinearTransition:
        """One without an offset."""
        return cls(jax_array(matrix), jax_array(np.zeros(len(matrix))))


def fit_transition(
    kind: str,
    states: Float[np.ndarray | Array, "time state_dim"],
    starts: np.ndarray | Array,
    observed: np.ndarray | Array,
    key: PRNGKeyArray | None = None,
    *,
    targets: Float[np.ndarray | Array, "time state_dim"] | None = None,
) -> Callable:
    """Fit a transition function to a client's states.

    Args:
        kind: `linear`, `network` or `gp`.
        states: h^t, best filtered ones.
        starts: (time,) where segments begin; no pair crosses a start.
        observed: (time,) which steps may be used; both of a pair must be.
        key: for the network's first weights and the order of its batches; the others need none.
        targets: what the function is to hit at every step, the states themselves when None.

    Returns:
        A function of a state (p,), to be used as `NonlinearModel.transition`. That of a Gaussian
        process has a method `variances`, its posterior variance at a state.

    Raises:
        ConfigError: no such kind, no key for a network, or its library is not installed.
        DataError: fewer than five usable pairs per coefficient.
        ModelError: states that are not finite.
    """
    if kind not in TRANSITIONS:
        raise ConfigError(f"unknown transition '{kind}'; choose one of {', '.join(TRANSITIONS)}")
    with jax.enable_x64(True), threadpool_limits(1):  # small factors on several threads wait
        pairs = transition_pairs(
            np.asarray(states),
            np.asarray(states if targets is None else targets),
            np.asarray(starts),
            np.asarray(observed),
        )
        if kind == "network":
            from fedgranger.client.network_transition import fit_network

            if key is None:
                raise ConfigError("a network needs a random key; give key=jax.random.key(seed)")
            return fit_network(pairs, key)
        if kind == "gp":
            from fedgranger.client.gaussian_process import fit_gaussian_process

            return fit_gaussian_process(pairs)
        return fit_linear(pairs)


def transition_pairs(
    states: np.ndarray, targets: np.ndarray, starts: np.ndarray, observed: np.ndarray
) -> TransitionPairs:
    """Collect consecutive observed steps of one segment.

    Raises:
        DataError: too few of them.
        ModelError: numbers that are not finite.
    """
    follows = observed[:-1] & observed[1:] & ~starts[1:]
    pairs = TransitionPairs(states[:-1][follows], targets[1:][follows])
    p, needed = states.shape[1], PAIRS_PER_NUMBER * (states.shape[1] + 1)
    if len(pairs.before) < needed:
        raise DataError(
            f"{len(pairs.before)} pairs of consecutive complete rows, {needed} are needed for "
            f"{p} states; give more rows or use fewer states"
        )
    if not (np.isfinite(pairs.before).all() and np.isfinite(pairs.after).all()):
        raise ModelError(
            "states are not finite: the filter left the region where its model holds; use "
            "transition='linear', fewer states, or remove jumps from the data"
        )
    return pairs


def fit_linear(pairs: TransitionPairs) -> LinearTransition:
    """A and b by least squares."""
    centre, mean_after = pairs.before.mean(axis=0), pairs.after.mean(axis=0)
    solution = np.linalg.lstsq(pairs.before - centre, pairs.after - mean_after, rcond=None)[0]
    return LinearTransition(jax_array(solution.T), jax_array(mean_after - solution.T @ centre))


def linear_residuals(pairs: TransitionPairs, linear: LinearTransition) -> np.ndarray:
    """What a linear fit leaves of its targets."""
    return pairs.after - pairs.before @ np.asarray(linear.matrix).T - np.asarray(linear.offset)


def usual_sizes(values: np.ndarray) -> np.ndarray:
    """Standard deviations, 1 where nothing varies."""
    found = values.std(axis=0)
    return np.where(found > 0, found, 1.0)


def need_library(name: str, purpose: str) -> None:
    """Say what to install when a library of the extra `nonlinear` is absent."""
    try:
        __import__(name)
    except ModuleNotFoundError:
        raise ConfigError(
            f"{purpose} needs {name}; install it with: pip install 'fedgranger[nonlinear]'"
        ) from None
