"""Calls of another client's job object, through FLARE's own proxies."""

import secrets

from tests.federation.attacks.attempts import SETTLE_SECONDS, Attack, judge, keep
from tests.federation.flare import wait_for

TRACES = ("handle", "ping", "collab", "call", "sm__STREAM")


def call_peer(altered, victim, watchers, job):
    """Repeat every request to another client, then write false edges there; a record for each."""
    altered.order("job", "lend", altered.order("client", "tokens"))
    before = {one.name: len(one.refusals()) for one in watchers}

    def lines():
        return [line for one in watchers for line in one.refusals()[before[one.name] :]]

    records = []
    for kind in altered.order("job", "facts")["kinds"]:
        answer = altered.order("job", "call", victim.name, kind)
        records.append(_record(f"call handle: {kind}", answer, _is_served, lines))
    answer = altered.order("job", "ping", victim.name)
    records.append(_record("call ping", answer, lambda a: a.get("answer", ""), lines))
    for origin, token in ((None, "own"), (f"server.{job}", "relay"), (f"server.{job}", "old")):
        who = "own name" if origin is None else f"name of the server's job, token {token}"
        word = f"word{secrets.token_hex(4)}"
        false_edges = f'[["{word}", "b", 0.5, 0.5]]'
        answer = altered.order(
            "job", "call", victim.name, "finish", origin=origin, token=token, edges=false_edges
        )
        proof = _is_written(victim, word)
        records.append(_record(f"write false edges in the {who}", answer, proof, lines))
    return keep(records)


def _record(name, answer, proof, lines):
    attack = Attack(name, "", "collab", "call", None, proof, traces=TRACES)
    answer = {"code": None if "timed out" in answer.get("error", "") else "", **answer}
    wait_for(
        lambda: judge(attack, answer, lines())["outcome"] in ("succeeded", "refused"),
        SETTLE_SECONDS if proof(answer) == "" else 0.1,
    )
    return judge(attack, answer, lines())


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
