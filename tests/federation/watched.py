"""Sites that have made a run and watch their new data, for tests."""

from dataclasses import replace

import pandas as pd

from fedgranger.data.time_axis import LocalSeries
from fedgranger.federation.outcome import to_result
from fedgranger.rca import OnlineAnalysis
from tests.anomalies import made_panel
from tests.configs import formula_config
from tests.federation.loopback_run import OPEN, Federation

CONFIG = formula_config(state_dim=1, solver="none", period="none")
TRAINING = made_panel(600)
NEW = made_panel(300, seed=4, shocked="b", at=160, length=40)


def trained(folder, policy=OPEN, wrap=lambda name, handle: handle, **options):
    """Parties after a run, and its result as the server has it."""
    federation = Federation(TRAINING, folder, CONFIG, wrap, policy, **options)
    found = federation.run()
    return federation, to_result(federation.server, found, "loopback", 0.0, ())


def give(federation, panel):
    for client in panel:
        federation.news[client.name] = LocalSeries(client, panel.time)


def in_process(result, panel, steps=50, **options):
    """The alarms that `fedgranger rca` finds, without the sensors that no server knows."""
    analysis, found = OnlineAnalysis(result, **options), {}
    for first in range(0, panel.num_steps, steps):
        for alarm in analysis.feed(panel.slice(first, min(first + steps, panel.num_steps))):
            found[alarm.step] = alarm._replace(ranking=_without_sensors(alarm.ranking))
    return tuple(found.values())


def _without_sensors(ranking):
    words = [text for text in ranking.evidence if not text.startswith("Its most surprising")]
    assert len(words) == len(ranking.evidence) - ranking.is_defined
    return replace(ranking, table=ranking.table.drop(columns="sensors"), evidence=tuple(words))


def assert_same(found, wanted):
    assert [alarm.step for alarm in found] == [alarm.step for alarm in wanted]
    for one, other in zip(found, wanted, strict=True):
        pd.testing.assert_frame_equal(one.ranking.table, other.ranking.table, check_exact=True)
        assert one.ranking.to_mapping() == other.ranking.to_mapping()
