"""Prices of every step of a long record, found for many blocks of steps at once.

The recursion is that of `filter_bounds`. Prices are valid whatever was tried to find good ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedgranger.privacy.filter_bounds import LIMITS, factors_of, is_below, price_and_step_back
from fedgranger.privacy.filter_steps import CUT, OBSERVED, Steps, in_blocks

BLOCK_STEPS = 8192
SAMPLED_BLOCKS, SAMPLED_STEPS = 3, 4096
"""Blocks, and steps of each, on which the rule for prices is chosen."""
CEILINGS = (1.05, 2.0, 6.0)
"""Above so many times the gain of a record without gaps prices grow faster than M."""
STEADY_STEPS = 2000
SLACKS = (*(1e-6,) * 8, *(1e-4,) * 4, *(1e-3,) * 4, *(1e-2,) * 8, *(0.05,) * 8)
"""A matrix that is to be above another is made so much larger, more for a long memory."""


def record_prices(steps: Steps) -> np.ndarray:
    """Prices of all steps of a long record, valid for any change of any of them.

    All blocks of steps are gone through at once. A block begins with a matrix that must be above
    the one that the next block hands back; where it is not, the block is done again from there.
    """
    counts, before_segment = steps.counts()
    columns = (steps.kinds, CUT), (steps.observed, False), (counts[1:] - before_segment, 0)
    blocks = _Blocks(*(in_blocks(values, filler, BLOCK_STEPS) for values, filler in columns))
    num_blocks = len(blocks.kinds)
    rule, typical = _sampled_rule(steps, blocks)
    ends = np.tile((1.0 + SLACKS[0]) * typical, (num_blocks, 1, 1))
    prices, handed_back = np.zeros(blocks.kinds.shape), np.empty_like(ends)
    todo = np.ones(num_blocks, dtype=np.bool_)
    for slack in SLACKS:
        found = _sweep(steps, blocks.rows(todo), ends[todo], rule.repeated(int(todo.sum())))
        prices[todo], handed_back[todo] = found
        needed = np.concatenate([handed_back[1:], np.eye(steps.state_dim)[None]])
        todo = ~is_below(needed, ends)
        if not todo.any():
            return prices.ravel()[: len(steps.kinds)]
        ends[todo] = (1.0 + slack) * needed[todo]
    return np.full(len(steps.kinds), np.inf)


class _Blocks(NamedTuple):
    """Steps in rows of equal length; `places` is n, which measurement of the segment it is."""

    kinds: np.ndarray
    observed: np.ndarray
    places: np.ndarray

    def rows(self, chosen: np.ndarray) -> _Blocks:
        """Some of the blocks."""
        return _Blocks(self.kinds[chosen], self.observed[chosen], self.places[chosen])


class _Rule(NamedTuple):
    """How prices are made: limits of the factors, and gains above which factors are larger.

    With the best limit for a record without gaps, M may have no end once a gap has raised it.
    Prices that grow faster than M above a ceiling bring it back.
    """

    limits: np.ndarray
    ceilings: np.ndarray

    def repeated(self, number: int) -> _Rule:
        """The same rules, one after the other, so many times."""
        return _Rule(np.tile(self.limits, number), np.tile(self.ceilings, number))


def _sampled_rule(steps: Steps, blocks: _Blocks) -> tuple[_Rule, np.ndarray]:
    """Rule with the smallest prices in the first half of some blocks, and an M of theirs."""
    p, num_rules = steps.state_dim, len(CEILINGS) * len(LIMITS)
    ceilings = np.outer(CEILINGS, _steady_gains(steps, LIMITS)).ravel()
    rules = _Rule(np.tile(LIMITS, len(CEILINGS)), ceilings)
    sample = np.unique(np.linspace(0, len(blocks.kinds) - 1, SAMPLED_BLOCKS).astype(np.int64))
    each = np.repeat(sample, num_rules)
    parts = _Blocks(*(values[each, :SAMPLED_STEPS] for values in blocks))
    ends = np.tile(np.eye(p), (len(each), 1, 1))
    prices, handed_back = _sweep(steps, parts, ends, rules.repeated(len(sample)))
    halves = prices[:, : -(-prices.shape[1] // 2)].sum(axis=1).reshape(len(sample), num_rules)
    best = int(np.argmin(halves.sum(axis=0)))
    typical = handed_back.reshape(len(sample), num_rules, p, p)[len(sample) // 2, best]
    return _Rule(rules.limits[[best]], rules.ceilings[[best]]), typical


def _steady_gains(steps: Steps, limits: np.ndarray) -> np.ndarray:
    """Largest gain long before the end when every step is observed, for each limit."""
    kinds = np.full((len(limits), STEADY_STEPS), OBSERVED)
    many = np.full(kinds.shape, STEADY_STEPS)
    blocks = _Blocks(kinds, np.ones(kinds.shape, dtype=np.bool_), many)
    ends = np.tile(np.eye(steps.state_dim), (len(limits), 1, 1))
    rule = _Rule(limits, np.full(len(limits), np.inf))
    prices, _ = _sweep(steps, blocks, ends, rule)
    gains = prices[:, 0] / factors_of(many[:, 0], limits)
    return np.where(np.isfinite(prices).all(axis=1), gains, np.nanmin(gains))


def _sweep(
    steps: Steps, blocks: _Blocks, ends: np.ndarray, rule: _Rule
) -> tuple[np.ndarray, np.ndarray]:
    """Prices of blocks of steps, and the matrices that they hand back to the blocks before."""
    kinds, observed, places = blocks
    prices, M = np.zeros(kinds.shape), ends
    for t in reversed(range(kinds.shape[1])):
        factors = factors_of(places[:, t], rule.limits)
        Phi = steps.matrices[kinds[:, t]]
        prices[:, t], M = price_and_step_back(
            M, steps.gain, Phi, observed[:, t], factors, rule.ceilings
        )
    return prices, M
