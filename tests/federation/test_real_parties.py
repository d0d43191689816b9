"""Provisioned FLARE processes: the in-process result, also with an altered client among them.

One federation serves all tests of so many clients, in this order.
"""

import pytest

import fedgranger as fg
from fedgranger.federation.audit_log import read_lines, verify
from tests.federation.flare import RealFederation, same_as_alone

pytest.importorskip("nvflare", reason="needs the extra 'flare'")

from tests.federation.attacks import from_client, from_job
from tests.federation.attacks.attempts import carry_out, open_doors
from tests.federation.attacks.calls import call_peer
from tests.federation.attacks.orders import Altered
from tests.federation.attacks.victim import Victim


@pytest.fixture(scope="module")
def panel(request):
    """Of so many clients."""
    return fg.simulate(request.param, 301, seed=0)[0]


@pytest.fixture(scope="module")
def federation(panel, tmp_path_factory):
    with RealFederation(panel, tmp_path_factory.mktemp("federation")) as found:
        yield found


@pytest.fixture(scope="module")
def quiet(federation):
    """The folder and the output of a run without an attack."""
    out = federation.folder / "quiet"
    done = federation.command("run", "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out, done.stdout


# every client more is two processes of four seconds each
@pytest.mark.parametrize(
    "panel",
    # slow: a third real FLARE client
    [2, pytest.param(3, marks=pytest.mark.slow)],
    indirect=True,
    scope="module",
)
def test_clients_as_processes_find_what_one_process_finds(federation, panel, quiet):
    out, said = quiet
    assert "tested pairs" in said
    assert "what crossed the wire" in said
    assert "FedGC was not run" in said
    same_as_alone(panel, out)
    for name in panel.names:
        state = federation.kits[name] / "fedgranger-state"
        assert (
            (state / "edges.csv").read_text().startswith("cause,effect,p_value,strength,is_edge\n")
        )
        lines = [line for line in read_lines(state / "audit.jsonl") if line["event"] == "answered"]
        *before, last = [line["request"] for line in lines if line["request"] != "translate"]
        assert (before[-4:], last) == (["offer", "begin", "join", "upload"], "finish")
        assert not any(line.get("sensors") for line in lines), "policies share none by default"
        assert verify(state / "audit.jsonl") >= 5
        raw = (federation.folder / "data" / f"{name}.csv").read_text().splitlines()[1].split(",")[1]
        server = federation.kits["server"]
        texts = [
            p.read_bytes() for p in server.rglob("*") if p.is_file() and p.stat().st_size < 1e7
        ]
        assert not any(raw.encode() in text for text in texts)
        assert not any(str(federation.folder / "data").encode() in text for text in texts)


@pytest.mark.parametrize("panel", [3], indirect=True, scope="module")
@pytest.mark.slow  # 20 s of starting processes; test_policy.py refuses the same between parties
def test_rounds_are_refused_by_processes_too(federation):
    done = federation.command("run", "--out", str(federation.folder / "r"), "--solver", "newton")
    assert done.returncode == 2
    assert "after about d/p rounds it holds every sensor" in done.stderr
    assert "its policy allows no rounds of FedGC" in " ".join(done.stderr.split())


@pytest.mark.parametrize("panel", [3], indirect=True, scope="module")
@pytest.mark.slow  # a minute of computing, like the other attacks on real processes
def test_an_altered_client_gets_nothing_and_changes_no_bit(federation, quiet):
    out = federation.folder / "attacked"
    victim, third, server = (Victim(federation, n) for n in ("client2", "client3", "server"))
    watchers = [victim, third, server]
    with Altered(federation, "client1") as altered, from_client.listening() as listener:
        for kind in ("relay", "regular"):
            altered.order("client", "register", kind)
        attacks = [
            *from_client.reading(victim), *from_client.asking(victim),
            *from_client.deleting(victim), *from_client.connecting(victim, listener),
            *from_client.ending(third),
        ]  # fmt: skip
        records = carry_out(altered, "client", attacks, watchers)
        with altered.held_run(out) as job:
            records += call_peer(altered, victim, watchers, job)
            for role in ("client", "job"):
                attacks = from_job.asking(victim, job)
                records += carry_out(altered, role, list(attacks), watchers)
            *attacks, crash = from_job.ending(victim, server, job)
            records += carry_out(altered, "job", attacks, watchers)
            records += carry_out(altered, "job", [crash], watchers)
    assert not open_doors(records)
    edges = [(run / "edges.csv").read_bytes() for run in (quiet[0], out)]
    assert edges[0] == edges[1]
