"""Over real FLARE processes: keys made at the sites, a renewed certificate, a revoked one."""

import json
import re
import subprocess

import pytest

import fedgranger as fg
from tests.federation.flare import ENVIRONMENT, FEDGRANGER, RealFederation, wait_for

pytest.importorskip("nvflare", reason="needs the extra 'flare'")

from fedgranger.flare.kits import prepare_kits


def federation(*words):
    done = subprocess.run(
        [*FEDGRANGER, "federation", *map(str, words)],
        env=ENVIRONMENT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused_at(kit):
    """Who was refused for a revoked certificate, by the audit log of a party."""
    path = kit / "fedgranger-state" / "audit.jsonl"
    lines = path.read_text().splitlines() if path.is_file() else []
    entries = [json.loads(line) for line in lines]
    return [entry["sender"] for entry in entries if entry["event"] == "revoked"]


class SiteFederation(RealFederation):
    """Every party asks for its certificate itself."""

    def make_kits(self, folder):
        kits = prepare_kits(folder, self.host, list(self.names), self.port)
        for kit in kits.values():
            federation("request", kit)
            federation("sign", folder / "authority", kit / "request.csr")
            federation("accept", kit, kit / "request.crt")
        return kits

    def is_seen(self, name, state):
        return bool(re.search(rf"{name}\W+{state}", self.command("status").stdout))

    def restart(self, party):
        self.processes[party].terminate()
        self.processes[party].wait(20)
        self.start(party)


@pytest.mark.slow  # real FLARE processes; two runs and a restart
def test_a_federation_of_keys_made_at_the_sites_runs_and_one_client_renews(tmp_path):
    panel = fg.simulate(2, 301, seed=0)[0]
    with SiteFederation(panel, tmp_path) as parties:
        kits, authority = parties.kits, tmp_path / "kits" / "authority"
        startup = sorted((kits["client1"] / "startup").iterdir())
        done = parties.command("run", "--out", str(tmp_path / "run"))
        assert done.returncode == 0, done.stderr

        federation("renew", kits["client1"])
        federation("sign", authority, kits["client1"] / "request.csr", "--out", tmp_path / "1.crt")
        federation("accept", kits["client1"], tmp_path / "1.crt")
        parties.restart("client1")
        done = parties.command("run", "--out", str(tmp_path / "again"))
        assert done.returncode == 0, done.stderr
        same = [(tmp_path / name / "edges.csv").read_bytes() for name in ("run", "again")]
        assert same[0] == same[1]
        assert sorted((kits["client1"] / "startup").iterdir()) == startup  # it can be read-only


@pytest.mark.slow  # real FLARE processes; waits until they notice
def test_a_revoked_client_is_cut_off_while_it_runs_and_comes_back_with_a_new_certificate(tmp_path):
    panel = fg.simulate(2, 301, seed=0)[0]
    with SiteFederation(panel, tmp_path) as parties:
        kits, authority = parties.kits, tmp_path / "kits" / "authority"
        assert wait_for(lambda: parties.is_seen("client2", "connected"), 120)
        federation("revoke", authority, "client2")
        federation("accept", kits["server"], authority / "revoked.crl")
        assert wait_for(lambda: "client2" in refused_at(kits["server"]), 30)
        assert wait_for(lambda: parties.is_seen("client2", "away"), 120)
        parties.restart("client2")
        done = parties.command("check", "--wait-seconds", "20")
        assert done.returncode == 2
        assert "'client2' not connected" in done.stderr
        assert parties.is_seen("client1", "connected")
        assert set(refused_at(kits["server"])) == {"client2"}

        federation("renew", kits["client2"])
        federation("sign", authority, kits["client2"] / "request.csr", "--out", tmp_path / "2.crt")
        federation("accept", kits["client2"], tmp_path / "2.crt")
        parties.restart("client2")
        assert wait_for(lambda: parties.is_seen("client2", "connected"), 120)
