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
        named: channel and topic under which a log must name it; the ones above if empty.
        reason: words that the log's reason must hold.
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
    named: tuple[str, str] = ()
    reason: str = ""
    options: dict = field(default_factory=dict)
    how: str = "ask"
    is_flares: bool = False

    @property
    def message(self):
        """What the altered party is told to send."""
        return self.how, (self.target, self.channel, self.topic, self.payload), self.options


def carry_out(attacker, role, attacks, watchers):
    """Have an attacker send all of them at once; a record per attack.

    Args:
        attacker: the altered party, or the stranger.
        role: which of its processes sends.
        attacks: the attacks.
        watchers: parties whose logs may name a refusal.
    """
    me = attacker.order(role, "name")
    answers = attacker.order(role, "send_all", [attack.message for attack in attacks])
    pairs = list(zip(attacks, answers, strict=True))
    return keep(settle(lambda: [judge(*pair, me, watchers) for pair in pairs]))


def settle(judge_all):
    """Judge until everything is clear, or for a few seconds: effects and logs take their time."""
    until = time.monotonic() + SETTLE_SECONDS
    while True:
        records = judge_all()
        is_clear = all(record["outcome"] in ("succeeded", "refused") for record in records)
        if is_clear or time.monotonic() > until:
            return records
        time.sleep(0.3)


def judge(attack, answer, me, watchers):
    """Tell what came of an attack.

    Args:
        attack: the attack.
        answer: what the attacker got.
        me: the attacker's name in the network.
        watchers: parties whose logs may name it: its sender (as claimed), channel and topic.
    """
    evidence = attack.proof(answer)
    channel, topic = attack.named or (attack.channel, attack.topic)
    wanted = {"sender": attack.options.get("origin", me), "channel": channel, "topic": topic}
    lines = [
        line
        for one in watchers
        for line in one.refusals()
        if wanted.items() <= line.items() and attack.reason in line["reason"]
    ]
    if evidence:
        outcome = "succeeded"
    elif lines:
        outcome, evidence = "refused", lines[0]
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
