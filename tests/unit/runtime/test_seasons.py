"""A fit takes out what repeats, says so, and does the same to new data; parties do it alike."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.client.season import apply_season, period_steps, take_out
from fedgranger.data.panel import Panel
from fedgranger.data.time_axis import LocalSeries, TimeGrid, grid_time, range_of
from fedgranger.errors import DataError
from fedgranger.federation.agreed_options import ClientOptions, FederationOptions
from fedgranger.federation.codec import MessageError, Packet
from fedgranger.federation.preparation import prepare_party
from fedgranger.federation.questions import question_of
from fedgranger.federation.validation import check_answer
from fedgranger.rca import OnlineAnalysis, gather
from tests.configs import formula_config

CONFIG = formula_config(state_dim=2, solver="none")
LENGTH = 1600


def seasonal(panel, size=3.0, period=24):
    """The same panel with a common cycle in every sensor."""
    wave = size * np.sin(2 * np.pi * np.arange(panel.num_steps) / period)[:, None]
    wave = wave + 0.5 * size * np.cos(4 * np.pi * np.arange(panel.num_steps) / period)[:, None]
    return replace(panel, clients=tuple(replace(c, values=c.values + wave) for c in panel))


@pytest.fixture(scope="module")
def plain():
    panel, _ = fg.simulate(3, LENGTH, seed=4)
    return panel


@pytest.fixture(scope="module")
def result(plain):
    return fg.fit(seasonal(plain), CONFIG)


def test_a_fit_with_a_season_equals_one_of_data_without(plain, result):
    """Period 24 removed from both: the added cycle changes no number but rounding."""
    without = fg.fit(plain, replace(CONFIG, period=24))
    np.testing.assert_allclose(
        result.inference.transition, without.inference.transition, rtol=1e-6, atol=1e-8
    )
    np.testing.assert_allclose(result.inference.p_value, without.inference.p_value, atol=1e-7)


def test_the_run_says_what_it_removed(plain, result):
    for name, facts in result.manifest["data"]["clients"].items():
        season = facts["season"]
        assert season["periods"] == [24]
        assert season["kind"] == "harmonics"
        assert 0.2 < season["share"] < 1
        assert season["fact"].startswith(f"of the scatter among {name}'s sensors ")
        assert season["fact"].endswith(" % repeats every 24 steps and was removed")
        assert any("repeats every 24 steps" in note for note in facts["notes"])
    quiet = fg.fit(plain, CONFIG)
    for facts in quiet.manifest["data"]["clients"].values():
        assert facts["season"] == {"periods": []}
    assert result.manifest["bytes"]["client1"]["edge_tests"] == (
        quiet.manifest["bytes"]["client1"]["edge_tests"] + 8
    )


def test_seasons_are_saved_and_a_later_run_in_the_folder_forgets_them(plain, result, tmp_path):
    result.save(tmp_path / "run")
    loaded = fg.Result.load(tmp_path / "run")
    new = seasonal(plain).slice(100, 400)
    for name, season in result.seasons.items():
        found = apply_season(loaded.seasons[name], new[name], new.time)
        np.testing.assert_array_equal(
            found.values, apply_season(season, new[name], new.time).values
        )
    replace(result, seasons={}).save(tmp_path / "run", overwrite=True)
    assert fg.Result.load(tmp_path / "run").seasons == {}


def test_new_data_lose_the_same_season(plain, result):
    """Evidence of seasonal data equals that of plain data under a fit of plain data."""
    calm = fg.fit(plain, replace(CONFIG, period=24))
    new = plain.slice(700, 1000)
    wanted = gather(calm, new)
    cycle = seasonal(plain).slice(700, 1000)
    found = gather(result, cycle)
    np.testing.assert_allclose(found.surprise, wanted.surprise, rtol=1e-5, equal_nan=True)
    np.testing.assert_allclose(found.deviation, wanted.deviation, rtol=1e-5, equal_nan=True)
    analysis, steps = OnlineAnalysis(result), 0
    for first in range(0, 300, 50):
        alarms = analysis.feed(cycle.slice(first, first + 50))
        steps += len(alarms)
    assert steps == 0
    shifted = replace(cycle, time=cycle.time + 12)  # another phase: the cycle is doubled
    assert np.nanmean(gather(result, shifted).deviation) > 1.2 * np.nanmean(wanted.deviation)


def test_a_duration_without_time_stamps_is_refused(plain):
    with pytest.raises(DataError, match="'1 d' is a duration, but the rows have no time stamps"):
        fg.fit(plain, replace(CONFIG, period="1 d"))


@pytest.mark.parametrize("kind", ["rows", "stamps", "stamps with a gap"])
def test_a_party_does_what_one_process_does(plain, kind):
    """States of a party with its own grid equal those of the panel in one process."""
    panel = seasonal(plain)
    if kind != "rows":
        stamps = np.datetime64("2023-10-20T05:00", "ns") + np.arange(LENGTH) * np.timedelta64(
            1, "h"
        )
        panel = replace(panel, time=stamps)
    if kind == "stamps with a gap":
        kept = np.r_[0:500, 537:LENGTH]
        clients = tuple(replace(c, values=c.values[kept], observed=c.observed[kept]) for c in panel)
        panel = Panel(clients, panel.time[kept])
    together = take_out(panel["client2"], panel.time, CONFIG)
    series = LocalSeries(panel["client2"], panel.time)
    mine = range_of(series)
    grid = TimeGrid(mine.time_kind, mine.first, mine.interval, mine.stretches)
    options = FederationOptions(CONFIG).for_client("client2")
    prepared = prepare_party(series, grid, options, np.zeros)
    assert period_steps(prepared.season).tolist() == [24]
    assert prepared.notes == together[2]
    seen = prepared.data.row_observed
    np.testing.assert_allclose(prepared.data.values[seen], together[0].values, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(grid_time(grid)[seen], panel.time)


def test_the_options_travel_and_make_another_question():
    grid = TimeGrid("numbers", Fraction(0), Fraction(1), ((0, 500),))

    def question(**changes):
        told = FederationOptions(replace(CONFIG, **changes)).for_client("a")
        again = ClientOptions.from_text(told.to_text())
        assert again == told
        return question_of(again, grid, 4)

    names = [
        question(),
        question(period="none"),
        question(period=24),
        question(period=(24, 168)),
        question(period=24, season="profile"),
    ]
    assert len(set(names)) == len(names)
    assert question(period=24) == question(period="24") == question(period=[24])


@pytest.mark.parametrize("periods", [[0], [1], [-24], [24, 24], [2, 3, 4, 5, 6], [2**41]], ids=str)
def test_the_server_refuses_periods_that_are_none(periods):
    def answer(steps):
        arrays = {"error_cov": np.eye(1), "added_cov": np.zeros((1, 1))}
        arrays["periods"] = np.array(steps, dtype=np.int64)
        check_answer(
            "begin",
            {},
            None,
            Packet(
                "hello",
                "r",
                "a",
                {"own_lags": 1, "noise_share": 1.0, "clipped_share": 0.0},
                arrays,
            ),
        )

    answer([24, 168])
    answer([])
    with pytest.raises(MessageError, match="periods"):
        answer(periods)


def test_grid_time_of_odd_intervals():
    third = TimeGrid("stamps", Fraction(10), Fraction(10**9, 3), ((0, 4),))
    found = grid_time(third).astype(np.int64)
    assert found.tolist() == [10, 333333343, 666666677, 1000000010]
