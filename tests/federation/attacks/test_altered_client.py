"""An altered client behind an honest server gets nothing, ends nothing and changes no bit."""

import pytest

import fedgranger as fg
from tests.federation.flare import RealFederation

pytest.importorskip("nvflare", reason="needs the extra 'flare'")

from tests.federation.attacks import from_job
from tests.federation.attacks.attempts import carry_out, open_doors
from tests.federation.attacks.orders import Altered
from tests.federation.attacks.victim import Victim


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """A federation of three with client1 altered, for attacks of which each may end a run."""
    folder = tmp_path_factory.mktemp("scene")
    panel = fg.simulate(3, 301, seed=0)[0]
    with RealFederation(panel, folder) as federation:
        done = federation.command("run", "--out", str(folder / "quiet"))
        assert done.returncode == 0, done.stderr
        victims = [Victim(federation, name) for name in ("client2", "server")]
        with Altered(federation, "client1") as altered:
            yield folder, altered, *victims


@pytest.mark.slow  # real FLARE processes; a run for each message
@pytest.mark.parametrize("number", range(6))
def test_no_single_message_ends_a_run(scene, number):
    folder, altered, victim, server = scene
    out = folder / f"run{number}"
    with altered.held_run(out) as job:
        attack = list(from_job.ending(victim, server, job))[number]
        records = carry_out(altered, "job", [attack], [victim, server])
    assert not open_doors(records)
    assert (out / "edges.csv").read_bytes() == (folder / "quiet" / "edges.csv").read_bytes()
