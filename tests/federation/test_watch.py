"""Sites that watch their own new data find what one process finds, to the last bit."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import fedgranger as fg
from fedgranger.client.own_normal import OwnNormal
from fedgranger.data.align import regular_panel
from fedgranger.data.panel_files import read_client
from fedgranger.data.time_axis import LocalSeries
from fedgranger.federation.outcome import to_result
from fedgranger.federation.site_normal import load_normal
from fedgranger.federation.store import DiskFiles, Store
from fedgranger.federation.watching import WatchOptions
from fedgranger.rca import OnlineAnalysis
from fedgranger.rca.new_data import knowledge_of, require_normal
from tests.anomalies import NAMES, made_panel
from tests.configs import formula_config
from tests.federation.loopback_run import OPEN, Federation

CONFIG = formula_config(state_dim=1, solver="none", period="none")
TRAINING = made_panel(600)
NEW = made_panel(300, seed=4, shocked="b", at=160, length=40)


@cache
def alone():
    return fg.fit(TRAINING, CONFIG)


def trained(folder, policy=OPEN, wrap=lambda name, handle: handle, panel=TRAINING, config=CONFIG):
    """Parties after a run, and its result as the server has it."""
    federation = Federation(panel, folder, config, wrap, policy)
    found = federation.run()
    return federation, to_result(federation.server, found, "loopback", 0.0, ())


def give(federation, panel):
    for client in panel:
        federation.news[client.name] = LocalSeries(client, panel.time)


def in_process(result, panel, steps=50, **options):
    """The alarms that `fedgranger rca` finds."""
    analysis, found = OnlineAnalysis(result, **options), {}
    for first in range(0, panel.num_steps, steps):
        for alarm in analysis.feed(panel.slice(first, min(first + steps, panel.num_steps))):
            found[alarm.step] = alarm
    return tuple(found.values())


def assert_same(found, wanted):
    assert [alarm.step for alarm in found] == [alarm.step for alarm in wanted]
    for one, other in zip(found, wanted, strict=True):
        pd.testing.assert_frame_equal(one.ranking.table, other.ranking.table, check_exact=True)
        assert one.ranking.to_mapping() == other.ranking.to_mapping()


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


AS_MEASURED = {"time_column": "auto", "missing": "mask", "constant": "keep"}
AS_MEASURED |= {"difference": "none", "suspect": "keep"}


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
    later = regular_panel(fg.Panel.read(new, **AS_MEASURED)).panel
    assert later.segment_starts.sum() > 1
    wanted = in_process(result, later)
    federation = Federation(panel, tmp_path / "sites", config)
    for name in NAMES:
        masked = {"time_column": "auto", "missing": "mask", "constant": "error"}
        client, time, _ = read_client(name, training / f"{name}.csv", **masked)
        federation.give(LocalSeries(client, time))
        client, time, _ = read_client(name, new / f"{name}.csv", **AS_MEASURED)
        federation.news[name] = LocalSeries(client, time)
    found = federation.run()
    server = to_result(federation.server, found, "loopback", 0.0, ())
    watched = federation.watch(knowledge_of(server))
    assert wanted
    assert watched.grid.num_steps == later.num_steps
    assert_same(watched.alarms, wanted)
