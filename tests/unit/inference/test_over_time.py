"""Edges over time: stretches, simultaneous levels, and an edge that appears halfway."""

import numpy as np
import pytest

from fedgranger.config import RunConfig
from fedgranger.errors import InferenceError
from fedgranger.inference.infer import infer
from fedgranger.inference.latent import fit_latent
from fedgranger.inference.over_time import (
    COLUMNS,
    edges_over_time,
    simultaneous,
    time_stretches,
)
from fedgranger.inference.shifts import tabulate
from tests.configs import formula_config
from tests.state_sources import add_errors, random_covs, source_of

DIMS, T = (2, 1, 1), 2400


@pytest.fixture(scope="module")
def changing():
    """From the middle on c0 drives c1; nothing else is linked."""
    rng = np.random.default_rng(0)
    A = np.diag([0.5, 0.6, 0.7, 0.4])
    later = A.copy()
    later[2, :2] = 0.4
    h = np.zeros((T, 4))
    for t in range(1, T):
        h[t] = (later if t >= T // 2 else A) @ h[t - 1] + rng.normal(size=4)
    covs = random_covs(rng, DIMS, 0.2)
    return source_of(add_errors(rng, h, covs), DIMS, covs, own_lags=(2, 2, 2))


def follow(source, **options):
    config = formula_config(**options)
    found = fit_latent(source, config)
    return edges_over_time(tabulate(found.source), found, config, np.random.default_rng(0))


def test_stretches_cover_the_record_and_overlap_by_half():
    found = time_stretches(900, 8)
    assert found.tolist()[0] == [0, 200]
    assert found[-1, 1] == 900
    assert (found[1:, 0] == found[:-1, 0] + 100).all()
    assert time_stretches(900, 1).tolist() == [[0, 900]]


@pytest.mark.parametrize("size", [1, 4])
def test_simultaneous_level_in_the_limits(size):
    rng = np.random.default_rng(1)
    apart = np.array([[0, 10], [10, 20], [20, 30]])
    law = simultaneous(apart, size, rng)
    error = 5 * np.sqrt(0.05 * 0.95 / 20_000) / 3
    assert law.level(0.05) == pytest.approx(1 - 0.95 ** (1 / 3), abs=error)
    same = simultaneous(np.array([[0, 10], [0, 10]]), size, rng)
    assert same.level(0.05) == pytest.approx(0.05, abs=5 * np.sqrt(0.05 * 0.95 / 20_000))
    half = simultaneous(time_stretches(900, 8), size, rng)
    assert 0.05 / 8 < half.level(0.05) < 0.05
    p = half.p_values(np.array([1e-9, 0.01, 0.5, np.nan]))
    assert p[0] == pytest.approx(8e-9)
    assert 0.01 < p[1] < 0.08
    assert p[2] > 0.9
    assert np.isnan(p[3])


def test_a_stretch_is_a_record_of_its_own(changing):
    table = follow(changing, time_windows=5, noise_correction=False)
    first, end = time_stretches(T, 5)[2]
    states = np.concatenate([chunk.states for chunk in changing.chunks()])[first:end]
    alone = infer(source_of(states, DIMS), formula_config(noise_correction=False)).edges
    own = table.loc[table["start"] == f"step {first}"]
    np.testing.assert_allclose(own["strength"], alone["strength"], rtol=1e-10)
    assert (own["ci_low"].to_numpy() <= alone["ci_low"].to_numpy() + 1e-12).all()
    assert (own["ci_high"].to_numpy() >= alone["ci_high"].to_numpy()).all()


def test_an_edge_is_found_after_it_appears_and_not_before(changing):
    table = infer(changing, formula_config(time_windows=7)).over_time
    assert tuple(table.columns) == COLUMNS
    own = table.loc[(table["cause"] == "c0") & (table["effect"] == "c1")]
    assert own["is_edge"].tolist()[:3] == [False] * 3
    assert own["is_edge"].tolist()[4:] == [True] * 3
    assert (own["ci_low"].to_numpy()[:3] == 0).all()
    truth = 0.4 * np.sqrt(2)
    assert ((own["ci_low"] < truth) & (truth < own["ci_high"])).to_numpy()[4:].all()
    others = table.drop(own.index)
    assert not others["is_edge"].any()


@pytest.mark.parametrize("correction", ["none", "bh", "by", "holm"])
def test_corrections_only_raise_p_values(changing, correction):
    table = follow(changing, time_windows=4, correction=correction)
    assert (table["q_value"] >= table["p_value"]).all()
    factor = {"none": 1, "by": 6 * (1 / np.arange(1, 7)).sum()}.get(correction, 6)
    small = table["q_value"] < 1
    np.testing.assert_allclose(table["q_value"][small], factor * table["p_value"][small])


def test_couplings_that_are_left_out_are_not_tested(changing):
    table = follow(changing, time_windows=3, couplings=[["c0", "c1"]])
    is_own = (table["cause"] == "c0") & (table["effect"] == "c1")
    assert table.loc[~is_own, "p_value"].isna().all()
    assert table.loc[~is_own, "is_edge"].isna().all()
    np.testing.assert_allclose(table.loc[is_own, "q_value"], table.loc[is_own, "p_value"])


def test_stretches_too_short_say_so(changing):
    with pytest.raises(
        InferenceError, match=r"stretches of 11 steps .* 80 are needed; use time_windows = 59"
    ):
        follow(changing, time_windows=400)
    found = infer(changing, formula_config(time_windows=400))
    assert found.over_time is None
    assert any("could not be followed over time" in text for text in found.facts["warnings"])


def test_a_record_too_short_for_two_stretches_is_not_offered_one(changing):
    """One stretch would be the whole record over again."""
    short = source_of(next(changing.chunks()).states[:100], DIMS, changing.error_covs)
    with pytest.raises(InferenceError, match="take 120 steps and the record has 100: leave time_w"):
        follow(short, time_windows=4)
    enough = source_of(next(changing.chunks()).states[:122], DIMS, changing.error_covs)
    with pytest.raises(InferenceError, match="use time_windows = 2 or fewer"):
        follow(enough, time_windows=4)
    assert len(follow(enough, time_windows=2)) == 2 * 6


@pytest.mark.parametrize(
    ("test", "words"),
    [
        (
            "readings",
            "come from the latent test by formula, and the edges of this run come from "
            "the readings' test: take them as a picture",
        ),
        (
            "nonlinear",
            "follow the linear influence alone, by the formula of the latent test, and "
            "the edges of this run come from the nonlinear test: take them as a picture",
        ),
    ],
)
def test_what_edges_over_time_are_depends_on_the_test_of_the_run(changing, test, words):
    """No check of the latent model was made where another test was asked for."""
    short = source_of(next(changing.chunks()).states[:400], DIMS, changing.error_covs)
    config = RunConfig(test=test, solver="none", lags=1, copies=20, time_windows=2)
    found = infer(short, config)
    (sentence,) = (text for text in found.facts["warnings"] if text.startswith("edges over time"))
    assert words in sentence
    assert "checks" not in sentence
