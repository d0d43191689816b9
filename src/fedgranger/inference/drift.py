r"""Do the clients' states change over the record? Tests with a level, and a sentence.

Slow states look like drift, so the tests do not use the states but what a client's own past leaves
of them, \(e_m(t)\), scaled to unit covariance and with long rows shortened (`whitening`): nearly
white whatever the client's dynamics are, and bounded where tails are heavy. Of these the mean of

- \(e_m\): the level of the client's states,
- \(e_m(t)\, x_m(t-1)^\top\): their dynamics, x the states before,
- \(e_m e_m^\top\): how much moves them,
- \(e_m(t)\, e_n(t-1)^\top\): the influence of client n

stays where nothing changes. Each is a CUSUM test (`linalg.cusum`); their p-values are multiplied by
the number of tests (Bonferroni), and what is then below `LEVEL` is a change. So a record whose
statistics stay gets a warning with a chance of about 1 %, whatever the number of clients; measured
rates are in docs/drift.md.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fedgranger.config import RunConfig
from fedgranger.edge_test_kinds import EDGE_TESTS
from fedgranger.inference.shifts import StateTable, tabulate
from fedgranger.inference.states import StateSource, clock_steps
from fedgranger.inference.whitening import Whitened, bounded, whiten
from fedgranger.linalg.blocks import client_slices
from fedgranger.linalg.cusum import cusum_test
from fedgranger.linalg.time_weights import regime_step, time_of_step
from fedgranger.linalg.unbroken_steps import rows_at
from fedgranger.tested_facts import ChangeFacts, DriftFacts, InferenceFacts

LEVEL = 0.01
FEWEST_ROWS = 100
ROWS_PER_NUMBER = 10
"""A test of q numbers needs so many rows for each; else it is not made."""
NAMED = 5
"""So many clients are named in the sentence."""


class Change(NamedTuple):
    """One thing of one client that does not stay.

    Attributes:
        client: whose states.
        what: of them changes, in words.
        p_value: already multiplied by the number of tests.
        step: position in time around which it changes.
    """

    client: str
    what: str
    p_value: float
    step: int


class Drift(NamedTuple):
    """What changes over a record, most certain first, and how many tests were made."""

    changes: tuple[Change, ...]
    num_tests: int


def find_drift(table: StateTable) -> Drift:
    """Test all clients and pairs."""
    source, left = table.source, whiten(table)
    tests: list[Change] = []
    for m, name in enumerate(source.names):
        rows = np.flatnonzero(left.known[:, m])
        e, x = rows_at(_of_client(left.bounded, source, m), rows), _states_before(table, m, rows)
        first, second = np.triu_indices(e.shape[1])
        squares = (e.T[first] * e.T[second]).T
        parts = {"level": e, "dynamics": _products(e, x), "variability": squares}
        tests += (_test(name, what, part, rows) for what, part in parts.items())
    tests += itertools.starmap(
        lambda m, n: _influence(left, source, m, n),
        itertools.permutations(range(len(source.names)), 2),
    )
    count = int(sum(np.isfinite(test.p_value) for test in tests))
    scaled = (test._replace(p_value=min(count * test.p_value, 1.0)) for test in tests)
    found = [test for test in scaled if test.p_value < LEVEL]
    return Drift(tuple(sorted(found, key=lambda change: change.p_value)), count)


def last_change(table: StateTable) -> int:
    """First step of the last regime: the record is cut at its clearest change again and again."""
    start = 0
    while True:
        rest = StateTable(
            table.source, table.states[start:], table.observed[start:], table.starts[start:].copy()
        )
        rest.starts[:1] = True
        found = find_drift(rest).changes
        if not found or found[0].step == 0:
            return start
        start += found[0].step


def in_regime(source: StateSource, config: RunConfig) -> StateSource:
    """The states with the first step of the present regime, given by time or found."""
    if config.weighting != "regime":
        return source
    if config.regime_start == "auto":
        return source._replace(regime_start=last_change(tabulate(source)))
    times = np.arange(source.num_steps) if source.times is None else source.times
    return source._replace(regime_start=regime_step(times, config.regime_start))


def time_text(source: StateSource, step: int) -> str:
    """The time of a step as people write it; its number where no time is known."""
    return f"step {step}" if source.times is None else time_of_step(source.times, step)


def drift_facts(source: StateSource, found: Drift) -> DriftFacts:
    """Plain values for the manifest."""
    return DriftFacts(
        num_tests=found.num_tests,
        level=LEVEL,
        changes=[
            ChangeFacts(
                client=change.client,
                what=change.what,
                p_value=change.p_value,
                time=time_text(source, change.step),
            )
            for change in found.changes
        ],
    )


def drift_warnings(source: StateSource, found: Drift, config: RunConfig) -> list[str]:
    """One sentence where something changes; none where the run's options already take care."""
    if not found.changes or config.weighting != "none" or config.time_windows:
        return []
    clearest = {change.client: change for change in reversed(found.changes)}
    named = sorted(clearest.values(), key=lambda change: change.p_value)
    parts = [
        f"{change.what} of '{change.client}' around {time_text(source, change.step)}"
        for change in named[:NAMED]
    ]
    if len(named) > NAMED:
        parts.append(f"{len(named) - NAMED} more clients")
    return [
        f"the data change over the record ({', '.join(parts)}; p < {LEVEL:g}), and the edges are "
        "those of all of it together: follow them in time (time_windows = 8) or weigh time steps "
        "(weighting = 'regime' or 'ewma')"
    ]


def weight_warnings(source: StateSource, facts: InferenceFacts, config: RunConfig) -> list[str]:
    """What the weights of time steps did, and which test does not know them."""
    if config.weighting == "none":
        return []
    notes = []
    if config.weighting == "regime":
        start = source.regime_start
        notes.append(
            f"regime weights: the latent test counts the {source.num_steps - start} of "
            f"{source.num_steps} time steps since {time_text(source, start)}"
            if start
            else "regime weights: no change was found, so all time steps count alike"
        )
    steps = source.num_steps if source.times is None else int(clock_steps(source.times)[-1]) + 1
    if config.weighting == "periodic" and config.weighting_span > steps:
        notes.append(
            f"weighting = 'periodic' finds no whole cycle of {config.weighting_span} steps in a "
            f"record of {steps}, so only its last steps count; give a shorter weighting_span or "
            "more data"
        )
    test = facts.test
    if test != "debiased":
        whose = f"the {EDGE_TESTS[test].title}, whose edges these are, "
        counts = f"{whose}counts" if test == "readings" else f"{whose}and the tests beside it count"
        notes.append(
            f"weighting = '{config.weighting}' is for the latent test alone: {counts} all time "
            f"steps alike ({_with_weights(test)})"
        )
    elif facts.beside is not None:
        notes.append(
            f"weighting = '{config.weighting}' is for the latent test alone: the readings' test "
            "beside it counts all time steps alike"
        )
    return notes


def _with_weights(test: str) -> str:
    linear = ", and sees linear influences only" if test == "nonlinear" else ""
    return f"test = 'debiased' has weights{linear}"


def _test(
    client: str, what: str, series: Float[np.ndarray, "row _"], rows: Int[np.ndarray, " row"]
) -> Change:
    if len(rows) < max(FEWEST_ROWS, ROWS_PER_NUMBER * series.shape[1]):
        return Change(client, what, np.nan, 0)
    found = cusum_test(series)
    return Change(client, what, found.p_value, int(rows[min(found.place, len(rows) - 1)]))


def _influence(left: Whitened, source: StateSource, effect: int, cause: int) -> Change:
    known = left.known[1:, effect] & left.known[:-1, cause]
    rows = 1 + np.flatnonzero(known)
    e, before = (_of_client(left.bounded, source, k) for k in (effect, cause))
    what = f"the influence of '{source.names[cause]}' on the states"
    return _test(
        source.names[effect], what, _products(rows_at(e, rows), rows_at(before, rows - 1)), rows
    )


def _of_client(
    values: Float[np.ndarray, "time state"], source: StateSource, client: int
) -> Float[np.ndarray, "time client_state"]:
    return values[:, client_slices(source.dims)[client]]


def _states_before(
    table: StateTable, client: int, rows: Int[np.ndarray, " row"]
) -> Float[np.ndarray, "row client_state"]:
    states = np.asfortranarray(rows_at(_of_client(table.states, table.source, client), rows - 1))
    return bounded(states - states.mean(axis=0)) if len(rows) else states


def _products(
    left: Float[np.ndarray, "row _"], right: Float[np.ndarray, "row _"]
) -> Float[np.ndarray, "row _"]:
    """All products of two rows' numbers; those of each two follow each other in memory."""
    count = left.shape[1] * right.shape[1]
    return (left.T[:, None] * right.T).reshape(count, len(left)).T
