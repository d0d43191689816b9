"""Clocks that are shifted: what stays, what breaks, and p-values against the copies."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy import optimize, stats

from fedgranger.config import RunConfig
from fedgranger.errors import InferenceError
from fedgranger.inference import shifts as module
from fedgranger.inference.calibrate import LEAST, Formula, calibrate
from fedgranger.inference.copy_audit import Audit, PairTests, audit_facts, run_copies
from fedgranger.inference.latent import fit_latent, latent_formula, pair_tests
from fedgranger.inference.readings import regress
from fedgranger.inference.readings_test import pair_tests_of, readings_formula
from fedgranger.inference.shifts import (
    draw_shifts,
    keep_together,
    kinds_of_copies,
    tabulate,
)
from tests.state_sources import simulate_states, source_of

QUIET = lambda *_: None  # noqa: E731


@pytest.mark.parametrize(("clients", "period"), [(2, 1), (5, 1), (9, 24), (30, 1)])
def test_clocks_are_apart_by_whole_periods(clients, period):
    T = 2400
    found = draw_shifts(clients, T, 50, seed=1, period=period)
    np.testing.assert_array_equal(found, draw_shifts(clients, T, 50, seed=1, period=period))
    assert (found % period == 0).all()
    least = min(0.1, 0.5 / clients) * T - period
    for row in found:
        around = np.sort(row)
        gaps = np.diff(np.append(around, around[0] + T))
        assert gaps.min() >= least
    assert len(np.unique(found, axis=0)) > 45


def seeming_links(clients, share, seed=0):
    driven = np.random.default_rng(seed).uniform(size=(clients, clients)) < share
    return driven & ~np.eye(clients, dtype=bool)


@pytest.mark.parametrize(("clients", "share"), [(2, 1.0), (3, 0.5), (6, 0.3), (9, 0.1), (5, 0.0)])
def test_every_pair_has_copies_without_its_link_and_with_its_effects_others(clients, share):
    driven = seeming_links(clients, share)
    kinds = kinds_of_copies(driven, most=1000)
    np.testing.assert_array_equal(
        sum(kind.pairs.astype(int) for kind in kinds), 1 - np.eye(clients, dtype=int)
    )
    shifts = draw_shifts(clients, 1000, 7, seed=3)
    for kind in kinds:
        turned = keep_together(shifts, kind)
        for m, n in zip(*np.nonzero(kind.pairs), strict=True):
            assert (turned[:, m] != turned[:, n]).all()
            for other in range(clients):
                if other not in (m, n):
                    stays = bool(driven[m, other])
                    assert ((turned[:, m] == turned[:, other]) == stays).all()


def test_without_links_all_clocks_are_apart_and_many_links_share_copies():
    (kind,) = kinds_of_copies(seeming_links(5, 0.0), most=1)
    assert not kind.together.any()
    driven = seeming_links(8, 0.3)
    fine = kinds_of_copies(driven, most=1000)
    coarse = kinds_of_copies(driven, most=len(fine) - 1)
    assert len(coarse) <= 8 + 1 < len(fine)
    for kind in coarse:  # links that seem to be there are tested with all clocks apart
        assert not (kind.pairs & driven).any() or not kind.together.any()
    (coarsest,) = kinds_of_copies(driven, most=2)
    assert not coarsest.together.any()
    assert coarsest.pairs.sum() == 8 * 7


def test_each_client_turns_by_its_own_shift():
    x = np.arange(40.0).reshape(20, 2)
    observed = np.ones((20, 2), dtype=bool)
    observed[3, 1] = False
    table = tabulate(source_of(x, (1, 1), observed=observed, starts=(0, 10), chunk=7))
    (chunk,) = table.shifted(np.array([0, 5])).chunks()
    np.testing.assert_array_equal(chunk.states[:, 0], x[:, 0])
    np.testing.assert_array_equal(
        chunk.states[5:, 1][observed[:15, 1]], x[:15, 1][observed[:15, 1]]
    )
    np.testing.assert_array_equal(np.flatnonzero(~chunk.observed[:, 1]), [8])
    np.testing.assert_array_equal(np.flatnonzero(chunk.starts), [0, 5, 10, 15])
    short = table.shifted(np.array([0, 6]), 18)
    (chunk,) = short.chunks()
    assert (len(chunk.starts), short.num_steps) == (18, 18)
    np.testing.assert_array_equal(chunk.states[:6, 1], np.where(observed[12:18, 1], x[12:18, 1], 0))


def test_what_is_too_large_lies_in_a_file(monkeypatch):
    x = np.random.default_rng(0).standard_normal((500, 3))
    plain = tabulate(source_of(x, (1, 2)))
    monkeypatch.setattr(module, "KEPT_BYTES", 100)
    mapped = tabulate(source_of(x, (1, 2), chunk=64))
    assert isinstance(mapped.states, np.memmap)
    np.testing.assert_array_equal(mapped.states, plain.states)
    turn = np.array([100, 300])
    ours, theirs = (next(t.shifted(turn).chunks()).states for t in (mapped, plain))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("k", "d2"), [(1, 8.0), (4, 17.0), (12, 1e9)])
def test_the_law_of_many_copies_is_found(k, d2):
    rng = np.random.default_rng(0)
    copies = 1.7 * stats.f.rvs(k, d2, size=(5000, 1, 1), random_state=rng)
    at = np.array([[1.7 * stats.f.isf(0.01, k, d2)]])
    law = calibrate(at, np.array([[float(k)]]), copies)
    assert law.p_value[0, 0] == pytest.approx(0.01, rel=0.1)
    assert law.law.critical(0.01)[0, 0] == pytest.approx(at[0, 0], rel=0.1)
    assert not law.is_extrapolated[0, 0]


# each takes two seconds, so the heaviest tail is fast and the others are slow
@pytest.mark.parametrize(
    ("k", "d2"),
    [
        (1, 10.0),
        pytest.param(4, 10.0, marks=pytest.mark.slow),  # 60 copies of 4000 pairs
        pytest.param(4, 1e9, marks=pytest.mark.slow),  # 60 copies of 4000 pairs
    ],
)
def test_sixty_copies_hold_the_level(k, d2):
    """4000 pairs, Monte Carlo errors .0034 and .0016; light tails are not known to be light."""
    rng = np.random.default_rng(k)
    shape = (4, 1000)
    copies = stats.f.rvs(k, d2, size=(60, *shape), random_state=rng)
    found = stats.f.rvs(k, d2, size=shape, random_state=rng)
    p = calibrate(found, np.full(shape, float(k)), copies).p_value
    assert 0.033 < np.mean(p < 0.05) < 0.06
    assert 0.001 < np.mean(p < 0.01) < 0.015


def test_no_p_value_is_smaller_than_the_copies_support():
    copies = stats.f.rvs(4, 30, size=(60, 1, 2), random_state=0)
    law = calibrate(np.array([[1e6, 0.5]]), np.full((1, 2), 4.0), copies)
    assert law.p_value[0, 0] == pytest.approx(61.0**-3)
    np.testing.assert_array_equal(law.is_extrapolated, [[True, False]])


def test_a_pair_without_copies_has_no_p_value():
    copies = np.full((60, 1, 2), np.nan)
    copies[:, 0, 1] = stats.f.rvs(2, 30, size=60, random_state=0)
    law = calibrate(np.array([[1.0, np.nan]]), np.full((1, 2), 2.0), copies)
    assert np.isnan(law.p_value).all()


def fake(shifts):
    if shifts[0] == 3:
        raise InferenceError("no")
    value = np.full((2, 2), float(shifts.sum()))
    return PairTests(value, np.ones((2, 2)), value / 100)


class Other(NamedTuple):
    first: np.ndarray
    second: np.ndarray
    third: np.ndarray


def _as(made, row):
    return made(*fake(row))


def test_copies_resume_and_refusals_are_counted(tmp_path):
    shifts = np.arange(12).reshape(6, 2) % 7
    shifts[2, 0] = 3
    record, calls = tmp_path / "copies.jsonl", []

    def counted(row):
        calls.append(tuple(row))
        if len(calls) == 4:
            raise KeyboardInterrupt
        return fake(row)

    with pytest.raises(KeyboardInterrupt):
        run_copies(counted, PairTests, shifts, QUIET, record, "key")
    with record.open("a") as file:
        file.write('{"key": "key", "co')  # torn
    done = len(record.read_text().splitlines()) - 1
    told = []

    def listen(*words):
        told.append(words)

    again = run_copies(fake, PairTests, shifts, listen, record, "key")
    assert told[0] == ("shifted clocks", done, 6)
    plain = run_copies(fake, PairTests, shifts, QUIET)
    for one, other in zip(again, plain, strict=True):
        if other is None:
            assert one is None
        else:
            np.testing.assert_array_equal(one.p_value, other.p_value)
    told.clear()
    run_copies(fake, PairTests, shifts, listen, record, "key")
    assert told == [("shifted clocks", 6, 6)]  # the torn line took no other with it
    for made, key in ((PairTests, "other key"), (Other, "key")):
        told.clear()
        run_copies(lambda row, made=made: _as(made, row), made, shifts, listen, record, key)
        assert told[0] == ("shifted clocks", 0, 6)


def test_the_audit_counts_by_copy_and_names_the_worst_client():
    rng = np.random.default_rng(0)
    p = rng.uniform(size=(200, 3, 3))
    p[:, 1] /= 10  # the second client as effect is rejected ten times as often
    p[:, np.arange(3), np.arange(3)] = np.nan
    found = PairTests(p[0], p[0], p[0])
    audit = Audit("readings", ("a", "b", "c"), found, p, p, 0)
    facts = audit_facts(audit)
    assert next(iter(facts["by_effect"])) == "b"
    rate, error = audit.rate()
    assert rate == pytest.approx(np.nanmean(p < 0.05) * 9 / 6, rel=1e-6)
    assert 0 < error < 0.03
    assert not audit.is_inside
    assert not audit._replace(refused=30).is_inside


def test_quantiles_of_even_p_values_lie_in_their_band_and_off_ones_do_not():
    """200 audits of even p-values: about 95 % of the points inside."""
    rng = np.random.default_rng(4)
    found = PairTests(*(np.ones((3, 3)) for _ in range(3)))
    inside = []
    for _ in range(200):
        p = rng.uniform(size=(60, 3, 3))
        p[:, np.arange(3), np.arange(3)] = np.nan
        quantiles = audit_facts(Audit("readings", ("a", "b", "c"), found, p, p, 0))["quantiles"]
        low, high, seen = (np.array(quantiles[key]) for key in ("low", "high", "observed"))
        inside.append((low <= seen) & (seen <= high))
    assert 0.93 < np.mean(inside) < 0.98
    assert quantiles["level"][0] >= 1 / 361
    k = quantiles["level"].index(0.1)
    assert quantiles["observed"][k] == pytest.approx(
        np.sort(p[np.isfinite(p)])[round(0.1 * 361) - 1], abs=0.01
    )
    off = audit_facts(Audit("readings", ("a", "b", "c"), found, p, p**2, 0))["quantiles"]
    assert off["observed"][k] < off["low"][k]


def test_beyond_the_copies_no_p_value_is_bolder_than_the_formula():
    """Copies with statistics a third of the formula's: their law holds as far as they reach."""
    rng = np.random.default_rng(3)
    copies = stats.f.rvs(4, 1000, size=(60, 1, 200), random_state=rng) / 3
    statistic = np.linspace(0.1, 6, 200)[None]
    df = np.full((1, 200), 4.0)
    formula = Formula(np.ones((1, 200)), np.full((1, 200), 1000.0))
    bold, found = (calibrate(statistic, df, copies, law) for law in (None, formula))
    by_formula = stats.f.sf(statistic, 4, 1000)
    reached = bold.p_value >= 1 / 61
    np.testing.assert_array_equal(found.p_value[reached], bold.p_value[reached])
    assert (bold.p_value[~reached] < by_formula[~reached]).any()
    np.testing.assert_allclose(
        found.p_value[~reached],
        np.maximum(bold.p_value, np.minimum(by_formula, 1 / 61))[~reached],
    )
    for level in (0.05, 0.002):  # intervals and tests agree
        at = found.law.critical(level)
        np.testing.assert_allclose(found.law.tail(at), level, rtol=1e-6)


@pytest.mark.parametrize("has_formula", [False, True])
def test_critical_value_vs_root_of_each_pairs_own_law(has_formula):
    """All pairs at once, with df of their own, against one pair and scipy's `brentq` at a time."""
    rng = np.random.default_rng(5)
    df = rng.integers(1, 7, (3, 4)).astype(float)
    copies = stats.f.rvs(df, [4, 8, 50, 1000], size=(60, 3, 4), random_state=rng)
    formula = Formula(rng.uniform(0.5, 2, (3, 4)), np.full((3, 4), 90.0)) if has_formula else None
    law = calibrate(copies[0], df, copies, formula).law
    for level in (0.05, 0.003):
        found = law.critical(level)
        for m, n in np.ndindex(3, 4):

            def excess(u, place=(m, n), level=level):
                return law.tail(np.full((3, 4), np.exp(u)))[place] - level

            expected = optimize.brentq(excess, -12, 24)
            assert np.log(found[m, n]) == pytest.approx(expected, abs=1e-9)
    assert (law.critical(1e-30) >= found).all()
    assert (law.critical(0.9999) == LEAST)[df == 1].all(), "hardly anything is as likely"


def test_the_formulas_that_bound_the_tail_are_those_of_the_tests():
    """P-values by `latent_formula` and `readings_formula` against the tests' own."""
    rng = np.random.default_rng(4)
    A = np.diag([0.8, 0.6, 0.7, 0.5])
    states = simulate_states(rng, A, 120)  # short: d2 matters
    source = source_of(states, (2, 1, 1), own_lags=(2, 1, 1))
    fit = fit_latent(source, RunConfig(lags=1))
    readings = regress(source, np.ones((3, 3), dtype=int))
    for tests, law in (
        (pair_tests(fit), latent_formula(fit.covariance)),
        (pair_tests_of(readings), readings_formula(readings)),
    ):
        p = stats.f.sf(tests.statistic / law.scale, tests.df, law.df_denominator)
        np.testing.assert_allclose(p, tests.p_value, rtol=1e-10)
        assert np.isfinite(p).sum() == 6
