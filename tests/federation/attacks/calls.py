"""Calls of another client's job object, through FLARE's own proxies."""

import secrets

from tests.federation.attacks.attempts import Attack, judge, keep, settle


def call_peer(altered, victim, watchers, job):
    """Repeat every request to another client, then write false edges there; a record for each."""
    altered.order("job", "lend", altered.order("client", "tokens"))
    me, name = altered.order("job", "name"), victim.name

    def try_all(*tries):
        answers = altered.order("job", "call_all", [call for _, _, call in tries])
        pairs = [
            (
                Attack(what, "", "collab", "call", None, proof, options=call[2]),
                {"code": "", **answer},
            )
            for (what, proof, call), answer in zip(tries, answers, strict=True)
        ]
        return settle(lambda: [judge(*pair, me, watchers) for pair in pairs])

    records = try_all(
        ("call ping", lambda answer: answer.get("answer", ""), ("ping", (name,), {})),
        *(
            (f"call handle: {kind}", _is_served, ("call", (name, kind), {}))
            for kind in altered.order("job", "facts")["kinds"]
        ),
    )
    forged = {"origin": f"server.{job}"}
    for who, options in (
        ("its own name", {}),
        ("the name of the server's job, token relay", {**forged, "token": "relay"}),
        ("the name of the server's job, token old", {**forged, "token": "old"}),
    ):
        word = f"word{secrets.token_hex(4)}"
        options["edges"] = f'[["{word}", "b", 0.5, 0.5]]'
        call = ("call", (name, "finish"), options)
        records += try_all((f"write false edges in {who}", _is_written(victim, word), call))
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
