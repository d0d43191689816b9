"""Neural training on FLARE: the bits of one process, in its simulator and as real processes."""

import dataclasses
import subprocess

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.federation.party import Party
from fedgranger.federation.preparation import prepare_party
from fedgranger.federation.questions import Site
from fedgranger.federation.store import DiskFiles, Store
from tests.configs import SMALL_NETWORKS
from tests.federation.flare import FEDGRANGER, RealFederation
from tests.federation.loopback_run import OPEN, Federation

pytest.importorskip("nvflare", reason="needs the extra 'flare'")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # a short record

SECRETS = {"client1": b"1" * 32, "client2": b"2" * 32}
"""A site draws the first weights of its network from its secret; these sites have known ones."""
ROUNDS = "rounds = 1000\nquestions = 9\nsmallest_sensors_per_state = 1\n"
CONFIG = dataclasses.replace(SMALL_NETWORKS, test="debiased", lags=1)
WORDS = [
    *(f"--{name.replace('_', '-')}={getattr(CONFIG, name)}" for name in (
        "solver", "test", "lags", "network_passes", "batch_steps", "sequence_steps",
        "client_hidden_dim", "server_hidden_dim",
    )),
    "--state-dim=client1=1,client2=2",
]  # fmt: skip


class KnownSites(Federation):
    """Parties in one process with the secrets of the real ones."""

    def give(self, series):
        name = series.client.name
        store = Store(DiskFiles(self.folder / name))
        site = Site(store, OPEN, SECRETS[name], lambda: self.now, self.log.append)
        self.parties[name] = Party(series, site, prepare_party, audit=lambda *_, **__: None)


@pytest.fixture(scope="module")
def panel():
    return fg.simulate(2, 302, state_dims=[1, 2], sensor_dims=[6, 8], seed=0)[0]


def same(found, granger, jacobian):
    np.testing.assert_array_equal(found.granger, granger)
    for one, other in zip(found.jacobian, jacobian, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow  # half a minute of starting processes
def test_the_simulator_finds_the_bits_of_one_process(panel, tmp_path):
    panel.write(tmp_path / "data")
    command = ["fit", str(tmp_path / "data"), "--out", str(tmp_path / "run"), "--runtime", "flare"]
    done = subprocess.run(
        [*FEDGRANGER, *command, *WORDS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    alone = fg.fit(fg.Panel.read(tmp_path / "data"), CONFIG)
    same(fg.Result.load(tmp_path / "run"), alone.granger, alone.jacobian)


@pytest.mark.slow  # half a minute of starting processes
def test_real_processes_find_the_bits_of_one_process(panel, tmp_path):
    """With the sites' own first weights; with others the bits are others."""
    federation = RealFederation(panel, tmp_path / "real", policy=ROUNDS)
    for name, secret in SECRETS.items():
        state = federation.kits[name] / "fedgranger-state"
        state.mkdir(exist_ok=True)
        (state / "secret").write_bytes(secret)
    with federation:
        done = federation.command("run", "--out", str(tmp_path / "run"), *WORDS)
    assert done.returncode == 0, done.stderr
    found = fg.Result.load(tmp_path / "run")
    read = fg.Panel.read(tmp_path / "real" / "data")
    loopback = KnownSites(read, tmp_path / "loopback", CONFIG).run()
    same(found, loopback.training.granger, loopback.training.jacobian)
    assert found.manifest["training"]["rounds"] == loopback.training.rounds
    seeded = fg.fit(read, CONFIG)
    difference = np.abs(found.granger - seeded.granger).max()
    assert difference > 0
    for name in ("transition", "std_error", "p_value"):  # the tests do not know the networks
        np.testing.assert_array_equal(
            getattr(found.inference, name), getattr(seeded.inference, name)
        )
