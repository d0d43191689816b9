"""Calls of another client's job object, through FLARE's own proxies."""

import secrets

from tests.federation.attacks.attempts import Attack, judge, keep, settle


def call_peer(altered, victim, watchers, job):
    """Repeat every request to another client, then write false edges there; a record for each."""
    altered.order("job", "lend", altered.order("client", "tokens"))
    me = altered.order("job", "name")

    def try_it(name, proof, *order, **options):
        answer = {"code": "", **altered.order("job", *order, **options)}
        attack = Attack(name, "", "collab", "call", None, proof, options=options)
        return settle(lambda: [judge(attack, answer, me, watchers)])

    records = []
    for kind in altered.order("job", "facts")["kinds"]:
        records += try_it(f"call handle: {kind}", _is_served, "call", victim.name, kind)
    records += try_it("call ping", lambda answer: answer.get("answer", ""), "ping", victim.name)
    for who, options in (
        ("its own name", {}),
        ("the name of the server's job, token relay", {"origin": f"server.{job}", "token": "relay"}),
        ("the name of the server's job, token old", {"origin": f"server.{job}", "token": "old"}),
    ):
        word = f"word{secrets.token_hex(4)}"
        proof, edges = _is_written(victim, word), f'[["{word}", "b", 0.5, 0.5]]'
        records += try_it(
            f"write false edges in {who}", proof, "call", victim.name, "finish", edges=edges, **options
        )
    return keep(records)


def _is_served(answer):
    if answer.get("kind", "refusal") == "refusal":
        return ""
    return f"{answer['kind']}: {answer['arrays'] or answer['values']}"


def _is_written(victim, word):
    def proof(_):
        path = victim.kit / "fedgranger-state" / "edges.csv"
        is_there = path.exists() and word in path.read_text("utf-8")
        return f"{path.name} holds {word}" if is_there else ""

    return proof
