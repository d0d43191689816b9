"""Rankings on a chain with a known root: who started it, how sure, and why."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fedgranger as fg
from fedgranger.client.own_normal import monitor_message
from fedgranger.errors import ConfigError, DataError, RunError
from fedgranger.manifest_types import Manifest
from fedgranger.rca import SCORERS, OnlineAnalysis, gather, rank
from fedgranger.rca.alarms import strength_matrix
from fedgranger.rca.evidence import Evidence
from fedgranger.rca.new_data import surprising_sensors
from fedgranger.rca.ranking import onsets, with_sensors
from tests.anomalies import NAMES, made_panel


@pytest.fixture(scope="module")
def run(normal_run):
    return normal_run


def window_of(run, shocked, seed=1, size=5.0, after=100):
    evidence = gather(run, made_panel(400, seed=seed, shocked=shocked, at=200, size=size))
    return evidence.steps(slice(200, 200 + after))


def evidence_of(surprise, own=None, cross=None, deviation=None, threshold=3.0):
    shape = np.shape(surprise)
    fill = lambda value: np.ones(shape) if value is None else np.asarray(value, float)  # noqa: E731
    return Evidence(
        tuple("abcdef"[: shape[1]]),
        np.asarray(surprise, float),
        fill(own),
        fill(cross),
        fill(deviation),
        np.ones((*shape, shape[1])),
        np.full(shape[1], threshold),
    )


@pytest.mark.parametrize("root", NAMES)
def test_the_shocked_client_comes_first(run, root):
    strengths = strength_matrix(run, NAMES)
    for seed in range(1, 6):
        found = rank(window_of(run, root, seed), strengths, edges=run.edges())
        assert found.first == root
        assert found.table["probability"].iloc[0] > 0.5
        assert found.table["probability"].sum() == pytest.approx(1.0)


def test_followers_are_explained_and_named(run):
    found = rank(window_of(run, "a"), strength_matrix(run, NAMES), edges=run.edges())
    table = found.table.set_index("client")
    assert table.loc["b", "explained"] > 0.4
    assert table.loc["b", "explained_by"] == "a"
    assert table.loc["c", "explained_by"] == "b"
    assert table.loc["a", "explained"] < 0.2
    assert table.loc["a", "onset"] <= table.loc["b", "onset"]
    text = " ".join(found.evidence)
    assert "a's own one-step errors" in text
    assert "explain almost none of it" in text


def test_unexplained_is_surprise_where_others_explain_nothing():
    strengths = np.zeros((2, 2))
    same = evidence_of([[4.0, 2.0]] * 5)
    assert SCORERS["unexplained"](same, strengths) == pytest.approx(np.log([4.0, 2.0]))
    half = evidence_of([[4.0, 2.0]] * 5, own=[[2.0, 1.0]] * 5, cross=[[1.0, 3.0]] * 5)
    assert SCORERS["unexplained"](half, strengths) == pytest.approx(np.log([2.0, 2.0]))
    least = evidence_of([[4.0, 2.0]] * 5, own=[[100.0, 1.0]] * 5)
    assert SCORERS["unexplained"](least, strengths) == pytest.approx(np.log([0.8, 2.0]))


def test_only_the_first_200_steps_count():
    late = np.concatenate([np.full((200, 2), (2.0, 1.0)), np.full((500, 2), (1.0, 99.0))])
    assert SCORERS["surprise"](evidence_of(late), np.zeros((2, 2))) == pytest.approx(
        [np.log(2.0), 0.0]
    )


@pytest.mark.parametrize("scorer", list(SCORERS))
def test_a_ranking_of_a_long_window_says_which_steps_were_used(scorer):
    """Those of its scores; the scorers that use all steps say nothing."""
    rng = np.random.default_rng(1)
    levels = np.where(np.arange(700)[:, None] < 200, (5.0, 1.5), (0.2, 9.0))
    levels = levels + 0.5 * rng.random((700, 2))
    strengths = np.ones((2, 2))
    found = rank(evidence_of(levels, deviation=levels), strengths, scorer=scorer)
    said = [line for line in found.evidence if "first 200 of 700 steps" in line]
    early = rank(evidence_of(levels[:200], deviation=levels[:200]), strengths, scorer=scorer)
    scores = [one.table.set_index("client")["score"].sort_index() for one in (early, found)]
    assert bool(said) == scores[0].equals(scores[1])
    assert not any("steps, up to" in line for line in early.evidence)
    if said:
        assert "up to step 199: later ones show where an anomaly has spread" in said[0]


def test_papers_score_by_hand():
    strengths = np.array([[9.0, 2.0, 3.0], [4.0, 9.0, 5.0], [6.0, 7.0, 9.0]])  # [effect, cause]
    flagged = evidence_of(np.ones((2, 3)), deviation=[[2.0, 2.0, 0.5], [2.0, 2.0, 2.0]])
    both = np.array([4.0, 2.0, 0.0])  # first step: a -> b 4, b -> a 2
    three = np.array([4.0 + 6.0, 2.0 + 7.0, 3.0 + 5.0])
    assert SCORERS["paper"](flagged, strengths) == pytest.approx((both + three) / 2)
    alone = evidence_of(np.ones((2, 3)), deviation=[[2.0, 0.5, 0.5]] * 2)
    found = rank(alone, strengths, scorer="paper")
    assert not found.is_defined
    assert "no ranking" in found.evidence[0]
    assert found.table["probability"].to_numpy() == pytest.approx([1 / 3] * 3)


def test_missing_steps_and_silent_clients_are_left_out():
    gaps = [[np.nan, 5.0], [3.0, np.nan], [3.0, 5.0]]
    assert SCORERS["surprise"](evidence_of(gaps), np.zeros((2, 2))) == pytest.approx(
        np.log([3.0, 5.0])
    )
    silent = evidence_of([[np.nan, 5.0]] * 4)
    found = SCORERS["unexplained"](silent, np.zeros((2, 2)))
    assert found[0] == -np.inf
    assert found[1] == pytest.approx(np.log(5.0))
    with pytest.raises(DataError, match="no step was observed"):
        rank(evidence_of([[np.nan, np.nan]] * 4), np.zeros((2, 2)))


def test_onset_is_the_first_step_out_of_range():
    surprise = [[1.0, 9.0], [21.0, 9.0], [1.0, np.nan], [1.0, 9.0]]  # smoothed: a fifth each
    np.testing.assert_array_equal(onsets(evidence_of(surprise, threshold=3.5)), [1.0, 1.0])
    np.testing.assert_array_equal(onsets(evidence_of(surprise, threshold=4.5)), [1.0, 3.0])
    assert np.isnan(onsets(evidence_of(np.ones((4, 2))))).all()


def test_a_weak_shock_is_less_certain(run):
    strengths = strength_matrix(run, NAMES)

    def certainty(size):
        tables = [
            rank(window_of(run, "b", seed, size, 40), strengths).table.set_index("client")
            for seed in range(1, 6)
        ]
        return np.mean([table.loc["b", "probability"] for table in tables])

    assert certainty(0.5) < certainty(4.0)
    assert certainty(4.0) > 0.9


def test_same_seed_same_ranking(run):
    window, strengths = window_of(run, "a"), strength_matrix(run, NAMES)
    pd.testing.assert_frame_equal(rank(window, strengths).table, rank(window, strengths).table)


def test_what_is_normal_survives_saving(run, tmp_path):
    run.save(tmp_path / "run")
    again = fg.Result.load(tmp_path / "run")
    panel = made_panel(100, seed=4, shocked="b", at=50)
    one, two = gather(run, panel), gather(again, panel)
    for name in ("surprise", "own", "cross", "deviation", "without", "threshold"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


@pytest.mark.parametrize("names", [["a", "b"], ["a"]])
def test_an_absent_client_is_named_before_options_of_single_clients_are_read(run, tmp_path, names):
    # Read without c, "b=t,c=t" would be a column of b's.
    reading = {"of": "files", "time_column": "b=t,c=t"}
    run = replace(run, manifest=Manifest.of({**run.manifest, "data": {"reading": reading}}))
    frames = {name: pd.DataFrame({"t": range(20), "x": range(20)}) for name in names}
    for name, frame in frames.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    lacking = f"lack client '{'b' if names == ['a'] else 'c'}' .they have {', '.join(names)}."
    for data in (tmp_path, str(tmp_path), frames):
        with pytest.raises(DataError, match=lacking):
            gather(run, data)


def test_refusals(run):
    with pytest.raises(ConfigError, match="scorer is 'x'; choose"):
        rank(evidence_of(np.ones((3, 2))), np.zeros((2, 2)), scorer="x")
    with pytest.raises(DataError, match="lack client 'c'"):
        gather(run, made_panel(20).select(["a", "b"]))
    manifest = Manifest.of({"normal": {"reason": "too short"}})
    bare = replace(run, monitors={}, reference=None, manifest=manifest)
    with pytest.raises(RunError, match=r"no model of normal operation \(too short\)"):
        gather(bare, made_panel(20))


@pytest.mark.parametrize("batch", [7, 150, 600])
def test_online_does_not_depend_on_how_the_data_are_cut(run, batch):
    panel = made_panel(600, seed=8, shocked="b", at=300, length=60)
    analysis, last = OnlineAnalysis(run, calm_steps=40), {}
    for first in range(0, 600, batch):
        for alarm in analysis.feed(panel.slice(first, min(first + batch, 600))):
            last[alarm.step] = alarm.ranking
    assert analysis.alarm_step is None
    assert len(last) == 1
    step, found = last.popitem()
    assert 300 <= step <= 310
    assert found.first == "b"
    whole = OnlineAnalysis(run, calm_steps=40).feed(panel)
    pd.testing.assert_frame_equal(found.table, whole[0].ranking.table)


@pytest.mark.parametrize("batch", [2, 50, 600])
def test_online_takes_frames_as_fit_does(run, batch):
    panel = made_panel(600, seed=8, shocked="b", at=300, length=60)
    frames = {c.name: pd.DataFrame(c.values, columns=list(c.sensors)) for c in panel}
    first, last = 280, 380
    analysis, found = OnlineAnalysis(run, calm_steps=40), {}
    for start in range(first, last, batch):
        rows = slice(start, min(start + batch, last))
        part = {name: frame.iloc[rows] for name, frame in frames.items()}
        for alarm in analysis.feed(part):
            found[alarm.step] = alarm.ranking
    expected = OnlineAnalysis(run, calm_steps=40).feed(panel.slice(first, last))
    assert list(found) == [alarm.step for alarm in expected]
    for ranking, alarm in zip(found.values(), expected, strict=True):
        pd.testing.assert_frame_equal(ranking.table, alarm.ranking.table)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "None was given; give a folder"),
        ([[1.0, 2.0]], "a list was given; give a folder"),
        ({"a": 3, "b": 4}, "an int was given where a data frame is needed"),
        (pd.DataFrame({"a1": [1.0, 2.0]}), "say which columns are whose"),
        ({n: pd.DataFrame({"s1": [1.0], "s2": [2.0]}) for n in NAMES}, "share 1 time step"),
    ],
)
def test_online_refuses_what_is_no_data_in_one_sentence(run, data, words):
    with pytest.raises(DataError, match=words):
        OnlineAnalysis(run).feed(data)


def test_online_equals_the_window_from_the_alarm(run):
    panel = made_panel(500, seed=9, shocked="a", at=300)
    analysis, alarms = OnlineAnalysis(run), []
    for first in range(0, 500, 50):
        alarms += analysis.feed(panel.slice(first, first + 50))
    alarm = alarms[-1]
    strengths = strength_matrix(run, NAMES)
    window = gather(run, panel).steps(slice(alarm.step, alarm.step + 200))
    expected = rank(window, strengths, edges=run.edges(), name=alarm.ranking.name)
    sensors = surprising_sensors(run, panel, slice(alarm.step, alarm.step + 200))
    expected = with_sensors(expected, sensors)
    pd.testing.assert_frame_equal(alarm.ranking.table, expected.table)


def test_batches_must_follow_each_other(run):
    analysis = OnlineAnalysis(run)
    panel = made_panel(40)
    analysis.feed(panel.slice(20, 40))
    with pytest.raises(DataError, match="feed batches in order"):
        analysis.feed(panel.slice(0, 20))


def test_a_client_that_was_not_observed_is_last_and_said_so():
    calm = evidence_of([[np.nan, 0.9, 0.8]] * 10)
    found = rank(calm, np.zeros((3, 3)))
    assert found.table["client"].tolist() == ["b", "c", "a"]
    assert found.table["probability"].iloc[-1] == 0.0
    assert "Not observed in this window: a." in found.evidence
    assert "nan" not in " ".join(found.evidence)
    text = json.dumps(found.to_mapping(), allow_nan=False)
    assert json.loads(text)["ranking"][-1]["score"] is None


def test_a_calm_window_says_so_first_and_an_alarming_one_does_not(run):
    strengths = strength_matrix(run, NAMES)
    calm = rank(gather(run, made_panel(300, seed=2)).steps(slice(100, 200)), strengths)
    assert calm.is_calm
    assert calm.evidence[0].startswith("No client left its normal range in this window")
    named = with_sensors(calm, {calm.first: [("s1", 1.1)]})
    assert named.evidence[0] == calm.evidence[0]
    assert named.evidence[2].startswith("Its most surprising sensors")
    shocked = rank(window_of(run, "a"), strengths)
    assert not shocked.is_calm
    assert shocked.evidence[0].startswith("a's own one-step errors")


def test_steps_at_which_a_cause_is_missing_explain_nothing(run):
    """Means of both energies are over the same steps, or a gap at b's cause would explain b."""
    panel = made_panel(400, seed=3)
    values = panel["b"].values.copy()
    values[203:207] += 40.0
    gone = panel["a"].observed.copy()
    gone[200:208] = False
    clients = (
        replace(panel["a"], observed=gone),
        replace(panel["b"], values=values),
        panel["c"],
    )
    window = gather(run, replace(panel, clients=clients)).steps(slice(200, 230))
    found = rank(window, strength_matrix(run, NAMES))
    table = found.table.set_index("client")
    assert found.first == "b"
    whole = replace(panel, clients=(panel["a"], replace(panel["b"], values=values), panel["c"]))
    seen = rank(gather(run, whole).steps(slice(200, 230)), strength_matrix(run, NAMES)).table
    expected = seen.set_index("client").loc["b", "explained"]
    assert table.loc["b", "explained"] < expected + 0.3


def test_an_alarm_begins_with_an_onset(run):
    rng = np.random.default_rng(5)
    panel = made_panel(400, seed=6)
    values = panel["c"].values.copy()
    growing = np.linspace(0, 6, 120)[:, None] * rng.standard_normal((120, 4))
    values[200:320] += growing
    clients = (panel["a"], panel["b"], replace(panel["c"], values=values))
    alarms = OnlineAnalysis(run).feed(replace(panel, clients=clients))
    assert alarms
    for alarm in alarms:
        assert np.nanmin(alarm.ranking.table["onset"]) == 0


def test_online_sees_gaps_however_the_data_are_cut(run):
    panel = made_panel(120, seed=7)
    values = panel["a"].values.copy()
    values[60:] += 30.0
    time = np.where(np.arange(120) < 60, np.arange(120), np.arange(120) + 1000)
    jumped = replace(
        panel, clients=(replace(panel["a"], values=values), *panel.clients[1:]), time=time
    )
    steps = set()
    for batch in (1, 2, 7, 120):
        analysis, first = OnlineAnalysis(run), []
        for k in range(0, 120, batch):
            first += [alarm.step for alarm in analysis.feed(jumped.slice(k, min(k + batch, 120)))]
            if first:
                break
        steps.add(first[0] if first else None)
    assert len(steps) == 1
    assert steps.pop() != 60


@pytest.mark.parametrize("factor", [0.5, 2])
@pytest.mark.parametrize("batch", [1, 7, 120])
def test_data_at_another_interval_are_refused(run, factor, batch):
    """Every step would count as a gap, or the dynamics would be those of another step."""
    panel = made_panel(120, seed=7)
    other = replace(panel, time=factor * np.arange(120.0))
    words = f"come every {factor:g}, those that the run learned from came every 1; resample"
    with pytest.raises(DataError, match=words):
        gather(run, other)
    analysis = OnlineAnalysis(run)
    parts = [other.slice(k, min(k + batch, 120)) for k in range(0, 120, batch)]
    with pytest.raises(DataError, match=words):
        list(map(analysis.feed, parts))


def test_windows_and_alarms_know_one_meaning_of_gap(run):
    """Steps of 1.4 intervals follow each other, of 1.6 they do not, whatever the median is."""
    panel = made_panel(121, seed=9)
    steps = np.ones(120)
    steps[30], steps[60] = 1.4, 1.6
    found = gather(run, replace(panel, time=np.r_[0, np.cumsum(steps)]))
    assert np.flatnonzero(np.isnan(found.surprise).all(axis=1)).tolist() == [0, 61]


def test_batches_may_be_empty_and_have_the_clients_of_the_run(run):
    panel = made_panel(60, seed=8)
    more = fg.Panel((*panel.clients, replace(panel["a"], name="extra")), panel.time)
    analysis = OnlineAnalysis(run)
    assert analysis.feed(panel.slice(5, 5)) == []
    with pytest.raises(DataError, match="have client 'extra', which the run does not know"):
        analysis.feed(more.slice(0, 20))
    analysis.feed(panel.slice(20, 40))


def test_an_absurd_value_stays_finite(run):
    panel = made_panel(60, seed=9)
    values = panel["b"].values.copy()
    values[30] = 1e200
    clients = (panel["a"], replace(panel["b"], values=values), panel["c"])
    found = rank(gather(run, replace(panel, clients=clients)), strength_matrix(run, NAMES))
    assert found.first == "b"
    json.dumps(found.to_mapping(), allow_nan=False)
    message = monitor_message(run.monitors["b"], panel["b"], panel.segment_starts)
    assert message.surprise.dtype == np.float64


def test_a_new_run_in_the_folder_forgets_the_old_ones_normal(run, tmp_path):
    run.save(tmp_path)
    (tmp_path / "rca.json").write_text("{}")
    replace(run, monitors={}, reference=None).save(tmp_path, overwrite=True)
    assert fg.Result.load(tmp_path).reference is None
    assert not (tmp_path / "rca.json").exists()
    run.save(tmp_path, overwrite=True)
    (tmp_path / "normal.npz").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(RunError, match=r"normal\.npz: is not what the run wrote"):
        fg.Result.load(tmp_path)
