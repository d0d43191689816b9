"""Control panels: the truth they claim holds by construction."""

import json

import numpy as np
import pandas as pd
import pytest

from fedgranger.data.panel import Panel
from fedgranger.errors import ConfigError, DataError
from fedgranger_research.recordings.panels import (
    DECAY,
    add_edge,
    default_steps,
    disjoint_stretches,
    null_control,
    odd_control,
)
from fedgranger_research.recordings.reading import read_recordings
from fedgranger_research.recordings.recording_study import RecordingStudy
from fedgranger_research.recordings.trial import study_config

CLIENTS = ("a", "b", "c")


def numbered(num_steps=1000, seed=0):
    """Two sensors per client; the first is the row number, so that rows can be told."""
    rng = np.random.default_rng(seed)
    arrays = {
        name: np.column_stack([np.arange(num_steps), rng.standard_normal((num_steps, 2))])
        for name in CLIENTS
    }
    return Panel.from_arrays(arrays)


def machines(count=4):
    return {f"m{k}": numbered(seed=k) for k in range(count)}


def rows_of(control, name):
    return control.arrays[name][:, 0].astype(int)


def test_null_clients_share_no_row_of_one_recording():
    orders = set()
    for seed in range(20):
        control = null_control({"one": numbered()}, 300, "k", np.random.default_rng(seed))
        used = np.concatenate([rows_of(control, name) for name in CLIENTS])
        assert len(np.unique(used)) == 900
        for name, source in control.sources.items():
            assert (rows_of(control, name) == np.arange(source.start, source.stop)).all()
        orders.add(tuple(np.argsort([rows_of(control, name)[0] for name in CLIENTS])))
    assert len(orders) == 6
    assert set(control.truths.values()) == {"absent"}
    assert len(control.truths) == 6


def test_null_clients_come_from_different_machines():
    for seed in range(10):
        control = null_control(machines(), 900, "k", np.random.default_rng(seed))
        assert len({source.unit for source in control.sources.values()}) == 3


def test_fewer_machines_than_clients_are_used_with_disjoint_rows():
    found = disjoint_stretches(machines(2), 3, 400, np.random.default_rng(0))
    assert len({source.unit for source in found}) == 2
    rows = [(s.unit, t) for s in found for t in range(s.start, s.stop)]
    assert len(set(rows)) == 1200


def test_no_stretch_crosses_a_gap():
    time = np.concatenate([np.arange(400), np.arange(1000, 1600)])
    arrays = {name: np.random.default_rng(0).standard_normal((1000, 1)) for name in CLIENTS}
    units = {"one": Panel.from_arrays(arrays, time=time)}
    for seed in range(10):
        for source in disjoint_stretches(units, 3, 300, np.random.default_rng(seed)):
            assert source.stop <= 400 or source.start >= 400
    with pytest.raises(DataError, match="room for 2 stretches of 350 steps"):
        disjoint_stretches(units, 3, 350, np.random.default_rng(0))
    assert 0.79 * 300 <= default_steps(units, 3) <= 300


def test_odd_client_is_elsewhere_and_the_others_are_together():
    for units in ({"one": numbered()}, machines()):
        control = odd_control(units, 300, "k", np.random.default_rng(3))
        sources = list(control.sources.values())
        odd = next(n for n, s in control.sources.items() if sources.count(s) == 1)
        home = {s for n, s in control.sources.items() if n != odd}
        assert len(home) == 1
        if len(units) == 1:
            shared = set(rows_of(control, odd)) & set(range(*next(iter(home))[1:]))
            assert not shared
        else:
            assert control.sources[odd].unit != next(iter(home)).unit
        assert set(control.truths) == {
            (c, e) for c in CLIENTS for e in CLIENTS if c != e and odd in (c, e)
        }


def test_added_edge_changes_only_its_effect():
    null = null_control({"one": numbered()}, 300, "n", np.random.default_rng(1))
    added = add_edge(null, 0.5, "a", np.random.default_rng(7))
    ((cause, effect),) = [pair for pair, truth in added.truths.items() if truth == "added"]
    for name in CLIENTS:
        same = np.array_equal(null.arrays[name], added.arrays[name])
        assert same == (name != effect)
    twice = add_edge(null, 1.0, "a", np.random.default_rng(7))
    change, doubled = (x.arrays[effect] - null.arrays[effect] for x in (added, twice))
    np.testing.assert_allclose(doubled, 2 * change, atol=1e-9)
    assert (cause, effect) in twice.truths


def test_added_edge_responds_one_step_later_and_decays():
    """White clients: the response after k steps is size · decay^(k-1)."""
    rng = np.random.default_rng(5)
    arrays = {name: rng.standard_normal((20_000, 1)) for name in ("a", "b")}
    null = null_control(
        {f"m{k}": Panel.from_arrays(arrays) for k in range(2)},
        20_000,
        "n",
        np.random.default_rng(0),
    )
    added = add_edge(null, 0.5, "a", np.random.default_rng(1))
    ((cause, effect),) = [pair for pair, truth in added.truths.items() if truth == "added"]
    x = null.arrays[cause][:, 0]
    moved = (added.arrays[effect] - null.arrays[effect])[:, 0]
    for k in (0, 1, 2, 3):
        expected = 0.0 if k == 0 else 0.5 * DECAY ** (k - 1)
        found = abs(np.mean(x[: len(x) - k] * moved[k:]))
        assert found == pytest.approx(expected, abs=0.03)


def test_missing_samples_stay_missing_and_constants_are_left_out():
    values = np.random.default_rng(0).standard_normal((400, 3))
    values[:, 1] = 7.0
    values[50:60, 0] = np.nan
    units = {f"m{k}": Panel.from_arrays({"a": values, "b": values[:, [2]]}) for k in range(2)}
    null = null_control(units, 400, "k", np.random.default_rng(0))
    assert null.arrays["a"].shape == (400, 2)
    added = add_edge(null, 1.0, "k", np.random.default_rng(2))
    for control in (null, added):
        assert (np.isnan(control.arrays["a"][:, 0]) == np.isnan(values[:, 0])).all()


def test_client_without_a_live_sensor_is_named():
    units = {"one": Panel.from_arrays({"a": np.ones((90, 1)), "b": np.arange(90.0)[:, None]})}
    with pytest.raises(DataError, match="client 'a'"):
        null_control(units, 40, "k", np.random.default_rng(0))


def test_same_seed_same_panels_however_many():
    def study(**changed):
        options = {"num_panels": 2, "num_steps": 200} | changed
        seed = options.pop("seed", 0)
        return RecordingStudy(machines(), study_config({"seed": seed}), **options)

    few, many, other = study(), study(num_panels=5), study(seed=1)
    assert set(few.keys) < set(many.keys)
    for key in few.keys:
        one, two = few.control(key), many.control(key)
        assert one.sources == two.sources
        for name in CLIENTS:
            np.testing.assert_array_equal(one.arrays[name], two.arrays[name])
    assert few.control("null/0").sources != other.control("null/0").sources
    assert few.control("null/0").sources == few.control("added-0.5/0").sources
    assert few.control("null/0").sources != few.control("null/1").sources
    assert few.question == many.question != other.question
    with pytest.raises(ConfigError, match="positive"):
        study(sizes=[0.0])
    with pytest.raises(DataError, match="at least 20"):
        RecordingStudy({"one": numbered(40)}, study_config({}))


def test_recordings_by_folder_by_table_and_by_column(tmp_path):
    units = machines(2)
    for name, panel in units.items():
        panel.write(tmp_path / "folders" / name)
    by_folder = read_recordings(tmp_path / "folders")
    partition = {name: [f"{name}_{k}" for k in range(3)] for name in CLIENTS}
    (tmp_path / "clients.json").write_text(json.dumps(partition))
    tables = []
    (tmp_path / "tables").mkdir()
    for name, panel in units.items():
        values = np.concatenate([panel[c].values for c in CLIENTS], axis=1)
        columns = [column for c in CLIENTS for column in partition[c]]
        table = pd.DataFrame(values, columns=columns)
        table.to_csv(tmp_path / "tables" / f"{name}.csv", index=False)
        tables.append(table.assign(machine=name, time=np.arange(len(table))))
    pd.concat(tables).to_csv(tmp_path / "all.csv", index=False)
    options = {"partition": tmp_path / "clients.json"}
    by_table = read_recordings(tmp_path / "tables", **options)
    by_column = read_recordings(tmp_path / "all.csv", unit_column="machine", **options)
    for found in (by_folder, by_table, by_column):
        assert list(found) == ["m0", "m1"]
        for unit, panel in found.items():
            for name in CLIENTS:
                np.testing.assert_allclose(panel[name].values, units[unit][name].values)
    assert list(read_recordings(tmp_path / "folders" / "m0")) == ["m0"]
    with pytest.raises(DataError, match="partition"):
        read_recordings(tmp_path / "folders", unit_column="machine")
    with pytest.raises(DataError, match="no column 'machin'"):
        read_recordings(tmp_path / "all.csv", unit_column="machin", **options)
    (tmp_path / "folders" / "m1" / "c.csv").rename(tmp_path / "folders" / "m1" / "d.csv")
    with pytest.raises(DataError, match="different clients"):
        read_recordings(tmp_path / "folders")
