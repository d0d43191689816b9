r"""Mean and covariance of (θ, Â) of several rows over many rounds.

The mean moves by itself; the covariance is \(\Sigma^+ = \mathcal L(\Sigma) + \mathcal N\) with
\(\mathcal L\) from `covariance_update` and \(\mathcal N\) (`noise_terms`) from the means alone. So
there are three stages: a short scan over the means, all \(\mathcal N\) at once, and a scan of
\(\mathcal L\). Exact for Gaussian measurement noise and any prior with finite variance, for every
window length (docs/theory/propagation.md; checked against quadrature and a Monte Carlo ensemble).

Each stage is compiled by itself: XLA would otherwise compute the small arrays of one stage again
for every entry of the next one's large arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from fedgranger.uncertainty.covariance_update import next_cov, update_terms
from fedgranger.uncertainty.inputs import RowParams, RowWindow
from fedgranger.uncertainty.mean_recursion import (
    LastStep,
    RowMean,
    initial_mean,
    last_step_of,
    next_data_cov,
    next_means,
)
from fedgranger.uncertainty.noise_terms import NoiseTerms, noise_factors, noise_terms, round_moments
from fedgranger.uncertainty.quantities import Quantities, prior_quantities, quantities, sizes
from fedgranger.uncertainty.round_terms import DenseTerms, Gains, RowCov, StepTerms, sum_terms

_Tree = TypeVar("_Tree")


class RowsState(NamedTuple):
    """Moments of several rows (leading axis) before a round.

    Attributes:
        mean: means, and what the next round needs of the last measurement.
        cov: covariance of (θ', Â), all of it.
        prior_cov: the part of it that comes from the prior (zero when it is not wanted).
    """

    mean: RowMean
    cov: RowCov
    prior_cov: RowCov | None


class Sizes(NamedTuple):
    """What is recorded of several rows before a round (a checkpoint).

    Attributes:
        total: sizes of all quantities (`quantities.sizes`): (row,), or (row, cause).
        prior: the prior's share of them, when it is kept apart.
        granger: means of Â.
    """

    total: dict[str, Any]
    prior: dict[str, Any] | None
    granger: Float[Array, "*batch row p q"]


@partial(jax.jit, static_argnames=("groups", "split", "full_noise"))
def prior_state(
    augmentation: Float[Array, "row p d"],
    granger: Float[Array, "row p q"],
    augmentation_var: Float[Array, "row p d"],
    granger_var: Float[Array, "row p q"],
    *,
    groups: int,
    split: bool = True,
    full_noise: bool = False,
) -> RowsState:
    """Start from independent priors of θ and Â with these means and variances of their entries.

    Variances are zero on padding and where a coupling is absent. There is one group for joint, one
    per cause for blockwise covariances; `split` keeps the prior's share of them apart.
    """
    rows, p, d = augmentation.shape
    q = granger.shape[2]

    def diagonal(variances: Array) -> Array:
        full = jax.vmap(jnp.diag)(variances.reshape(len(variances), -1))
        return full.reshape(variances.shape + variances.shape[1:])

    by_group = granger_var.reshape(rows, p, groups, q // groups).transpose(0, 2, 1, 3)
    granger_cov = diagonal(by_group.reshape(-1, p, q // groups))
    cov = RowCov(
        diagonal(augmentation_var),
        jnp.zeros((rows, p, d, p, q)),
        granger_cov.reshape(rows, groups, p, q // groups, p, q // groups),
    )
    mean = jax.vmap(lambda a, b: initial_mean(a, b, full_noise=full_noise))(augmentation, granger)
    return RowsState(mean, cov, cov if split else None)


def advance_rounds(params: RowParams, state: RowsState, windows: RowWindow) -> RowsState:
    """Run consecutive rounds; `windows` has leading axes (round, row)."""
    return _advance(params, state, windows, len(windows.measurements))[0]


def advance_and_measure(
    params: RowParams, state: RowsState, windows: RowWindow, every: int
) -> tuple[RowsState, Sizes]:
    """Run consecutive rounds (leading axes: round, row); also sizes before every `every`-th one.

    `every` divides their number.
    """
    end, path = _advance(params, state, windows, every)
    return end, _sizes_at(params, path, windows, every)


def _advance(
    params: RowParams, state: RowsState, windows: RowWindow, every: int
) -> tuple[RowsState, RowsState]:
    """The state after the rounds; means before all of them, covariances before some."""
    mean, means = _scan_means(params, state.mean, windows)
    added = _all_noise_terms(params, means, windows)
    cov, covs = _scan_cov(state.cov, windows, *added, every=every)
    if state.prior_cov is None:
        return RowsState(mean, cov, None), RowsState(means, covs, None)
    prior_cov, prior_covs = _scan_cov(state.prior_cov, windows, added.gain, every=every)
    return RowsState(mean, cov, prior_cov), RowsState(means, covs, prior_covs)


@jax.jit
def row_quantities(
    params: RowParams, state: RowsState, window: RowWindow
) -> tuple[Quantities, Quantities | None]:
    """All named quantities before a round (leading row axis), and the prior's share of them."""
    found = jax.vmap(quantities)(params, state.mean, state.cov, window)
    if state.prior_cov is None:
        return found, None
    return found, jax.vmap(prior_quantities)(params, state.prior_cov, window)


@jax.jit
def row_sizes(params: RowParams, state: RowsState, window: RowWindow) -> Sizes:
    """Sizes of these quantities (leading row axis)."""
    p, q = state.cov.cross.shape[3:]
    found, prior = row_quantities(params, state, window)
    of_rows = jax.vmap(lambda row: sizes(row, q // p))
    return Sizes(of_rows(found), None if prior is None else of_rows(prior), state.mean.granger)


@partial(jax.jit, static_argnames="every")
def _sizes_at(params: RowParams, path: RowsState, windows: RowWindow, every: int) -> Sizes:
    means, some = jax.tree.map(lambda leaf: leaf[::every], (path.mean, windows))
    return jax.vmap(row_sizes, in_axes=(None, 0, 0))(params, path._replace(mean=means), some)


@jax.jit
def _scan_means(params: RowParams, mean: RowMean, windows: RowWindow) -> tuple[RowMean, RowMean]:
    """The means after all rounds, and before each of them.

    Only θ and Â depend on the round before; the rest is computed for all rounds at once.
    """

    def before_each(first: _Tree, after: _Tree) -> _Tree:
        return jax.tree.map(lambda x, y: jnp.concatenate([x[None], y[:-1]]), first, after)

    last_steps = jax.vmap(jax.vmap(last_step_of))(windows)
    steps_before = before_each(mean.last_step, last_steps)

    def one(
        now: tuple[Array, Array], inputs: tuple[LastStep, RowWindow]
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        return jax.vmap(next_means)(params, *now, *inputs), now

    end, path = lax.scan(one, (mean.augmentation, mean.granger), (steps_before, windows))
    of_rows = jax.vmap(next_data_cov)
    data_covs = jax.vmap(of_rows, in_axes=(None, 0, 0, 0, 0))(params, *path, steps_before, windows)
    final = jax.tree.map(lambda leaf: leaf[-1], (last_steps, data_covs))
    before = RowMean(*path, steps_before, before_each(mean.data_cov, data_covs))
    return RowMean(*end, *final), before


def _for_all(step: Callable[..., _Tree]) -> Callable[..., _Tree]:
    """Compile a function of a row's constants and round for all rounds and rows."""
    of_rows = jax.vmap(step)

    @jax.jit
    def of_rounds(params: RowParams, *inputs: Any) -> _Tree:
        return jax.vmap(lambda *one: of_rows(params, *one))(*inputs)

    return of_rounds


_all_moments = _for_all(round_moments)
_all_factors = _for_all(noise_factors)
_all_terms = _for_all(noise_terms)


def _all_noise_terms(params: RowParams, means: RowMean, windows: RowWindow) -> NoiseTerms:
    """What the noise of every round adds."""
    moments = _all_moments(params, means, windows)
    factors = _all_factors(params, means, windows, moments)
    return _all_terms(params, means, windows, moments.gain, factors)


@partial(jax.jit, static_argnames="every")
def _scan_cov(
    cov: RowCov,
    windows: RowWindow,
    gains: Gains,
    steps: StepTerms | None = None,
    dense: DenseTerms | None = None,
    *,
    every: int,
) -> tuple[RowCov, RowCov]:
    """Advance a covariance; without `steps` and `dense`, by its own linear part alone.

    Also returns it before every `every`-th round. A round's factors are handed over from the round
    before: XLA then computes them once, where it would compute them again for every entry of the
    covariance that they are multiplied into.
    """

    def at(t: Array, tree: _Tree) -> _Tree:
        return jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, t, keepdims=False), tree)

    def factors(cov: RowCov, t: Array) -> StepTerms:
        own = jax.vmap(update_terms)(*at(t, (gains, windows)), cov)
        return own if steps is None else sum_terms(own, at(t, steps))

    def one(now: tuple[RowCov, StepTerms], t: Array) -> tuple[tuple[RowCov, StepTerms], None]:
        gain, window, more = at(t, (gains, windows, dense))
        new = jax.vmap(next_cov)(gain, window, *now, more)
        return (new, factors(new, t + 1)), None  # at the end t + 1 means t, and is not used

    def rounds_between(
        now: tuple[RowCov, StepTerms], rounds: Array
    ) -> tuple[tuple[RowCov, StepTerms], RowCov]:
        return lax.scan(one, now, rounds)[0], now[0]

    # unsigned: nothing is spent on negative indices
    rounds = jnp.arange(len(windows.measurements), dtype=jnp.uint32)
    start = cov, factors(cov, rounds[0])
    (cov, _), some = lax.scan(rounds_between, start, rounds.reshape(-1, every))
    return cov, some
