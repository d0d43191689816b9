"""Sites that watch their own new data find what one process finds, to the last bit."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import fedgranger as fg
from fedgranger.client.own_normal import OwnNormal
from fedgranger.data.align import regular_panel
from fedgranger.data.panel_files import read_client, read_panel
from fedgranger.data.reading_options import AS_MEASURED, PanelOptions, ReadingOptions, as_measured
from fedgranger.data.time_axis import LocalSeries, on_grid
from fedgranger.federation import watch_session
from fedgranger.federation.agreed_options import WatchOptions
from fedgranger.federation.codec import decode, digest
from fedgranger.federation.ledger import payload_bytes
from fedgranger.federation.outcome import to_result
from fedgranger.federation.protocol import RunStopped
from fedgranger.federation.store import DiskFiles, Store
from fedgranger.federation.watch_records import load_normal
from fedgranger.rca import gather
from fedgranger.rca.alarms import knowledge_of
from fedgranger.rca.excursions import find_excursions
from fedgranger.rca.new_data import panel_for, require_normal, surprising_sensors
from tests.anomalies import NAMES, made_panel, slow_panel
from tests.federation.loopback_run import Federation, Ticking
from tests.federation.watched import CONFIG, NEW, TRAINING, assert_same, give, in_process, trained

AS_IT_IS = ReadingOptions()


@cache
def alone():
    return fg.fit(TRAINING, CONFIG)


def test_the_server_of_a_federation_expects_what_one_process_expects(tmp_path):
    _, result = trained(tmp_path / "sites")
    for mine, theirs in zip(result.reference, alone().reference, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    result.save(tmp_path / "run")
    loaded = fg.Result.load(tmp_path / "run")
    assert loaded.monitors == {}
    np.testing.assert_array_equal(loaded.reference.cross, result.reference.cross)
    assert loaded.manifest["normal"]["monitors"] == "sites"
    same = ("explained_by", "interval")
    for key in same:
        assert loaded.manifest["normal"][key] == alone().manifest["normal"][key]
    with pytest.raises(fg.errors.RunError, match="every site keeps what is normal"):
        require_normal(loaded)


def test_a_site_keeps_what_one_process_writes_to_the_run_folder(tmp_path):
    federation, _ = trained(tmp_path)
    normals, _ = require_normal(alone())
    for name in NAMES:
        kept = load_normal(Store(DiskFiles(tmp_path / name)), "run").own
        assert isinstance(kept, OwnNormal)
        assert kept.interval == normals[name].interval
        for field in ("readout", "regression", "precision", "threshold", "sensors", "treatment"):
            mine, theirs = getattr(kept.monitor, field), getattr(normals[name].monitor, field)
            np.testing.assert_array_equal(mine, theirs)
    sent = b"".join(answer for _, _, answer in federation.wire)
    assert np.float64(normals["a"].monitor.threshold).tobytes() not in sent


@pytest.mark.parametrize("steps", [50, 17])
def test_watching_sites_find_what_one_process_finds(tmp_path, steps):
    federation, result = trained(tmp_path)
    give(federation, NEW)
    found = federation.watch(knowledge_of(result), WatchOptions(steps=steps))
    wanted = in_process(alone(), NEW, steps)
    assert wanted
    assert_same(found.alarms, wanted)
    assert found.alarms[0].ranking.first == "b"


def write_tables(folder, panel, seed, *, first="2026-01-01T00:00:00"):
    """Every client's own file: single rows and cells are missing, and a stretch for everybody."""
    rng = np.random.default_rng(seed)
    folder.mkdir()
    common = np.ones(panel.num_steps, dtype=bool)
    common[100:104] = False  # a short gap, and one that begins a new segment
    common[220:250] = False
    start = np.datetime64(first, "s")
    for client in panel:
        kept = common.copy()
        kept[rng.integers(5, panel.num_steps - 5, 8)] = False
        rows = np.flatnonzero(kept)
        stamps = start + rows * np.timedelta64(10, "s")
        lines = [",".join(["time", *client.sensors])]
        for k, (stamp, values) in enumerate(zip(stamps, client.values[rows], strict=True)):
            cells = list(map(repr, values.tolist()))
            cells[0] = "" if k % 61 == 60 else cells[0]
            lines.append(f"{stamp},{','.join(cells)}")
        (folder / f"{client.name}.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", range(3))
def test_files_with_gaps_and_missing_rows_give_the_same_bits(tmp_path, seed):
    """As `fedgranger rca RUN --data FOLDER`, and sites that read their own file of that folder."""
    training = write_tables(tmp_path / "training", made_panel(600, seed=seed), seed)
    shocked = made_panel(400, seed=seed + 10, shocked="a", at=260, length=60)
    new = write_tables(tmp_path / "new", shocked, seed + 20, first="2026-02-01T00:00:00")
    panel = fg.Panel.read(training, missing="mask")
    config = replace(CONFIG, period="60")  # steps of 10 s
    result = fg.fit(panel, config)
    later = regular_panel(read_panel(new, PanelOptions(**AS_MEASURED))).panel
    later = replace(later, time_zone="UTC")  # as which sites take stamps without a zone
    assert later.segment_starts.sum() > 1
    wanted = in_process(result, later)
    masked = ReadingOptions(missing="mask")
    federation, server = sites_of_files(tmp_path / "sites", training, new, config, masked)
    watched = federation.watch(knowledge_of(server))
    assert wanted
    assert watched.grid.num_steps == later.num_steps
    assert_same(watched.alarms, wanted)


def test_the_sites_are_told_the_alarm_with_its_last_ranking(tmp_path):
    federation, result = trained(tmp_path)
    give(federation, NEW)
    found = federation.watch(knowledge_of(result))
    (alarm,) = found.alarms
    window = slice(alarm.step, alarm.step + 200)
    known = surprising_sensors(alone(), NEW, window)  # in one process, where all sensors are known
    for name in NAMES:
        last = federation.alarms[name][-1]
        own, levels = last.pop("own_sensors"), last.pop("own_levels")
        assert [sensor for sensor, _ in own] == [sensor for sensor, _ in known[name]]
        np.testing.assert_allclose([size for _, size in own], [size for _, size in known[name]])
        assert last == {
            "step": alarm.step,
            "time": str(NEW.time[alarm.step]),
            "num_steps": NEW.num_steps,
            **alarm.ranking.to_mapping(),
        }
        wanted = [one for one in find_excursions(alone(), NEW).found if one.client == name]
        assert levels == [one.to_mapping() for one in wanted]
    lines = [line for line in federation.log if "'b' comes first in" in line]
    assert len(lines) == len(NAMES)  # once at every site, however often its ranking has changed


def write_rates(folder, seed, num_rows, *, first, every=5, late=0, shock=0.0):
    """a every minute, with a counter; b and c every few minutes. b is shocked for a while."""
    panel = made_panel(num_rows, seed=seed, shocked="b", at=num_rows // 2, size=shock, length=200)
    folder.mkdir()
    clock = np.datetime64(first, "s") + np.arange(num_rows) * np.timedelta64(60, "s")
    for client in panel:
        values = client.values.copy()
        if client.name == "a":
            values[:, 0] = np.cumsum(100 + values[:, 0])
        table = pd.DataFrame(values, columns=list(client.sensors))
        table.insert(0, "time", clock)
        table = table if client.name == "a" else table.iloc[late::every]
        table.to_csv(folder / f"{client.name}.csv", index=False)
    return folder


def sites_of_files(folder, training, new, config=CONFIG, reading=AS_IT_IS):
    """Sites that read their own files, after a run; and its result as the server has it."""
    panel = fg.Panel.read(training, missing=reading.missing)
    federation = Federation(panel, folder, config)
    for name in NAMES:
        client, time, _ = read_client(name, training / f"{name}.csv", reading)
        federation.give(LocalSeries(client, time))
        client, time, _ = read_client(name, new / f"{name}.csv", as_measured())
        federation.news[name] = LocalSeries(client, time)
    found = federation.run()
    return federation, to_result(federation.server, found, "loopback", 0.0, ())


def test_a_site_with_two_rows_per_step_has_the_one_before_the_first(tmp_path, monkeypatch):
    """A counter's first change needs it; what is asked for again has it too."""
    training = write_rates(tmp_path / "training", 1, 3000, first="2026-01-01T00:00:00", every=2)
    new = write_rates(tmp_path / "new", 2, 600, first="2026-02-01T00:00:00", every=2, late=10)
    federation, server = sites_of_files(tmp_path / "sites", training, new)
    treated = []

    def spy(series, grid):
        treated.append((series, grid))
        return on_grid(series, grid)

    monkeypatch.setattr(watch_session, "on_grid", spy)
    for nonce in ("monday", "tuesday"):
        federation.watch(knowledge_of(server), nonce=nonce)
    own = [(series, grid) for series, grid in treated if series.client.name == "a"]
    assert len(own) == 2
    for series, grid in own:
        first = np.flatnonzero(series.time.astype("datetime64[ns]").astype(np.int64) == grid.first)
        assert series.client.observed[first].all()


def test_a_site_that_samples_more_often_than_the_run_watches_as_one_process_does(tmp_path):
    """Its counter is differenced per row of its own, then the rows of the common axis are taken."""
    training = write_rates(tmp_path / "training", 1, 6000, first="2026-01-01T00:00:00")
    new = write_rates(tmp_path / "new", 2, 2000, first="2026-02-01T00:00:00", shock=4.0)
    result = fg.fit(training, CONFIG)
    assert result.manifest["data"]["clients"]["a"]["treatment"]["differenced"] == {"s1": 1}
    later = replace(regular_panel(panel_for(result, new, {})).panel, time_zone="UTC")
    wanted = in_process(result, later)
    assert wanted
    federation, server = sites_of_files(tmp_path / "sites", training, new)
    watched = federation.watch(knowledge_of(server))
    assert watched.grid.interval == 300 * 10**9
    assert_same(watched.alarms, wanted)


def test_a_site_that_samples_more_often_gives_the_same_numbers_again(tmp_path):
    """Its rows before the watched steps are not there when they are asked for again."""
    training = write_rates(tmp_path / "training", 1, 3000, first="2026-01-01T00:00:00", every=2)
    options = {"every": 2, "late": 10, "shock": 4.0}
    new = write_rates(tmp_path / "new", 2, 600, first="2026-02-01T00:00:00", **options)
    federation, server = sites_of_files(tmp_path / "sites", training, new)
    sent = []
    for nonce in ("monday", "tuesday"):
        federation.wire.clear()
        watched = federation.watch(knowledge_of(server), nonce=nonce)
        answers = [decode(answer) for name, _, answer in federation.wire if name == "a"]
        sent.append([one.arrays for one in answers if one.kind == "monitor"])
        assert watched.grid.num_steps == 295
    for one, other in zip(*sent, strict=True):
        for name, array in one.items():
            np.testing.assert_array_equal(array, other[name])


def test_new_data_that_all_come_more_often_than_the_run_are_refused_with_the_step(tmp_path):
    training = write_rates(tmp_path / "training", 1, 3000, first="2026-01-01T00:00:00")
    federation = Federation(fg.Panel.read(training), tmp_path / "sites", CONFIG)
    found = federation.run()
    server = to_result(federation.server, found, "loopback", 0.0, ())
    clock = np.datetime64("2026-02-01T00:00:00", "ns") + np.arange(600) * np.timedelta64(60, "s")
    give(federation, replace(made_panel(600, seed=3), time=clock))
    with pytest.raises(RunStopped, match="meet every 1min, those that the run learned from every"):
        federation.watch(knowledge_of(server))


def watched_slow_fault(folder, num_steps, shift):
    """Sites whose stamps name no zone, after a watch in which q's sensors shift slowly."""
    clock = np.datetime64("2026-03-05T00:00:00", "ns") + np.arange(4000) * np.timedelta64(60, "s")
    federation = Federation(replace(slow_panel(3000), time=clock[:3000]), folder, CONFIG)
    found = federation.run()
    server = to_result(federation.server, found, "loopback", 0.0, ())
    new = slow_panel(num_steps, seed=2, shift=shift, at=300)
    give(federation, replace(new, time=clock[3000 : 3000 + num_steps]))
    federation.wire.clear()
    return federation, federation.watch(knowledge_of(server))


def test_a_slow_shift_is_in_the_log_of_its_own_site_and_leaves_no_site(tmp_path):
    """No alarm, so the server knows nothing of it; times say that they are in UTC."""
    federation, found = watched_slow_fault(tmp_path, 600, -4.0)
    assert found.alarms == ()
    strayed = [line for line in federation.log if "below its usual level" in line]
    assert len(strayed) == 3
    assert all(line.startswith("q.s") and line.endswith(" UTC.") for line in strayed)
    assert sum("No sensor strayed from its usual level" in line for line in federation.log) == 1
    watched = "new data are watched, 2026-03-07T02:00:00 to 2026-03-07T11:59:00 UTC, 600 steps"
    assert any(watched in line for line in federation.log)
    sent = b"".join(answer for _, _, answer in federation.wire)
    assert b"usual level" not in sent


def test_an_alarm_and_the_levels_beside_it_say_that_their_times_are_utc(tmp_path):
    federation, _ = watched_slow_fault(tmp_path, 1000, -8.0)
    alarm = federation.alarms["q"][0]
    assert alarm["time"].startswith("2026-03-07T0")
    assert alarm["time"].endswith(":00Z")
    assert " UTC" in alarm["name"]
    assert {one["sensor"] for one in alarm["own_levels"]} == {"s1", "s2", "s3"}
    assert all(one["first"] < alarm["time"] for one in alarm["own_levels"])
    assert federation.alarms["p"][0]["own_levels"] == []


def test_everything_that_left_is_counted_and_in_the_audit_log(tmp_path):
    federation, result = trained(tmp_path)
    give(federation, NEW)
    federation.wire.clear()
    federation.audit.clear()
    federation.watch(knowledge_of(result))
    totals = federation.server.ledger.totals()
    for name in NAMES:
        answers = [answer for client, _, answer in federation.wire if client == name]
        assert totals[name]["bytes_up"] == sum(map(len, answers))
        noted = [facts["digest"] for client, _, facts in federation.audit if client == name]
        assert noted == [digest(answer) for answer in answers]
    kinds = {decode(answer).kind for _, _, answer in federation.wire}
    assert kinds == {"news", "done", "monitor"}
    monitors = [a for c, _, a in federation.wire if c == "a" and decode(a).kind == "monitor"]
    payload = sum(array.nbytes for a in monitors for array in decode(a).arrays.values())
    assert payload == payload_bytes("monitor", time=NEW.num_steps, client_state=1)
    period = [facts["period"] for _, _, facts in federation.audit if facts["request"] == "report"]
    assert set(period) == {"0 to 299, 300 steps of 1"}


def test_a_longer_file_is_watched_from_its_beginning_with_the_same_numbers(tmp_path):
    """Sites let their file grow and the watch is given again: as one process on the whole file."""
    federation, result = trained(tmp_path)
    give(federation, NEW.slice(0, 180))
    first = federation.watch(knowledge_of(result), nonce="monday")
    give(federation, NEW)
    second = federation.watch(knowledge_of(result), nonce="tuesday")
    assert_same(first.alarms, in_process(alone(), NEW.slice(0, 180)))
    assert_same(second.alarms, in_process(alone(), NEW))


def test_a_watch_goes_on_without_a_client_whose_steps_then_count_as_missing(tmp_path):
    federation, result = trained(tmp_path, on_missing="drop", wait_seconds=5)
    give(federation, NEW)
    federation.wrap = lambda name, handle: (lambda _: b"") if name == "a" else handle
    found = federation.watch(knowledge_of(result), engine=Ticking(federation))
    assert federation.server.dropped == ("a",)
    silent = replace(NEW["a"], observed=np.zeros_like(NEW["a"].observed))
    without = replace(NEW, clients=(silent, NEW["b"], NEW["c"]))
    assert_same(found.alarms, in_process(alone(), without))


def test_what_repeats_is_taken_out_after_sensors_were_differenced():
    """As in training: new data of a counter with a daily cycle are as calm as the training data."""
    steps = np.arange(1200)
    rng = np.random.default_rng(1)
    flow = 5 + 2 * np.sin(2 * np.pi * steps / 24) + 0.3 * rng.standard_normal(1200)
    noise = rng.standard_normal((1200, 3)) + np.sin(2 * np.pi * steps / 24)[:, None]
    clients = {"a": np.column_stack([np.cumsum(flow), noise]), "b": rng.standard_normal((1200, 3))}
    panel = fg.Panel.from_arrays(clients)
    training = panel.slice(0, 900).prepared()
    assert training["a"].treatment.differenced
    result = fg.fit(training, replace(CONFIG, period=(24,)))
    found = gather(result, panel.slice(900, 1200))
    assert np.nanmedian(found.surprise[:, 0]) < 2
    assert (found.smoothed() <= found.threshold).all()
