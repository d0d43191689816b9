r"""Stretches of rounds: means first, then what every round adds, then the covariance.

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

from fedgranger.uncertainty import added as adding
from fedgranger.uncertainty import means as moving
from fedgranger.uncertainty import views
from fedgranger.uncertainty.added import Added
from fedgranger.uncertainty.carry import Carry
from fedgranger.uncertainty.gains import Gains
from fedgranger.uncertainty.inputs import RowParams, RowWindow
from fedgranger.uncertainty.means import RowMean
from fedgranger.uncertainty.spread import factors_of, written
from fedgranger.uncertainty.terms import Rest, RowCov, Terms, add_terms
from fedgranger.uncertainty.views import Quantities

__all__ = [
    "RowsState",
    "Sizes",
    "advance_rounds",
    "follow_rounds",
    "look",
    "measure",
    "prior_state",
]

_Tree = TypeVar("_Tree")


class RowsState(NamedTuple):
    """Moments of several rows (leading axis) before a round.

    Attributes:
        mean: means and carry.
        cov: covariance of (θ', Â), all of it.
        prior_cov: the part of it that comes from the prior (zero when it is not wanted).
    """

    mean: RowMean
    cov: RowCov
    prior_cov: RowCov | None


class Sizes(NamedTuple):
    """What is worth recording before a round, of several rows.

    Attributes:
        total: sizes of all quantities (`views.sizes`).
        prior: the prior's share of them, when it is told apart.
        granger: means of Â.
    """

    total: dict[str, Array]
    prior: dict[str, Array] | None
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
    """Start from independent priors with these means and variances.

    Args:
        augmentation: mean of θ.
        granger: mean of Â.
        augmentation_var: variance of θ's entries; zero on padding.
        granger_var: variance of Â's entries; zero where a coupling is absent.
        groups: 1 for joint, one per cause for blockwise.
        split: carry the prior's share along.
        full_noise: noise will be given as full matrices.
    """
    rows, p, d = augmentation.shape
    q = granger.shape[2]

    def diagonal(variances: Array) -> Array:
        n = variances.shape[1] * variances.shape[2]
        full = jax.vmap(jnp.diag)(variances.reshape(-1, n))
        return full.reshape(-1, *variances.shape[1:], *variances.shape[1:])

    by_group = granger_var.reshape(rows, p, groups, q // groups).transpose(0, 2, 1, 3)
    granger_cov = diagonal(by_group.reshape(-1, p, q // groups))
    cov = RowCov(
        diagonal(augmentation_var),
        jnp.zeros((rows, p, d, p, q)),
        granger_cov.reshape(rows, groups, p, q // groups, p, q // groups),
    )
    mean = jax.vmap(lambda a, b: moving.start(a, b, full_noise=full_noise))(augmentation, granger)
    return RowsState(mean, cov, cov if split else None)


def advance_rounds(params: RowParams, state: RowsState, windows: RowWindow) -> RowsState:
    """Run consecutive rounds; `windows` has leading axes (round, row)."""
    return _advance(params, state, windows, len(windows.measurements))[0]


def follow_rounds(
    params: RowParams, state: RowsState, windows: RowWindow, every: int
) -> tuple[RowsState, Sizes]:
    """Run consecutive rounds; also return sizes before every `every`-th of them (leading axis).

    Args:
        params: constants of all rows.
        state: moments before the rounds.
        windows: leading axes (round, row).
        every: divides the number of rounds.
    """
    end, path = _advance(params, state, windows, every)
    return end, _measure_some(params, path, windows, every)


def _advance(
    params: RowParams, state: RowsState, windows: RowWindow, every: int
) -> tuple[RowsState, RowsState]:
    """The state after the rounds; means before all of them, covariances before some."""
    mean, means = _scan_means(params, state.mean, windows)
    added = _all_added(params, means, windows)
    cov, covs = _scan_cov(state.cov, windows, added.gain, added.terms, added.rest, every=every)
    if state.prior_cov is None:
        return RowsState(mean, cov, None), RowsState(means, covs, None)
    prior_cov, prior_covs = _scan_cov(state.prior_cov, windows, added.gain, every=every)
    return RowsState(mean, cov, prior_cov), RowsState(means, covs, prior_covs)


@jax.jit
def look(
    params: RowParams, state: RowsState, window: RowWindow
) -> tuple[Quantities, Quantities | None]:
    """All named quantities before a round (leading row axis), and the prior's share of them."""
    found = jax.vmap(views.quantities)(params, state.mean, state.cov, window)
    if state.prior_cov is None:
        return found, None
    return found, jax.vmap(views.prior_quantities)(params, state.prior_cov, window)


@jax.jit
def measure(params: RowParams, state: RowsState, window: RowWindow) -> Sizes:
    """Sizes of what `look` returns (leading row axis)."""
    p, q = state.cov.cross.shape[3:]
    found, prior = look(params, state, window)
    of_rows = jax.vmap(lambda row: views.sizes(row, q // p))
    return Sizes(of_rows(found), None if prior is None else of_rows(prior), state.mean.granger)


@partial(jax.jit, static_argnames="every")
def _measure_some(params: RowParams, path: RowsState, windows: RowWindow, every: int) -> Sizes:
    means, some = jax.tree.map(lambda leaf: leaf[::every], (path.mean, windows))
    return jax.vmap(measure, in_axes=(None, 0, 0))(params, path._replace(mean=means), some)


@jax.jit
def _scan_means(params: RowParams, mean: RowMean, windows: RowWindow) -> tuple[RowMean, RowMean]:
    """The means after all rounds, and before each of them.

    Only θ and Â depend on the round before; the rest is computed for all rounds at once.
    """

    def before_each(first: _Tree, after: _Tree) -> _Tree:
        return jax.tree.map(lambda x, y: jnp.concatenate([x[None], y[:-1]]), first, after)

    carries = jax.vmap(jax.vmap(moving.last_step))(windows)
    carried = before_each(mean.carry, carries)

    def one(
        now: tuple[Array, Array], inputs: tuple[Carry, RowWindow]
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        return jax.vmap(moving.move)(params, *now, *inputs), now

    start = mean.augmentation, mean.granger
    end, path = lax.scan(one, start, (carried, windows))
    of_rows = jax.vmap(moving.data_cov_after)
    data_covs = jax.vmap(of_rows, in_axes=(None, 0, 0, 0, 0))(params, *path, carried, windows)
    last = jax.tree.map(lambda leaf: leaf[-1], (carries, data_covs))
    return RowMean(*end, *last), RowMean(*path, carried, before_each(mean.data_cov, data_covs))


def _all_added(params: RowParams, means: RowMean, windows: RowWindow) -> Added:
    ready = _prepare(params, means, windows)
    return _finish(params, means, windows, ready, _factors(params, means, windows, ready))


def _bulk(step: Callable[..., _Tree]) -> Callable[..., _Tree]:
    """A function of a row's constants and round, for all rounds and rows."""
    of_rows = jax.vmap(step)

    @jax.jit
    def of_rounds(params: RowParams, *inputs: Any) -> _Tree:
        return jax.vmap(lambda *one: of_rows(params, *one))(*inputs)

    return of_rounds


_prepare = _bulk(adding.prepare)
_factors = _bulk(adding.factors)
_finish = _bulk(adding.finish)


@partial(jax.jit, static_argnames="every")
def _scan_cov(
    cov: RowCov,
    windows: RowWindow,
    gains: Gains,
    terms: Terms | None = None,
    rest: Rest | None = None,
    *,
    every: int,
) -> tuple[RowCov, RowCov]:
    """Advance a covariance; without `terms` and `rest`, by its own linear part alone.

    Also returns it before every `every`-th round. A round's factors are handed over from the round
    before: XLA then computes them once, where it would compute them again for every entry of the
    covariance that they are multiplied into.
    """

    def at(t: Array, tree: _Tree) -> _Tree:
        return jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, t, keepdims=False), tree)

    def factors(cov: RowCov, t: Array) -> Terms:
        own = jax.vmap(factors_of)(*at(t, (gains, windows)), cov)
        return own if terms is None else add_terms(own, at(t, terms))

    def one(now: tuple[RowCov, Terms], t: Array) -> tuple[tuple[RowCov, Terms], None]:
        gain, window, more = at(t, (gains, windows, rest))
        new = jax.vmap(written)(gain, window, *now, more)
        return (new, factors(new, t + 1)), None  # at the end t + 1 means t, and is not used

    def stretch(now: tuple[RowCov, Terms], rounds: Array) -> tuple[tuple[RowCov, Terms], RowCov]:
        return lax.scan(one, now, rounds)[0], now[0]

    # unsigned: nothing is spent on negative indices
    rounds = jnp.arange(len(windows.measurements), dtype=jnp.uint32)
    start = cov, factors(cov, rounds[0])
    (cov, _), some = lax.scan(stretch, start, rounds.reshape(-1, every))
    return cov, some
