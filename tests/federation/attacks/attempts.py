"""One attack and what came of it.

`succeeded` needs a fact that only the attack can produce; `refused` needs a line in the log of the
party that stopped it. An error or silence is neither: the attack may have been built wrong.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

SETTLE_SECONDS = 6.0
TABLE = "FEDGRANGER_ATTACKS_TABLE"
"""Environment variable: a file that gets a JSON line per attempt."""


@dataclass(frozen=True)
class Attack:
    """A message that should not be obeyed.

    Attributes:
        name: what the attacker wants.
        target: the cell it is sent to.
        channel: FLARE's channel.
        topic: FLARE's topic, as the header says.
        payload: the message.
        proof: evidence of success given the answer, or an empty text.
        traces: channels and topics under which a log may name it; the ones above if empty.
        options: forged sender, token, headers.
        how: `ask`, or `stream`.
        is_flares: FLARE 2.9 itself stops it, without a line in our logs.
    """

    name: str
    target: str
    channel: str
    topic: str
    payload: object
    proof: Callable[[dict], str]
    traces: tuple[str, ...] = ()
    options: dict = field(default_factory=dict)
    how: str = "ask"
    is_flares: bool = False

    @property
    def message(self):
        """What the altered party is told to send."""
        return self.how, (self.target, self.channel, self.topic, self.payload), self.options


def carry_out(altered, role, attacks, watchers):
    """Have an altered party send all of them at once; a record per attack.

    Args:
        altered: the altered party.
        role: which of its processes sends.
        attacks: the attacks.
        watchers: parties whose logs may name a refusal.
    """
    before = {one.name: len(one.refusals()) for one in watchers}
    answers = altered.order(role, "send_all", [attack.message for attack in attacks])
    until, records = time.monotonic() + SETTLE_SECONDS, []
    while True:
        lines = [
            {**line, "at": one.name} for one in watchers for line in one.refusals()[before[one.name] :]
        ]
        records = [judge(attack, answer, lines) for attack, answer in zip(attacks, answers, strict=True)]
        is_settled = all(record["outcome"] in ("succeeded", "refused") for record in records)
        if is_settled or time.monotonic() > until:
            return keep(records)
        time.sleep(0.3)


def judge(attack, answer, lines):
    """Tell what came of an attack."""
    evidence = attack.proof(answer)
    traces = attack.traces or (attack.channel, attack.topic)
    named = [line for line in lines if {line.get("channel"), line.get("topic")} & set(traces)]
    if evidence:
        outcome = "succeeded"
    elif named:
        outcome, evidence = "refused", named[0]
    elif answer.get("code") is None:
        outcome, evidence = "no answer", ""
    else:
        outcome, evidence = "error", {key: str(value)[:300] for key, value in answer.items()}
    return {
        "attack": attack.name, "outcome": outcome, "evidence": evidence,
        "is_flares": attack.is_flares,
    }  # fmt: skip


def keep(records):
    """Also add them to a table, when one is wanted."""
    if TABLE in os.environ:
        with open(os.environ[TABLE], "a", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)
    return records


def open_doors(records):
    """The attacks that were not refused, for an assertion that shows them all."""
    return [
        record
        for record in records
        if record["outcome"] == "succeeded"
        or (record["outcome"] != "refused" and not record["is_flares"])
    ]
