"""Odd sensors in Python: each kind is seen, named and treated, or refused with its remedy."""

import json

import numpy as np
import pandas as pd
import pytest

import fedgranger as fg
from fedgranger.client.own_normal import monitor_message
from fedgranger.data.findings import lacking_sensor
from fedgranger.data.finishing import with_findings
from fedgranger.data.panel_files import read_client
from fedgranger.data.reading_options import ReadingOptions
from fedgranger.data.sensor_preparation import finding_sentences
from fedgranger.data.treatment import NO_TREATMENT, ClientTable, Treatment, treat_columns
from fedgranger.errors import ConfigError, DataError
from tests.odd_sensors import NUM_ROWS, odd_column, odd_folder, odd_panel

pytestmark = pytest.mark.filterwarnings("ignore::fedgranger.errors.InferenceWarning")


def refused(*words, error=DataError):
    return pytest.raises(error, match=".*".join(map(lambda w: w.replace("(", r"\("), words)))


def kinds(panel):
    return [(finding.kind, finding.client, finding.sensor) for finding in panel.findings]


# ---------------------------------------------------------------- refused


def test_code_is_refused_with_client_column_rows_value_and_remedy(tmp_path):
    folder = odd_folder(tmp_path, "code")
    words = ("client 'a': column 'x' is -9999 in 5 of 400 rows", "data row 31", "--missing mask")
    with refused(*words, "--suspect keep"):
        fg.Panel.read(folder)
    with refused(*words):
        odd_panel("code").prepared()


def test_code_is_masked_and_said(tmp_path):
    panel = fg.Panel.read(odd_folder(tmp_path, "code"), missing="mask")
    np.testing.assert_array_equal(
        np.flatnonzero(~panel["a"].observed[:, 3]), [30, 31, 120, 121, 122]
    )
    assert panel["a"].treatment == Treatment(coded=("x",), codes=(-9999.0,))
    assert any("'x' is -9999 in 5 of 400 rows" in note for note in panel.notes)
    assert any(note.endswith("; masked") for note in panel.notes)
    assert odd_panel("code").prepared(missing="mask").data_hash() == panel.data_hash()


def test_code_and_clock_are_kept_when_asked_for(tmp_path):
    for kind in ("code", "clock"):
        panel = fg.Panel.read(odd_folder(tmp_path / kind, kind), suspect="keep", missing="mask")
        assert panel.data_hash() == odd_panel(kind).data_hash()
        assert [name for name, *_ in kinds(panel)] == [kind]
        assert any("used as measured" in note for note in panel.notes)


def test_clock_is_refused(tmp_path):
    words = ("client 'a': column 'x' rises in every row", "by 0.5", "--time-column x")
    with refused(*words, "--leave-out a.x"):
        fg.Panel.read(odd_folder(tmp_path, "clock"))
    with refused(*words):
        odd_panel("clock").prepared()
    panel = fg.Panel.read(tmp_path, leave_out="a.x")
    assert panel["a"].sensors == ("s1", "s2", "s3")
    assert panel.notes == ("client 'a': left out as asked for: 'x'",)


# ---------------------------------------------------------------- differenced


@pytest.mark.parametrize("kind", ["counter", "reset", "walk"])
def test_counters_and_walks_are_differenced_by_default(tmp_path, kind):
    panel = fg.Panel.read(odd_folder(tmp_path, kind))
    raw = odd_column(kind)
    change = np.diff(raw, prepend=np.nan)
    if kind == "reset":
        change[NUM_ROWS // 2] = np.nan
    np.testing.assert_array_equal(panel["a"].observed[:, 3], ~np.isnan(change))
    np.testing.assert_array_equal(panel["a"].values[:, 3], np.nan_to_num(change))
    assert panel["a"].treatment.differenced == ("x",)
    assert kinds(panel) == [("integrated" if kind == "walk" else "counter", "a", "x")]
    assert "sensor 'x'" in panel.notes[0]
    assert "--difference none switches this off" in panel.notes[0]
    assert odd_panel(kind).prepared().data_hash() == panel.data_hash()
    as_measured = fg.Panel.read(tmp_path, difference="none")
    assert as_measured.data_hash() == odd_panel(kind).data_hash()
    assert "--difference auto uses the change per row" in as_measured.notes[0]


def test_slow_sensors_are_left_alone_and_named_with_the_option(tmp_path):
    panel = fg.Panel.read(odd_folder(tmp_path, "slow"))
    assert kinds(panel) == [("slow", "a", "x")]
    assert panel.data_hash() == odd_panel("slow").data_hash()
    option = panel.notes[0].partition("--difference ")[2].split()[0]
    assert option == "auto,a.x"
    again = fg.Panel.read(tmp_path, difference=option)
    assert again["a"].treatment.differenced == ("x",)
    assert fg.Panel.read(tmp_path, difference="a.s1")["a"].treatment.differenced == ("s1",)


def test_stationary_sensors_are_left_alone():
    """Measured once: 0 of 7680 sensors, spectral radius 0.9 and 0.98, 300 to 5000 rows."""
    for radius in (0.9, 0.98):
        panel, _ = fg.simulate(6, 500, spectral_radius=radius, seed=3)
        assert panel.prepared()["client1"].treatment == NO_TREATMENT
        assert {f.kind for f in with_findings(panel).findings} <= {"slow"}


def test_change_is_not_taken_across_gaps_or_missing_samples():
    values = np.array([[1.0], [2.0], [np.nan], [4.0], [8.0], [9.0]])
    starts = np.array([True, False, False, False, True, False])
    treat_columns(["x"], values, starts, Treatment(("x", "y"), (0, 0)))
    np.testing.assert_array_equal(values[:, 0], [np.nan, 1, np.nan, np.nan, np.nan, 1])


def test_own_axis_is_differenced_before_the_alignment(tmp_path):
    """A row that only another client lacks is still there to take the change from."""
    panel = odd_panel("counter")
    panel.write(tmp_path)
    lines = (tmp_path / "b.csv").read_text().splitlines()
    (tmp_path / "b.csv").write_text("\n".join(lines[:51] + lines[52:]) + "\n")
    read = fg.Panel.read(tmp_path)
    assert not read["b"].row_observed[50]
    expected = np.diff(odd_column("counter"), prepend=0.0)
    np.testing.assert_array_equal(read["a"].values[1:, 3], expected[1:])
    assert read["a"].observed[1:, 3].all()


def test_a_differenced_ramp_is_constant(tmp_path):
    odd_folder(tmp_path, "clock")
    with refused("sensor 'x' changes by the same amount in every row", "--constant drop"):
        fg.Panel.read(tmp_path, suspect="keep", difference="a.x")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"difference": "a.y"}, ("--difference", "'a.y'", "did you mean 'a.x'", "'auto', 'none'")),
        ({"difference": "none,a.x"}, ("contradicts itself",)),
        ({"leave_out": "z"}, ("--leave-out", "'z'", "a.s1")),
        ({"leave_out": "b.s1,b.s2,b.s3"}, ("all sensors of client 'b'",)),
        ({"suspect": "kep"}, ("suspect is 'kep'", "did you mean 'keep'?")),
    ],
)
def test_wrong_options(tmp_path, options, words):
    with refused(*words, error=ConfigError):
        fg.Panel.read(odd_folder(tmp_path, "stuck"), **options)
    with refused(*words, error=ConfigError):
        odd_panel("stuck").prepared(**options)


def test_names_with_commas_and_dots_are_understood():
    rng = np.random.default_rng(0)
    arrays = {"p.1": rng.standard_normal((50, 3)), "q": rng.standard_normal((50, 2))}
    sensors = {"p.1": ["a,b", "a", "c.d"], "q": ["x y", "z"]}
    panel = fg.Panel.from_arrays(arrays, sensors=sensors)
    read = panel.prepared(difference="p.1.a,b,q.x y", leave_out=" p.1.c.d , q.z ")
    assert read["p.1"].treatment.differenced == ("a,b",)
    assert read["q"].treatment.differenced == ("x y",)
    assert (read["p.1"].sensors, read["q"].sensors) == (("a,b", "a"), ("x y",))


# ---------------------------------------------------------------- named


def test_stuck_sensor_is_named_with_its_share(tmp_path):
    panel = fg.Panel.read(odd_folder(tmp_path, "stuck"))
    assert kinds(panel) == [("stuck", "a", "x")]
    assert panel.findings[0][3:7] == (240, 101, 0.25, 0.6)
    note = panel.notes[0]
    assert "sensor 'x' stands still at 0.25 for 60 % of the rows (from data row 101)" in note
    assert "--leave-out a.x" in note


def test_the_sensor_that_costs_the_rows_is_named(tmp_path):
    panel = fg.Panel.read(odd_folder(tmp_path, "holes"), missing="mask")
    assert kinds(panel) == [("missing", "a", "x")]
    note = next(note for note in panel.notes if "has no sample" in note)
    assert "client 'a': sensor 'x' has no sample in 98 % of the client's rows" in note
    assert note.endswith("leave it out with --leave-out a.x")
    assert fg.Panel.read(tmp_path, leave_out="a.x")["a"].observed.all()


def test_a_sensor_with_a_few_holes_is_not_taken_for_dead():
    values = np.random.default_rng(0).standard_normal((400, 2))
    table = ClientTable("a", ("x", "y"), values, None)
    for share, is_dead in ((0.06, False), (0.6, True)):
        is_missing = np.zeros(values.shape, bool)
        is_missing[: int(400 * share), 0] = True
        found = lacking_sensor(table, is_missing)
        assert found is not None
        note = finding_sentences([found], NO_TREATMENT)[0]
        assert note.endswith("--leave-out a.x" if is_dead else "; used as measured")


def test_a_client_reads_its_own_sensors_by_their_names(tmp_path):
    odd_folder(tmp_path, "counter")
    data, _, notes = read_client("a", tmp_path / "a.csv", ReadingOptions())
    assert data.treatment.differenced == ("x",)
    assert "--difference none" in notes[0]
    data, *_ = read_client("a", tmp_path / "a.csv", ReadingOptions(difference="s2"))
    assert data.treatment.differenced == ("s2",)
    with refused("'s4'", "did you mean 's", error=ConfigError):
        read_client("a", tmp_path / "a.csv", ReadingOptions(leave_out="s4"))


# ---------------------------------------------------------------- fits


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("counter")
    panel = fg.Panel.read(odd_folder(folder / "data", "counter"))
    result = fg.fit(panel, fg.RunConfig(state_dim=2, solver="none"))
    result.save(folder / "run")
    return folder


def test_a_fit_keeps_findings_and_treatment(run):
    manifest = json.loads((run / "run" / "manifest.json").read_text())
    assert manifest["data"]["clients"]["a"]["treatment"]["differenced"] == {"x": 1}
    assert manifest["data"]["findings"][0]["kind"] == "counter"
    assert manifest["data"]["findings"][0]["value"] is None
    monitors = fg.Result.load(run / "run").monitors
    assert monitors["a"].treatment == Treatment(("x",), (1,))
    assert monitors["b"].treatment == NO_TREATMENT


def test_new_data_are_differenced_like_the_training_data(run):
    from fedgranger.rca import gather

    result = fg.Result.load(run / "run")
    as_measured = odd_panel("counter", seed=2)
    treated = as_measured.prepared()
    assert treated["a"].treatment == result.monitors["a"].treatment
    one, two = gather(result, as_measured), gather(result, treated)
    np.testing.assert_array_equal(one.surprise, two.surprise)
    assert np.nanmedian(one.surprise[:, 0]) < 2
    with refused("in another way", "Panel.read"):
        gather(result, as_measured.prepared(difference="a.s1"))


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_batches_of_new_data_are_differenced_across_their_ends(run, batch):
    from fedgranger.rca import OnlineAnalysis, gather

    result, panel = fg.Result.load(run / "run"), odd_panel("counter", 40, seed=2)
    analysis, parts = OnlineAnalysis(result), []

    class Alarms:
        alarm_step = None

        def feed(self, reports, starts, times, *, is_utc):
            parts.append(np.stack([report.surprise for report in reports.values()], axis=1))
            return []

    analysis._alarms = Alarms()
    for k in range(0, 40, batch):
        analysis.feed(panel.slice(k, min(k + batch, 40)))
    found = np.concatenate(parts)
    np.testing.assert_allclose(found, gather(result, panel).surprise, rtol=1e-12)


def test_a_fit_of_arrays_names_what_it_leaves_alone():
    result = fg.fit(odd_panel("stuck"), fg.RunConfig(state_dim=1, solver="none"))
    notes = result.manifest["data"]["notes"]
    assert any("sensor 'x' stands still" in note for note in notes)
    assert notes[-1] == "nothing was done about these sensors: Panel.prepared() does it"
    assert "treatment" in result.manifest["data"]["clients"]["a"]


@pytest.mark.parametrize("reason", ["the data are not stationary", "the clients are too short"])
def test_a_refused_test_names_the_option(monkeypatch, reason):
    """Whatever sensor makes the estimate explode, those that may wander are named."""
    from fedgranger.data.sensor_preparation import propose
    from fedgranger.errors import InferenceError
    from fedgranger.federation import protocol

    def refuse(*_):
        raise InferenceError(reason)

    monkeypatch.setattr(protocol, "infer", refuse)
    result = fg.fit(odd_panel("slow"), fg.RunConfig(state_dim=1, solver="none"))
    said = result.manifest["inference"]["reason"]
    assert said.endswith("--difference auto,a.x") == ("stationary" in reason)
    assert propose(with_findings(odd_panel("slow")).findings) == "--difference auto,a.x"
    assert propose(with_findings(odd_panel("stuck")).findings) == ""


def test_the_largest_numbers_are_looked_at_without_a_warning():
    huge = np.where(np.random.default_rng(0).random((200, 2)) < 0.5, 1.7e308, -1.7e308)
    huge[::3] *= 0.9
    panel = fg.Panel.from_arrays({"a": huge, "b": huge[::-1]})
    assert with_findings(panel).findings == ()


def test_codes_of_the_run_are_masked_in_new_data(tmp_path):
    """The code was learned in training; in new data it may come once only."""
    panel = fg.Panel.read(odd_folder(tmp_path, "code"), missing="mask")
    monitor = fg.fit(panel, fg.RunConfig(state_dim=1, solver="none")).monitors["a"]
    new = odd_panel("stuck", seed=2)["a"]
    new.values[50, 3] = -9999.0
    new.observed[60] = False
    told = monitor_message(monitor, new, np.arange(NUM_ROWS) == 0)
    np.testing.assert_array_equal(np.flatnonzero(~np.asarray(told.is_observed)), [60])
    assert np.abs(np.asarray(told.states)[50]).max() < 10  # of the sensors that are there


def test_a_sensor_that_was_stuck_for_two_hours_is_named_and_used(tmp_path):
    """240 of 8640 rows: `check` said that no sensor was stuck."""
    rng = np.random.default_rng(5)
    times = pd.date_range("2026-03-02", periods=8640, freq="30s")
    for name in ("a", "b"):
        data = pd.DataFrame(np.round(rng.standard_normal((8640, 2)), 2), columns=["x", "level"])
        if name == "b":
            data.loc[3600:3839, "level"] = 0.12
        data.insert(0, "time", times)
        data.to_csv(tmp_path / f"{name}.csv", index=False)
    panel = fg.Panel.read(tmp_path)
    assert kinds(panel) == [("frozen", "b", "level")]
    assert (panel.findings[0].rows, panel.findings[0].first_row) == (240, 3601)
    (note,) = panel.notes
    for part in (
        "client 'b': sensor 'level' repeats 0.12 in 240 rows, data rows 3601 to 3840",
        "(2026-03-03T06:00:00 to 2026-03-03T07:59:30)",
        "used as measured; if it was stuck, empty those cells and pass --missing mask",
    ):
        assert part in note
    assert panel["b"].observed.all()
    assert (panel["b"].values[3600:3840, 1] == 0.12).all()
    shown = str(fg.check(tmp_path))
    assert "repeats 0.12 in 240 rows" in shown
    assert "none stuck" not in shown
