"""A lying server gets no file, no code and no folder of a client."""

import pytest

import fedgranger as fg
from tests.federation.flare import RealFederation, wait_for

pytest.importorskip("nvflare", reason="needs the extra 'flare'")

from tests.federation.attacks import from_client, from_server
from tests.federation.attacks.attempts import carry_out, open_doors
from tests.federation.attacks.orders import Altered
from tests.federation.attacks.victim import Victim


@pytest.mark.slow  # real FLARE processes; two runs and every attack
def test_an_altered_server_gets_nothing_from_its_clients(tmp_path):
    panel = fg.simulate(2, 301, seed=0)[0]
    with RealFederation(panel, tmp_path) as federation:
        done = federation.command("run", "--out", str(tmp_path / "quiet"))
        assert done.returncode == 0, done.stderr
        victim = Victim(federation, "client2")
        signed = next(victim.kit.glob("*/app*/.__nvfl_sig.json")).parent
        with Altered(federation, "server") as altered:
            assert wait_for(lambda: "client2" in altered.order("server", "peers"), 60)
            attacks = from_server.attacks_on(victim, signed)
            records = carry_out(altered, "server", attacks, [victim])
            records += from_server.race(altered, victim, signed, federation.kits["server"])
            attacks = [from_server.as_server(attack) for attack in from_client.ending(victim)]
            records += carry_out(altered, "server", attacks, [victim])
        federation.start("server")
        done = federation.command("run", "--out", str(tmp_path / "after"))
        assert done.returncode == 0, done.stderr
    assert not open_doors(records)
    edges = [(tmp_path / run / "edges.csv").read_bytes() for run in ("quiet", "after")]
    assert edges[0] == edges[1]
