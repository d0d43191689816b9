"""Small private runs between parties over loopback, for tests."""

import numpy as np

import fedgranger as fg
from fedgranger.client.params import known_models
from fedgranger.data.time_axis import LocalSeries
from fedgranger.federation.codec import decode
from tests.configs import formula_config
from tests.federation.loopback_run import OPEN, Federation

PANEL, TRUTH = fg.simulate(
    3, 300, sensor_dims=5, state_dims=2, edges=[("client1", "client2")], seed=11
)
MODELS = known_models(TRUTH)


def private_config(**options):
    """Noise on the clients' messages, everything covered: declared models, no season."""
    chosen = {"solver": "none", "period": "none", "privacy": "to-server", "epsilon": 100.0}
    return formula_config(**{**chosen, **options})


def federation(folder, config, panel=PANEL, models=MODELS, policy=OPEN, **options):
    """All parties, each with its declared model."""
    found = Federation(panel, folder, config, policy=policy, **options)
    for client in panel:
        found.give(LocalSeries(client, panel.time, model=models.get(client.name)))
    return found


def answers(found):
    """Everything that left the clients: (client, kind, values, arrays), in order."""
    packets = [(name, decode(answer)) for name, _, answer in found.wire]
    return [(name, one.kind, dict(one.values), dict(one.arrays)) for name, one in packets]


def with_event(panel, client, rows, values):
    """The panel with other measurements of one client at some rows."""
    changed = panel[client].values.copy()
    changed[rows] = values
    clients = tuple(
        fg.data.panel.ClientData(c.name, c.sensors, changed, c.observed, c.treatment)
        if c.name == client
        else c
        for c in panel
    )
    return fg.data.panel.Panel(clients, panel.time)


def same_arrays(one, other):
    return one.keys() == other.keys() and all(np.array_equal(one[k], other[k]) for k in one)
