r"""Mean and covariance of (θ, Â) of one row, round by round.

The mean moves by itself; the covariance is \(\Sigma^+ = \mathcal L(\Sigma) + \mathcal N\) with
\(\mathcal L\) from `spread` and \(\mathcal N\) (`added`) from the means alone. So a stretch of
rounds is a short scan over the means, all \(\mathcal N\) at once, and a scan of \(\mathcal L\)
(`propagate`); `step` is one round of the same.

Exact for Gaussian measurement noise and any prior with finite variance, for every window length
(docs/theory/propagation.md; checked against quadrature and against a Monte Carlo ensemble).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from fedgranger.linalg.fused import fused_einsum, times
from fedgranger.uncertainty import carryover
from fedgranger.uncertainty.carryover import (
    Carry,
    CarryMoments,
    carried_cov,
    carry_moments,
    late_gain,
)
from fedgranger.uncertainty.data_cov import DataCov, no_data_cov
from fedgranger.uncertainty.inputs import RowParams, RowWindow, times_noise
from fedgranger.uncertainty.spread import (
    Gains,
    Projections,
    StepMoments,
    contract,
    factors_of,
    fluctuation,
    gains,
    mix,
    project,
    scaled,
    swapped_cov,
    written,
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

__all__ = [
    "Added",
    "Factors",
    "Ready",
    "RowMean",
    "added",
    "cov_step",
    "data_cov_after",
    "factors",
    "finish",
    "last_step",
    "mean_step",
    "move",
    "parameter_cov",
    "prepare",
    "start",
    "step",
]


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


class RowMean(NamedTuple):
    """Means before a round, the last step of the round before, and its covariance with them."""

    augmentation: Float[Array, "p d"]
    granger: Float[Array, "p q"]
    carry: Carry
    data_cov: DataCov


def start(
    augmentation: Float[Array, "p d"], granger: Float[Array, "p q"], *, full_noise: bool = False
) -> RowMean:
    """Start from a prior's mean."""
    (p, d), q = augmentation.shape, granger.shape[1]
    data_cov = no_data_cov(p, d, q, full_noise=full_noise)
    carry = Carry(jnp.zeros(()), jnp.zeros(d), data_cov.noise)
    return RowMean(augmentation, granger, carry, data_cov)


def parameter_cov(params: RowParams, mean: RowMean, cov: RowCov, noise: Array) -> RowCov:
    """Covariance of (θ, Â) from that of (θ', Â) which `step` carries.

    They differ by the noise of the measurement the next round begins with, which θ already
    holds; `noise` is its covariance.
    """
    carried = carried_cov(params, mean.carry, noise)
    return RowCov(cov.augmentation + carried, cov.cross, cov.granger)


def step(
    params: RowParams, mean: RowMean, cov: RowCov, window: RowWindow
) -> tuple[RowMean, RowCov]:
    """Advance mean and covariance by one round."""
    terms = added(params, mean, window)
    return mean_step(params, mean, window), cov_step(cov, window, terms)


def cov_step(cov: RowCov, window: RowWindow, more: Added) -> RowCov:
    """Advance a covariance by one round, given what the round adds."""
    terms = add_terms(factors_of(more.gain, window, cov), more.terms)
    return written(more.gain, window, cov, terms, more.rest)


def mean_step(params: RowParams, mean: RowMean, window: RowWindow) -> RowMean:
    """Advance the means by one round."""
    before = mean.augmentation, mean.granger, mean.carry
    after = move(params, *before, window)
    return RowMean(*after, last_step(window), data_cov_after(params, *before, window))


def move(
    params: RowParams,
    theta: Float[Array, "p d"],
    granger: Float[Array, "p q"],
    carry: Carry,
    window: RowWindow,
) -> tuple[Float[Array, "p d"], Float[Array, "p q"]]:
    """Means of θ and Â after a round; they move at second order in the noise too."""
    y, g = window.measurements, window.causes
    gain = gains(params, window)
    errors = _mean_errors(params, window, gain, theta, granger)
    previous = carry.measurement
    DV = times_noise(late_gain(params, carry.weight), window.noise[0])
    K = times(gain.N[0], DV)

    kept = mix(gain, theta[:, None])[:, 0] + errors.T @ y
    new_theta = kept - (previous @ y[0]) * K - jnp.outer(K @ previous, y[0])
    pull = fused_einsum("tab,tb->ta", gain.B, y @ theta.T) - gain.c[:, None] * (g @ granger.T)
    late = jnp.outer(times(gain.B[0], DV @ previous), g[0])
    return new_theta, gain.keep_granger * granger + pull.T @ g + late


def last_step(window: RowWindow) -> Carry:
    """What the next round has to know of this one's data."""
    return Carry(window.paired_weights[-1], window.measurements[-1], window.noise[-1])


def data_cov_after(
    params: RowParams,
    theta: Float[Array, "p d"],
    granger: Float[Array, "p q"],
    carry: Carry,
    window: RowWindow,
) -> DataCov:
    """Covariance of the parameters after a round with its last measurement."""
    gain = gains(params, window)
    errors = _mean_errors(params, window, gain, theta, granger)
    return carryover.next_data_cov(params, window, gain, carry, theta, errors)


def added(params: RowParams, mean: RowMean, window: RowWindow) -> Added:
    """What a round adds to the covariance."""
    ready = prepare(params, mean, window)
    return finish(params, mean, window, ready, factors(params, mean, window, ready))


def prepare(params: RowParams, mean: RowMean, window: RowWindow) -> Ready:
    """Compute what the factors are made of."""
    theta, carry, data_cov = mean.augmentation, mean.carry, mean.data_cov
    gain = gains(params, window)
    errors = _mean_errors(params, window, gain, theta, mean.granger)
    carried = carry_moments(params, window, gain, carry, data_cov, theta, errors[0])
    return Ready(gain, errors, carried)


def factors(params: RowParams, mean: RowMean, window: RowWindow, ready: Ready) -> Factors:
    """Compute what is multiplied to get what a round adds."""
    gain, carried = ready.gain, ready.carried
    first, own, products = carryover.first_step(
        params, window, gain, mean.carry, mean.data_cov, carried, mean.augmentation, ready.errors[0]
    )
    mixing = _mixing_of_one_step(gain)
    if mixing is not None:
        held, more = carryover.held_terms(window, gain, mixing, mean.carry, carried)
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


def _mean_errors(
    params: RowParams, window: RowWindow, gain: Gains, theta: Array, granger: Array
) -> Float[Array, "window p"]:
    """Mean of e_t = 2η1 (CA)ᵀu − 2η2 Aᵀr per step, weighted, without the carried part."""
    phi, rho = window.measurements @ theta.T, window.causes @ granger.T
    target = 2 * params.local_step_size * window.paired_weights[:, None] * window.local_targets
    fed = fused_einsum("tab,tb->ta", gain.kappa, rho)
    return target + fed - fused_einsum("tab,tb->ta", gain.N, phi)


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
