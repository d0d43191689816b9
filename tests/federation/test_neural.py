"""Neural training: the same bits in one process, between parties and after a crash."""

from dataclasses import replace

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.errors import ConfigError
from fedgranger.federation.agreed_options import ClientOptions, FederationOptions
from fedgranger.federation.policy import SitePolicy
from fedgranger.federation.protocol import RunStopped
from fedgranger.report.html import write_run_report
from tests.configs import SMALL_NETWORKS as CONFIG
from tests.federation.loopback import LoopbackEngine
from tests.federation.loopback_run import Federation


@pytest.fixture(scope="module")
def panel():
    panel, _ = fg.simulate(
        2, 102, state_dims=[1, 2], sensor_dims=[3, 4], seed=0, missing_share=0.05
    )
    return panel


@pytest.fixture(scope="module")
def alone(panel):
    return fg.fit(panel, config=CONFIG)


@pytest.fixture(scope="module")
def parties(panel, tmp_path_factory):
    federation = Federation(panel, tmp_path_factory.mktemp("parties"), CONFIG)
    return federation, federation.run()


def same(found, alone):
    np.testing.assert_array_equal(found.training.granger, alone.granger)
    for one, other in zip(found.training.jacobian, alone.jacobian, strict=True):
        np.testing.assert_array_equal(one, other)


def test_parties_find_the_bits_that_one_process_finds(parties, alone):
    federation, found = parties
    same(found, alone)
    assert found.training.rounds == 3 * 3 - 1
    for name, party in federation.parties.items():
        memory = party._followed.rounds[found.training.rounds]
        size = len(alone.augmentations[name])
        np.testing.assert_array_equal(memory.augmentation[:size], alone.augmentations[name])


@pytest.mark.parametrize("transition", ["network", "gp"])
@pytest.mark.slow  # fits a transition at every client: half a minute each
def test_clients_with_a_transition_of_their_own(panel, tmp_path, transition):
    """The extended Kalman filter's states, the same bits between parties."""
    config = replace(CONFIG, transition=transition, network_passes=1)
    found = Federation(panel, tmp_path, config).run()
    same(found, fg.fit(panel, config=config))
    linear = fg.fit(panel, config=replace(config, transition="linear"))
    assert np.abs(found.training.granger - linear.granger).max() > 1e-6


class Crashing(LoopbackEngine):
    """The server's process ends in the middle of an exchange."""

    def __init__(self, handlers, calls):
        super().__init__(handlers)
        self._left = calls

    def exchange(self, requests, timeout):
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return super().exchange(requests, timeout)


@pytest.mark.parametrize("calls", [6, 11])
def test_a_restart_from_the_disks_ends_with_the_same_bits(panel, alone, tmp_path, calls):
    """Crashes in a round that learns and in one that reads."""
    from fedgranger.federation.driving import drive

    first = Federation(panel, tmp_path, CONFIG)
    with pytest.raises(KeyboardInterrupt):
        drive(first.coordinator(), Crashing(first.handlers(), calls))
    second = Federation(panel, tmp_path, CONFIG)
    found = second.run(second.coordinator("another"))
    assert any("round" in line and "starting" not in line for line in second.log)
    same(found, alone)


def test_a_site_that_allows_no_rounds_refuses(panel, tmp_path):
    policy = SitePolicy(smallest_sensors_per_state=1)
    with pytest.raises(RunStopped, match="allows no rounds of FedGC"):
        Federation(panel, tmp_path, CONFIG, policy=policy).run()


def test_a_client_is_told_of_its_network_only_where_it_has_one():
    told = FederationOptions(CONFIG).for_client("client1").to_text()
    assert '"client_hidden_dim": 3' in told
    assert "server_hidden_dim" not in told
    assert ClientOptions.from_text(told).config.sequence_steps == 8
    other = FederationOptions(fg.RunConfig(solver="newton")).for_client("client1").to_text()
    assert "sequence_steps" not in other


def test_run_folder_keeps_the_blocks_over_time(alone, tmp_path):
    alone.save(tmp_path)
    again = fg.Result.load(tmp_path)
    for one, other in zip(again.jacobian, alone.jacobian, strict=True):
        np.testing.assert_array_equal(one, other)
    mean = alone.jacobian.mean
    np.testing.assert_array_equal(alone.block("client2", "client1", "fedgc"), mean[1:, :1])
    write_run_report(tmp_path / "report.html", alone)
    assert "networks learned for 2 passes" in (tmp_path / "report.html").read_text("utf-8")
    replace(alone, jacobian=None).save(tmp_path, overwrite=True)
    assert fg.Result.load(tmp_path).jacobian is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"privacy": "to-server"}, "is not accounted for"),
        ({"privacy": "to-clients"}, "is not accounted for"),
        ({"uncertainty": "joint"}, "follow the linear learner"),
        ({"test": "asymptotic"}, "follow the linear learner"),
    ],
)
def test_what_does_not_hold_for_networks_is_refused(options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        fg.RunConfig(solver="neural", **options)
