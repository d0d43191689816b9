r"""What a round adds to a covariance of (θ, Â), whatever that covariance is: \(\mathcal N\).

In three steps, which `propagate` compiles by themselves: `prepare`, `factors`, `finish`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from fedgranger.uncertainty.carry import CarryMoments, carried_cov, carry_moments, late_gain
from fedgranger.uncertainty.carryover import first_step, held_terms
from fedgranger.uncertainty.gains import Gains, gains
from fedgranger.uncertainty.inputs import RowParams, RowWindow, times_noise
from fedgranger.uncertainty.means import RowMean, mean_errors
from fedgranger.uncertainty.spread import (
    Projections,
    StepMoments,
    contract,
    fluctuation,
    project,
    scaled,
    swapped_cov,
)
from fedgranger.uncertainty.terms import (
    Products,
    Rest,
    RowCov,
    Terms,
    add_rest,
    add_terms,
    write_out,
)

__all__ = ["Added", "Factors", "Ready", "added", "factors", "finish", "prepare"]


class Added(NamedTuple):
    """What a round adds to the covariance, whatever the covariance is.

    Attributes:
        gain: the round's gains.
        terms: what its steps add in short factors (leading step axis).
        rest: everything else.
    """

    gain: Gains
    terms: Terms
    rest: Rest


class Ready(NamedTuple):
    """What a round's factors are made of: gains, mean errors, and what the first step carries."""

    gain: Gains
    errors: Float[Array, "window p"]
    carried: CarryMoments


class Factors(NamedTuple):
    """What is multiplied to get what a round adds.

    Attributes:
        first: moments that decide what the noise of the first step does.
        terms: other short factors (leading step axis).
        products: those of the first step.
        more: those of what the first step carried in, when that is simple (one step, diagonal
            noise), or of all later steps (leading step axis).
    """

    first: StepMoments
    terms: Terms
    products: Products
    more: Products


def added(params: RowParams, mean: RowMean, window: RowWindow) -> Added:
    """What a round adds to the covariance."""
    ready = prepare(params, mean, window)
    return finish(params, mean, window, ready, factors(params, mean, window, ready))


def prepare(params: RowParams, mean: RowMean, window: RowWindow) -> Ready:
    """Compute what the factors are made of."""
    theta, carry, data_cov = mean.augmentation, mean.carry, mean.data_cov
    gain = gains(params, window)
    errors = mean_errors(params, window, gain, theta, mean.granger)
    carried = carry_moments(params, window, gain, carry, data_cov, theta, errors[0])
    return Ready(gain, errors, carried)


def factors(params: RowParams, mean: RowMean, window: RowWindow, ready: Ready) -> Factors:
    """Compute what is multiplied to get what a round adds."""
    gain, carried = ready.gain, ready.carried
    first, own, products = first_step(
        params, window, gain, mean.carry, mean.data_cov, carried, mean.augmentation, ready.errors[0]
    )
    mixing = _mixing_of_one_step(gain)
    if mixing is not None:
        held, more = held_terms(window, gain, mixing, mean.carry, carried)
        terms = jax.tree.map(lambda part: part[None], add_terms(own, held))
        return Factors(first, terms, products, more)

    held = _held(params, mean, window)
    seen = project(gain, window, held)

    def later(t: Array) -> tuple[Terms, Products]:
        return _later_step(params, window, mean, ready, held, seen, t)

    terms, more = jax.vmap(later)(jnp.arange(1, len(window.measurements)))
    steps = jax.tree.map(lambda one, others: jnp.concatenate([one[None], others]), own, terms)
    return Factors(first, add_terms(contract(gain, window, seen), steps), products, more)


def finish(
    params: RowParams, mean: RowMean, window: RowWindow, ready: Ready, made: Factors
) -> Added:
    """Multiply."""
    y, g, gain = window.measurements, window.causes, ready.gain
    first = fluctuation(y[0], g[0], gain.N[0], gain.B[0], made.first)
    terms = jax.tree.map(lambda all_, one: all_.at[0].add(one), made.terms, first)
    (p, d), q = mean.augmentation.shape, g.shape[1]
    shape = (p, d, q)
    if _mixing_of_one_step(gain) is not None:
        return Added(gain, terms, write_out(shape, made.products, made.more))

    held = _held(params, mean, window)

    def later(total: Array, inputs: tuple[Array, Array, Products]) -> tuple[Array, None]:
        N, V, products = inputs
        swapped = swapped_cov(N, V, held.augmentation)
        return total + swapped + write_out(shape, products).augmentation, None

    rest = add_rest(scaled(gain, held), write_out(shape, made.products))
    inputs = (gain.N[1:], window.noise[1:], made.more)
    return Added(gain, terms, Rest(lax.scan(later, rest.augmentation, inputs)[0], rest.cross))


def _mixing_of_one_step(gain: Gains) -> Float[Array, "p p d"] | None:
    """With one step and diagonal noise, what that step carried in has short factors."""
    return gain.mixing if len(gain.N) == 1 else None


def _held(params: RowParams, mean: RowMean, window: RowWindow) -> RowCov:
    """Covariance of the noise that θ holds when a round begins."""
    p, q = mean.granger.shape
    augmentation = carried_cov(params, mean.carry, window.noise[0])
    cross = jnp.zeros((*mean.augmentation.shape, p, q))
    return RowCov(augmentation, cross, jnp.zeros((1, p, q, p, q)))


def _later_step(
    params: RowParams,
    window: RowWindow,
    mean: RowMean,
    ready: Ready,
    held: RowCov,
    seen: Projections,
    t: Array,
) -> tuple[Terms, Products]:
    """What the noise of step t ≥ 1 of a window adds, but for `swapped_cov`.

    Its measurement is the target of the step before (inside the same round), which adds
    D ε_t y_{t-1}ᵀ to θ; for t = 1 that meets what the first measurement carried in.
    """
    gain, carried = ready.gain, ready.carried
    y, theta, previous = window.measurements, mean.augmentation, mean.carry.measurement
    V, before, N = window.noise[t], window.noise[t - 1], gain.N[t]
    D = late_gain(params, window.paired_weights[t - 1])
    DV, e = times_noise(D, V), ready.errors[t]
    is_second = (t == 1).astype(y.dtype)
    noisy_theta = times_noise(theta, V)
    full = jnp.diag(V) if V.ndim == 1 else V

    state = jnp.einsum("ijkl,jl->ik", held.augmentation, full) + noisy_theta @ theta.T
    error_state = times_noise(seen.theta_alpha[t].transpose(1, 0, 2), V)
    error_state = (
        error_state
        + e[:, None, None] * noisy_theta[None]
        + (DV @ theta.T)[:, :, None] * y[t - 1][None, None]
        + is_second * (DV @ previous)[:, None, None] * carried.DV[None]
    )
    square = seen.alpha_alpha[t, :, t] + jnp.outer(e, e)
    g = window.causes[t]
    moments = StepMoments(square, error_state, state, state)
    base = fluctuation(y[t], g, N, gain.B[t], moments)
    half, E = N @ noisy_theta, DV @ D.T
    partner = jnp.outer(e, y[t - 1]) - is_second * (previous @ y[t]) * (N @ carried.DV)
    return base, Products(
        kron=((E, before), (E, jnp.outer(y[t - 1], y[t - 1]))),
        swapped=((half, half), (DV, partner), (partner, DV)),
    )
