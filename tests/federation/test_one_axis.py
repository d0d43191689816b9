"""One rule for time: a folder in one process and sites that read their own file find the same bits.

Random panels: clients that begin and end at other times, lack single rows and long stretches, all
of them or one alone, and sample at other intervals.
"""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.data.panel import Panel
from fedgranger.data.panel_files import read_client
from fedgranger.data.reading_options import ReadingOptions
from fedgranger.data.time_axis import LocalSeries
from tests.configs import formula_config
from tests.federation.loopback_run import Federation


def write_tables(folder, seed):
    """Three clients of one simulation, each with rows, and sometimes a clock, of its own."""
    rng = np.random.default_rng(seed)
    panel = fg.simulate(3, 900, seed=seed)[0]
    common = np.ones(900, dtype=bool)
    for length in rng.integers(1, 40, rng.integers(0, 3)):
        start = rng.integers(50, 800)
        common[start : start + length] = False
    start = np.datetime64("2026-01-01T00:00:00", "s")
    for k, client in enumerate(panel):
        kept = common.copy()
        kept[: rng.integers(0, 10)] = False
        kept[len(kept) - rng.integers(0, 10) :] = rng.integers(0, 10) > 8
        kept[rng.integers(20, 880, rng.integers(0, 20))] = False
        if rng.integers(2):
            begin = rng.integers(50, 800)
            kept[begin : begin + rng.integers(3, 60)] = False
        rows = np.flatnonzero(kept)
        if seed % 4 == 3 and k == 1:
            rows = rows[rows % 2 == 0]  # every other step
        stamps = start + rows * np.timedelta64(10, "s")
        header = ",".join(["time", *client.sensors])
        lines = [
            f"{stamp},{','.join(map(repr, values.tolist()))}"
            for stamp, values in zip(stamps, client.values[rows], strict=True)
        ]
        (folder / f"{client.name}.csv").write_text("\n".join([header, *lines]) + "\n")
    return panel.names


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", range(8))
def test_a_folder_and_separate_sites_find_the_same_bits(tmp_path, seed):
    data = tmp_path / "data"
    data.mkdir()
    names = write_tables(data, seed)
    config = formula_config(solver="newton", state_dim=2, period="none")
    panel = Panel.read(data)
    alone = fg.fit(panel, config=config)
    federation = Federation(panel, tmp_path / "run", config)
    for name in names:
        client, time, _ = read_client(name, data / f"{name}.csv", ReadingOptions())
        federation.give(LocalSeries(client, time))
    found = federation.run()
    assert found.grid.num_steps == alone.manifest["data"]["num_steps"]
    assert len(found.grid.stretches) == alone.manifest["data"]["num_segments"]
    assert found.inference.edges.equals(alone.inference.edges)
    assert found.inference.entries.equals(alone.inference.entries)
    np.testing.assert_array_equal(found.training.granger, alone.granger)


def test_the_random_panels_have_what_they_are_for(tmp_path):
    """Segments, rows that one client lacks, and another interval occur among the seeds."""
    panels = []
    for seed in range(8):
        folder = tmp_path / str(seed)
        folder.mkdir()
        write_tables(folder, seed)
        panels.append(Panel.read(folder))
    assert sum(panel.segment_starts.sum() > 1 for panel in panels) >= 2
    assert sum(not all(c.row_observed.all() for c in panel) for panel in panels) >= 6
    steps = {float(np.median(np.diff(panel.time)) / np.timedelta64(1, "s")) for panel in panels}
    assert steps == {10.0, 20.0}
