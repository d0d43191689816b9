"""One rule for time: a folder in one process and sites that read their own file find the same bits.

Random panels: clients that begin and end at other times, lack single cells and rows and long
stretches, all of them or one alone, and sample at other intervals; sites that declare their local
model.
"""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.data.panel import Panel
from fedgranger.data.panel_files import read_client
from fedgranger.data.reading_options import ReadingOptions
from fedgranger.data.time_axis import LocalSeries
from tests.configs import formula_config
from tests.federation.gapped_files import write_tables
from tests.federation.loopback_run import Federation

FAST = (0, 2, 5, 7)
"""One of each of the four ways of declaring models; the last two lack single cells."""
# slow: a fit and a federation each
MORE = [pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 3, 4, 6)]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", [*FAST, *MORE])
def test_a_folder_and_separate_sites_find_the_same_bits(tmp_path, seed):
    data = tmp_path / "data"
    data.mkdir()
    models = write_tables(data, seed)
    known = {name: model for name, model in models.items() if seed % 2 or name == "client2"}
    known = {} if seed % 4 == 0 else known
    config = formula_config(solver="newton", state_dim=2, period="none")
    panel = Panel.read(data, missing="mask")
    alone = fg.fit(panel, config=config, models=known)
    federation = Federation(panel, tmp_path / "run", config)
    for name in models:
        client, time, _ = read_client(name, data / f"{name}.csv", ReadingOptions(missing="mask"))
        federation.give(LocalSeries(client, time, model=known.get(name)))
    found = federation.run()
    assert found.grid.num_steps == alone.manifest["data"]["num_steps"]
    assert len(found.grid.stretches) == alone.manifest["data"]["num_segments"]
    assert found.inference.edges.equals(alone.inference.edges)
    assert found.inference.entries.equals(alone.inference.entries)
    assert found.inference.facts["warnings"] == alone.inference.facts["warnings"]
    assert found.source.declared == tuple(sorted(known))
    np.testing.assert_array_equal(found.training.granger, alone.granger)


def test_the_random_panels_have_what_they_are_for(tmp_path):
    """Segments, rows that one client lacks, and another interval occur among the seeds."""
    panels = []
    for seed in range(8):
        folder = tmp_path / str(seed)
        folder.mkdir()
        write_tables(folder, seed)
        panels.append(Panel.read(folder, missing="mask"))
    partial = [sum((c.observed.any(axis=1) & ~c.row_observed).sum() for c in p) for p in panels]
    assert not any(partial[:4])
    assert min(partial[4:]) > 200
    assert sum(panel.segment_starts.sum() > 1 for panel in panels) >= 2
    assert sum(not all(c.row_observed.all() for c in panel) for panel in panels) >= 6
    steps = {float(np.median(np.diff(panel.time)) / np.timedelta64(1, "s")) for panel in panels}
    assert steps == {10.0, 20.0}
