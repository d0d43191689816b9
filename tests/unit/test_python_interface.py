"""`fg.fit` on what people have: frames, folders, options as keywords; and results that print."""

import re

import numpy as np
import pandas as pd
import pytest

import fedgranger as fg
from fedgranger.errors import ConfigError, DataError

QUICK = {"test": "debiased", "solver": "none", "lags": 1, "state_dim": 2}
pytestmark = pytest.mark.filterwarnings("ignore::fedgranger.errors.InferenceWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    panel, _ = fg.simulate(2, 400, edges=[("client1", "client2")], seed=1, sensor_dims=5)
    clock = pd.date_range("2026-03-01", periods=400, freq="5min")
    where = tmp_path_factory.mktemp("plant")
    for client in panel:
        names = [f"{sensor} [bar]" for sensor in client.sensors]
        frame = pd.DataFrame(client.values, columns=names, index=clock)
        frame.to_csv(where / f"{client.name}.csv", index_label="time")
    return where


@pytest.fixture(scope="module")
def frames(folder):
    return {
        path.stem: pd.read_csv(path, parse_dates=["time"], index_col="time")
        for path in folder.iterdir()
    }


@pytest.fixture(scope="module")
def result(folder):
    return fg.fit(folder, **QUICK)


def same(one, other):
    assert one.manifest["data"]["hash"] == other.manifest["data"]["hash"]
    pd.testing.assert_frame_equal(one.edges(), other.edges(), check_exact=True)


def test_frames_give_what_files_give_to_the_last_bit(frames, result):
    same(fg.fit(frames, **QUICK), result)
    same(fg.fit({name: frame.reset_index() for name, frame in frames.items()}, **QUICK), result)


def test_options_are_keywords_and_numpy_numbers_are_numbers(frames, folder, result):
    numbers = QUICK | {"lags": np.int64(1), "state_dim": np.int32(2)}
    same(fg.fit(frames, **numbers), result)
    same(fg.fit(folder, fg.RunConfig(**QUICK)), result)
    with pytest.raises(ConfigError, match=r"unknown option 'lag' \(did you mean 'lags'"):
        fg.fit(frames, lag=2)
    with pytest.raises(ConfigError, match=r"unknown option 'mising' \(did you mean 'missing'"):
        fg.fit(frames, mising="mask")
    with pytest.raises(ConfigError, match="'lags' is given beside a config"):
        fg.fit(frames, fg.RunConfig(), lags=1)


def test_one_wide_frame_is_shared_out(frames, result):
    wide = pd.concat([f.add_prefix(f"{name} ") for name, f in frames.items()], axis=1)
    columns = {name: [c for c in wide if c.startswith(name)] for name in frames}
    for how in ({"clients": columns}, {"map": "client1 *=client1,client2 *=client2"}):
        found = fg.fit(wide, **how, **QUICK)
        np.testing.assert_array_equal(found.edges()["p_value"], result.edges()["p_value"])
    with pytest.raises(DataError, match="say which columns are whose with"):
        fg.fit(wide)
    with pytest.raises(DataError, match="clients= is for one wide frame"):
        fg.fit(frames, clients=columns)
    with pytest.raises(DataError, match="clients= is a list; give the columns of every client"):
        fg.fit(wide, clients=list(wide))
    once = {name: (c for c in own) for name, own in columns.items()}
    assert fg.Panel.from_frames(wide, clients=once).reading["clients"] == columns


def test_two_levels_of_columns_are_client_and_sensor(frames, result):
    """As pd.concat makes them, also with the clock as a column."""
    wide = pd.concat(frames, axis=1)
    same(fg.fit(wide, **QUICK), result)
    same(fg.fit(wide.reset_index(), **QUICK), result)
    states = result.states(wide)
    pd.testing.assert_frame_equal(states, result.states(frames), check_freq=False)
    with pytest.raises(DataError, match="have levels, of which the first names the clients"):
        fg.fit(wide, map="*=a")
    wide["load", ""] = 1.0  # as pandas keeps a column of one level
    with pytest.raises(DataError, match="column 'load' names no client; give it two levels"):
        fg.fit(wide)
    del wide["load", ""]
    with pytest.raises(DataError, match="3 levels; give two, client and sensor"):
        fg.fit(pd.concat({"plant": wide}, axis=1))


def test_options_the_pandas_way(frames):
    """Lists of names, and durations as objects."""
    odd = frames | {"client1": frames["client1"].assign(mode="x", note="y")}
    texts = fg.fit(odd, leave_out="mode,note", resample="10min", period="1h", **QUICK)
    day = {"resample": pd.Timedelta("10min"), "period": pd.Timedelta("1h")}
    for names in (["mode", "note"], pd.Index(["mode", "note"]), {"note", "mode"}):
        same(fg.fit(odd, drop=names, **day, **QUICK), texts)
    own = {name: frame.columns for name, frame in frames.items()}
    names = {name: frame.add_prefix(name) for name, frame in frames.items()}
    wide = pd.concat(names.values(), axis=1)
    for kind in (set, np.array, pd.Series):
        shares = {name: kind([*(name + own[name])]) for name in frames}
        assert fg.check(wide, clients=shares).command == "fg.fit(frames, clients=clients)"


def test_frames_are_aligned_by_their_index_and_never_by_row(frames):
    later = dict(frames)
    later["client2"] = frames["client2"].iloc[100:]
    found = fg.fit(later, **QUICK)
    assert found.manifest["data"]["num_steps"] == 300
    assert any(
        "100 of 400 rows are not on the common time axis" in note
        for note in found.manifest["data"]["notes"]
    )
    with pytest.raises(DataError, match="the clients have no time in common"):
        fg.fit(frames | {"client2": frames["client2"].shift(freq="400D")}, **QUICK)


def test_zones_are_kept(frames):
    berlin = {n: f.tz_localize("UTC").tz_convert("Europe/Berlin") for n, f in frames.items()}
    mixed = {"client1": berlin["client1"], "client2": frames["client2"].tz_localize("UTC")}
    panels = [fg.fit(one, **QUICK).manifest["data"] for one in (berlin, mixed)]
    assert panels[0]["hash"] == panels[1]["hash"]
    assert panels[0]["period"]["text"].startswith("2026-03-01T00:00:00 to ")


class Polarised:
    """As a frame of polars shows itself."""

    def __init__(self, frame):
        self._frame = frame

    def to_pandas(self):
        return self._frame.reset_index()


def test_other_libraries_come_through_to_pandas(frames, result):
    same(fg.fit({name: Polarised(frame) for name, frame in frames.items()}, **QUICK), result)


def test_frames_of_polars(frames, result):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    given = {name: polars.from_pandas(frame.reset_index()) for name, frame in frames.items()}
    same(fg.fit(given, **QUICK), result)
    berlin = frames["client1"].tz_localize("Europe/Berlin").reset_index()
    zoned = {name: polars.from_pandas(berlin) for name in frames}
    assert fg.Panel.from_frames(zoned).time_zone == "Europe/Berlin"
    with pytest.raises(DataError, match="give what its collect"):
        fg.fit({name: frame.lazy() for name, frame in given.items()})


def test_arrays_of_xarray(frames, result):
    xarray = pytest.importorskip("xarray", reason="xarray is not installed")
    sets = {name: xarray.Dataset.from_dataframe(frame) for name, frame in frames.items()}
    same(fg.fit(sets, **QUICK), result)
    arrays = {name: one.to_dataarray("sensor").transpose("time", ...) for name, one in sets.items()}
    same(fg.fit(arrays, **QUICK), result)
    whole = xarray.concat(arrays.values(), dim="client")
    with pytest.raises(DataError, match="give one with the axes time and sensor"):
        fg.fit(dict.fromkeys(frames, whole), **QUICK)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.rename(columns={f.columns[0]: f.columns[1]}), "appears twice"),
        (lambda f: f.assign(note="x"), "'note'"),
        (lambda f: f.mask(f == f.iloc[7, 1]), "missing='mask'"),
        (lambda f: f.iloc[:0], "has no rows"),
        (lambda f: f.iloc[::-1], "client 'client1'"),
        (lambda f: f.to_numpy(), "an ndarray was given where a data frame is needed"),
        (lambda f: pd.concat([f], axis=1, keys=["a"]), "several levels"),
        (lambda f: f.rename_axis(f.columns[0]), "the index and a column are both called"),
    ],
)
def test_odd_frames_are_refused_in_one_sentence(frames, change, words):
    with pytest.raises(DataError) as error:
        fg.fit(frames | {"client1": change(frames["client1"])}, **QUICK)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_run_remembers_how_its_data_were_read(frames, tmp_path):
    odd = frames | {"client1": frames["client1"].assign(mode="auto")}
    found = fg.fit(odd, leave_out="client1.mode", **QUICK)
    found.save(tmp_path / "run")
    found = fg.Result.load(tmp_path / "run")
    assert found.manifest["data"]["reading"] == {"of": "frames", "leave_out": "client1.mode"}
    states = found.states(odd)
    pd.testing.assert_frame_equal(states, found.states(odd, leave_out="client1.mode"))
    pd.testing.assert_frame_equal(states, found.states(frames))  # nothing to leave out: fine
    with pytest.raises(DataError, match=r"client2\.note"):
        found.states(odd | {"client2": frames["client2"].assign(note="x")})
    fg.Panel.from_frames(frames).write(tmp_path / "files")
    np.testing.assert_allclose(found.states(tmp_path / "files"), states)  # files are written alike
    wide = pd.concat([f.add_prefix(f"{name} ") for name, f in frames.items()], axis=1)
    shares = {name: [c for c in wide if c.startswith(name)] for name in frames}
    found = fg.fit(wide, clients=shares, **QUICK)
    pd.testing.assert_frame_equal(found.states(wide), found.states(wide, clients=shares))


def test_counters_of_new_data_are_treated_at_their_own_rate():
    """As in training: the change per row, then the rows that all clients have."""
    rng = np.random.default_rng(0)
    minutes = pd.date_range("2026-01-01", periods=3000, freq="min")
    a = np.convolve(rng.standard_normal(3009), 0.8 ** np.arange(10), "valid")
    noisy = lambda x: x + 0.3 * rng.standard_normal(3000)  # noqa: E731
    total = np.cumsum(100 + noisy(a))
    first = pd.DataFrame({"x": noisy(a), "y": noisy(a), "total": total}, index=minutes)
    b = 0.6 * np.roll(a, 5) + rng.standard_normal(3000)
    second = pd.DataFrame({"u": noisy(b), "v": noisy(b)}, index=minutes).iloc[::5]
    frames = {"a": first, "b": second}
    found = fg.fit(frames, **QUICK | {"state_dim": 1})
    assert found.manifest["data"]["clients"]["a"]["treatment"]["differenced"] == {"total": 1}
    panel = fg.Panel.from_frames(frames)
    pd.testing.assert_frame_equal(found.states(frames), found.states(panel))
    assert found.states(frames).mean().abs().max() < 1e-4
    assert np.nanmean(fg.rca.gather(found, frames).surprise) == pytest.approx(1, abs=0.1)


def test_an_index_of_numbers_is_the_time_axis_unless_it_counts_the_rows(frames):
    plain = {name: frame.reset_index(drop=True) for name, frame in frames.items()}
    whole = fg.Panel.from_frames(plain)
    assert whole.num_steps == 400
    cut = {"client1": plain["client1"].iloc[:300], "client2": plain["client2"].iloc[100:]}
    found = fg.Panel.from_frames(cut)
    assert (found.time[0], found.time[-1]) == (100, 299)
    for name in found.names:
        np.testing.assert_array_equal(found[name].values, whole[name].values[100:300])
    thin = fg.Panel.from_frames({name: frame.iloc[::2] for name, frame in plain.items()})
    assert thin.time.tolist() == list(range(0, 400, 2))


def test_arguments_of_another_kind_are_one_sentence(frames, result, tmp_path):
    with pytest.raises(ConfigError, match="config is a dict; give options as keywords"):
        fg.fit(frames, {"alpha": 0.01})
    wide = pd.concat([f.add_prefix(f"{name} ") for name, f in frames.items()], axis=1)
    with pytest.raises(DataError, match="give a list of columns, or patterns with map='a \\*=x"):
        fg.fit(wide, clients={"x": "a *"})
    notes = fg.Panel.from_frames(frames, resample="1min").notes
    assert any("its rows come less often than every 1min" in note for note in notes)
    fg.report.write_run_report(str(tmp_path / "page.html"), result)
    assert (tmp_path / "page.html").exists()


def test_the_summary_says_which_rows_are_not_used(frames):
    found = fg.fit(frames | {"client2": frames["client2"].iloc[::2]}, **QUICK)
    (line,) = [line for line in found.summary().splitlines() if line.startswith("Data: ")]
    assert "client 'client1': 200 of 400 rows are not on the common time axis" in line
    assert "resample='10min' uses them all" in line


def test_sentences_on_frames_name_keywords(frames):
    odd = frames | {"client1": frames["client1"].assign(mode="auto")}
    odd["client1"].iloc[3, 0] = np.nan
    call = "leave_out='client1.mode', missing='mask'"
    with pytest.raises(DataError, match=f"in all the data need {call}"):
        fg.fit(odd)
    found = fg.check(odd)
    assert repr(found) == str(found)
    assert str(found).splitlines()[-1] == f"fg.fit(frames, {call})"
    assert "--" not in str(found)
    with pytest.raises(ConfigError, match="test is 'latent'"):
        fg.fit(odd, test="latent")


def test_texts_among_the_numbers_of_a_frame_are_named_as_those_of_a_file(frames):
    odd = {name: frame.copy() for name, frame in frames.items()}
    client, frame = next(iter(odd.items()))
    sensor = frame.columns[0]
    frame[sensor] = frame[sensor].astype(object)
    frame.loc[frame.index[41], sensor] = "No Data"
    named = f"client '{client}', column '{sensor}', data row 42 ({frame.index[41]}"
    found = fg.check(odd)
    assert found.refused.startswith(named)
    assert found.needed == "missing_text='No Data', missing='mask'"
    with pytest.raises(DataError, match=re.escape(named)) as caught:
        fg.Panel.from_frames(odd)
    assert "'No Data' is not a number" in str(caught.value)
    panel = fg.Panel.from_frames(odd, missing="mask", missing_text="No Data")
    assert int((~panel[client].observed).sum()) == 1


def test_frames_that_nothing_mends_are_reported_by_the_check(frames):
    odd = {name: frame.copy() for name, frame in frames.items()}
    client, frame = next(iter(odd.items()))
    frame[frame.columns[0]] = [[1.0], 2.0] * (len(frame) // 2)
    found = fg.check(odd)
    assert found.stopped.startswith(f"client '{client}': column")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "None was given; give a folder"),
        (7, "an int was given; give a folder"),
        ([], "a list was given; give a folder"),
        ({}, "no client was given"),
    ],
)
def test_the_check_of_what_is_no_data_is_one_sentence(data, words):
    with pytest.raises(DataError, match=words):
        fg.check(data)


def test_completion_offers_public_names():
    assert dir(fg) == sorted(fg.__all__)
    assert dir(fg.plot) == sorted(fg.plot.__all__)


def test_times_are_in_the_zone_of_the_frames_or_say_utc(frames):
    berlin = {n: f.tz_localize("UTC").tz_convert("Europe/Berlin") for n, f in frames.items()}
    panel = fg.Panel.from_frames(berlin)
    assert repr(panel).startswith("Panel of 400 steps, 2026-03-01T01:00:00+01:00 to 2026-03-02T")
    assert "from 2026-03-01T00:00:00 UTC to " in str(fg.check(berlin))
    assert " UTC, 400 steps of 5 min" in fg.fit(panel, **QUICK).summary()
    assert panel.prepared().time_zone == "Europe/Berlin"
    assert panel.slice(0, 9).time_index.equals(panel.time_index[:9])
    naive = fg.Panel.from_frames(frames)
    assert naive.time_index.tz is None


def test_root_causes_of_frames(frames, result):
    panel = fg.Panel.from_frames(frames)
    evidence = [fg.rca.gather(result, data) for data in (frames, panel)]
    np.testing.assert_array_equal(evidence[0].smoothed(), evidence[1].smoothed())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([1, 2], "a list was given; give a folder"),
        ({"a": pd.DataFrame({"x": [1.0]})}, "1 client was given"),
        ({1: pd.DataFrame({"x": [1.0]}), "b": pd.DataFrame()}, "client name 1 is not a text"),
    ],
)
def test_what_is_no_data_is_refused(data, words):
    with pytest.raises(DataError, match=words):
        fg.fit(data)


def test_a_panel_takes_no_reading_options(folder):
    panel = fg.Panel.read(folder)
    with pytest.raises(DataError, match="'missing' is for data that are read"):
        fg.fit(panel, missing="mask")
    assert repr(panel).startswith("Panel of 400 steps, 2026-03-01T00:00:00")
    assert "client1 (5), client2 (5)" in repr(panel)


def test_a_result_prints_its_answer(result):
    lines = repr(result).splitlines()
    assert lines == result.summary().splitlines()
    assert 4 <= len(lines) <= 12
    assert lines[0].startswith("2 clients (client1, client2), 2026-03-01T00:00:00 to 2026-03-02T")
    assert lines[0].endswith("400 steps of 5 min")
    assert "of 2 tested pairs" in lines[1]
    assert lines[2].startswith("Tested: ")
    edge = next(line for line in lines if "client1 -> client2" in line)
    assert "+1 bar at client1.s" in edge
    assert "after 5 min" in edge
    card = result._repr_html_()
    assert card.count("<li>") == len(lines) - 1
    assert "client1 -&gt; client2" in card


def test_untested_runs_print_why(folder):
    found = fg.fit(folder, test="none", solver="newton", state_dim=2)
    assert "Nothing was tested: no test was asked for" in found.summary()


@pytest.mark.parametrize("alpha", [2, -1, 0, "x", True])
def test_levels_are_checked(result, alpha):
    with pytest.raises(ConfigError, match="alpha is"):
        result.edges(alpha=alpha)
    with pytest.raises(ConfigError, match="correction is 'bonf'"):
        result.edges(correction="bonf")


def test_modules_are_there_without_an_import(result, tmp_path):
    assert fg.rca.SCORERS
    assert fg.export.to_networkx(result)
    fg.report.write_run_report(tmp_path / "report.html", result)
    assert (tmp_path / "report.html").exists()
