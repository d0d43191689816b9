"""What a run in FLARE's simulator keeps beside what its server found; without FLARE's processes."""

import contextlib
from dataclasses import replace

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.data.panel import Panel
from fedgranger.data.treatment import NO_TREATMENT
from fedgranger.federation.agreed_options import FederationOptions
from fedgranger.federation.store import DiskFiles, Store
from fedgranger.federation.watch_records import keep_normal
from fedgranger.flare import simulation
from fedgranger.flare.settings import simulated_records
from fedgranger.manifest_types import ClientFacts, DataFacts, SeasonFacts
from fedgranger.rca.new_data import require_normal
from tests.anomalies import made_panel
from tests.configs import formula_config

CONFIG = formula_config(state_dim=1)


@pytest.fixture
def data(tmp_path):
    """Files of which one has a counter and another lacks rows."""
    panel, folder = made_panel(500), tmp_path / "data"
    panel.write(folder)
    rising = np.cumsum(np.random.default_rng(1).poisson(3.0, 500)).astype(float)
    with_counter = replace(
        panel["b"],
        sensors=(*panel["b"].sensors, "meter"),
        values=np.column_stack([panel["b"].values, rising]),
        observed=np.ones((500, 5), dtype=np.bool_),
    )
    clients = [with_counter if client.name == "b" else client for client in panel]
    Panel(tuple(clients), panel.time).write(folder)
    text = (folder / "a.csv").read_text().splitlines()
    (folder / "a.csv").write_text("\n".join(text[:-6]) + "\n")
    return folder


def kept_apart(folder, alone, monkeypatch):
    """Let the simulator end with what a server would know of a run, and what its sites keep."""
    record = alone.manifest
    clients = {
        name: ClientFacts(state_dim=one.state_dim, season=SeasonFacts(periods=one.season.periods))
        for name, one in record.data.clients.items()
    }
    data = DataFacts(
        hash="x", num_steps=1, num_segments=1, notes=["said by the server"], clients=clients
    )
    server = replace(alone, monitors={}, manifest=record | {"data": data})
    server.save(folder / "found")
    for name, own in require_normal(alone)[0].items():
        own = own._replace(monitor=replace(own.monitor, treatment=NO_TREATMENT))
        store = Store(DiskFiles(simulated_records(folder, name)))
        keep_normal(store, simulation.RUN, own)

    @contextlib.contextmanager
    def simulated(*_, **__):
        yield folder, folder / "found"

    monkeypatch.setattr(simulation, "_simulated", simulated)


def test_the_local_simulation_keeps_what_only_sites_know(data, tmp_path, monkeypatch):
    """Sites of a deployment say it in their own logs; here one user has all data anyway."""
    panel = fg.Panel.read(data)
    alone = fg.fit(panel, CONFIG)
    kept_apart(tmp_path, alone, monkeypatch)
    found = simulation.fit_simulated(panel, FederationOptions(CONFIG))
    expected, kept = alone.manifest.data, found.manifest.data
    assert any("not on the common time axis" in note for note in expected.notes)
    assert kept.notes == [*expected.notes, "said by the server"]
    assert kept | {"notes": [], "num_steps": 0} == expected | {"notes": [], "num_steps": 0}
    assert found.manifest.inference.innovation_sensor == alone.manifest.inference.innovation_sensor
    assert alone.monitors["b"].treatment.differenced == ("meter",)
    for name, monitor in alone.monitors.items():
        assert found.monitors[name].treatment == monitor.treatment
