"""What another user of the machine sends to a party's loopback port."""

from dataclasses import replace

from tests.federation.attacks import from_client
from tests.federation.attacks.attempts import carry_out, keep
from tests.federation.attacks.orders import Attacker
from tests.federation.flare import wait_for

MODULE = "tests.federation.attacks.local_user"
BEAT_SECONDS = 12.0


def attack_client(federation, victim, watchers):
    """Try every port of a client's parent, as a job of it and as the server; the records.

    A port on which a stranger gets no connection at all is refused by the operating system or by
    TLS: there is nothing that a log could name.
    """
    _check_stranger(federation, victim)
    records = []
    for port in sorted(victim.ports()):
        for name in (f"{victim.name}.stranger", "server"):
            words = [MODULE, str(port), victim.name, name]
            with Attacker(federation, words) as stranger:
                records += _attack(stranger, victim, watchers, f"as '{name}'")
    return records


def attack_server(federation, server, client):
    """Try the server's ports as one of its clients: whether the server then talks to a stranger."""
    records = []
    for port in sorted(server.ports()):
        with Attacker(federation, [MODULE, str(port), "server", client]) as stranger:
            facts = stranger.order("stranger", "facts")
            federation.command("check", "--wait-seconds", "5")  # asks every client something
            heard = [one for one in stranger.order("stranger", "facts")["heard"] if one]
            outcome = "succeeded" if heard else "refused"
            evidence = str(heard[:2]) if facts["peers"] else "no connection"
            records.append(_record(f"receive what is meant for {client}", outcome, evidence))
    return keep(records)


def _record(attack, outcome, evidence):
    return {"attack": attack, "outcome": outcome, "evidence": evidence, "is_flares": False}


def _check_stranger(federation, victim):
    """A stranger who cannot connect to anything proves nothing: an open port must hear it."""
    with from_client.listening() as listener:
        port = listener.getsockname()[1]
        listener.settimeout(60.0)  # it imports FLARE first
        with Attacker(federation, [MODULE, str(port), victim.name, "server"]) as stranger:
            line, _ = listener.accept()
            with line:
                assert line.recv(100), "the stranger does not speak"
            assert stranger.order("stranger", "facts")["uid"] != 0


def _attack(stranger, victim, watchers, who):
    facts = stranger.order("stranger", "facts")
    if not facts["peers"]:
        return keep([_record(f"connect {who}", "refused", "no connection")])
    attacks = [
        *from_client.reading(victim), from_client.deletion("delete a folder", victim)
    ]  # fmt: skip
    attacks = [replace(attack, name=f"{attack.name} {who}") for attack in attacks]
    records = carry_out(stranger, "stranger", attacks, watchers)
    if who == "as 'server'":
        records += _listen(stranger, victim)
    return records


def _listen(stranger, victim):
    """Whether the victim's own messages to the server come here, with what proves who it is."""

    def heard():
        return [one for one in stranger.order("stranger", "facts")["heard"] if one[-1]]

    wait_for(heard, BEAT_SECONDS)
    found = heard()
    outcome = "succeeded" if found else "refused"
    return keep([_record("receive the victim's token", outcome, str(found[:1]))])
