"""Another user of the machine gets nothing out of a party's loopback ports."""

import os

import pytest

import fedgranger as fg
from tests.federation.flare import RealFederation, wait_for

pytest.importorskip("nvflare", reason="needs the extra 'flare'")

from tests.federation.attacks.attempts import open_doors
from tests.federation.attacks.from_local_user import attack_client, attack_server
from tests.federation.attacks.victim import Victim


@pytest.mark.slow  # real FLARE processes, attacked one by one
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_gets_nothing(tmp_path):
    panel = fg.simulate(2, 301, seed=0)[0]
    with RealFederation(panel, tmp_path) as federation:
        assert wait_for(lambda: federation.command("status").stdout.count("connected") == 2, 90)
        victim, server = Victim(federation, "client2"), Victim(federation, "server")
        records = attack_client(federation, victim, [victim])
        records += attack_server(federation, server, "client2")
    assert not open_doors(records)
