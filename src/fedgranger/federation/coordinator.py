"""The server of a federated run: it keeps asking until every client has answered.

`protocol` states what to ask next; here are lost, late, repeated and wrong answers, clients that
stay away, and crashes. `driving` has the loop over an engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

from fedgranger.errors import UnstableRecursionError
from fedgranger.federation.agreed_options import Plan
from fedgranger.federation.codec import MessageError, Packet, decode, digest, encode
from fedgranger.federation.edge_fields import no_sensors
from fedgranger.federation.exchanges import Answers, Request
from fedgranger.federation.ledger import Ledger
from fedgranger.federation.protocol import RunStopped, server_protocol
from fedgranger.federation.store import Store
from fedgranger.federation.training_rounds import BudgetSpent
from fedgranger.federation.validation import check_answer, check_length, check_sender
from fedgranger.text import shorten

LARGEST_RESTARTS = 1000
NOTICE_SECONDS = 10.0
LONGEST_SENTENCE = 300
"""Of a client that says why it cannot answer."""
Asking = Callable[
    [Plan, Store, Callable[[], float], Callable[[str], None]], Generator[Request, Answers, Any]
]
"""Begins a protocol: a generator that yields what to ask and is resumed with all answers."""


class Coordinator:
    """State machine of the server.

    Attributes:
        plan: the run, without clients that were dropped.
        clock: seconds since 1970.
        ledger: what crossed the wire.
        found: what the protocol found; None until its end.
        dropped: clients that stayed away.
        phase: kind of the present request.
        round_index: its round, or -1.
        should_pause: a client that is asked again gave no answer, so it needs time.
    """

    def __init__(
        self,
        plan: Plan,
        store: Store,
        clock: Callable[[], float] = time.time,
        log: Callable[[str], None] = lambda _: None,
        protocol: Asking = server_protocol,
    ) -> None:
        self.ledger = Ledger()
        self.found: Any = None
        self.dropped: tuple[str, ...] = ()
        self.should_pause = False
        self.plan, self.clock, self._store, self._log = plan, clock, store, log
        self._restarts, self._of = 0, protocol
        self._begin()

    def requests(self) -> dict[str, bytes]:
        """What to send now: the requests that nobody has answered yet."""
        for client, payload in self._open.items():
            self.ledger.count("down", client, self.phase, self.round_index, len(payload))
        return dict(self._open)

    def receive(self, client: str, payload: bytes) -> None:
        """Take in an answer; one that is not wanted changes nothing."""
        try:
            packet = self._read(client, payload)
            if client not in self._open or packet.answers != digest(self._open[client]):
                self.ledger.repeated[client] += 1
                self.should_pause |= client in self._open
                return
            if packet.kind == "refusal":
                self._refused(client, packet)
                return
            self._check(client, packet)
        except MessageError as error:
            self.ledger.refused[client] += 1
            self.should_pause |= client in self._open
            self._log(f"client '{client}': answer refused: {error}")
            return
        self.ledger.count("up", client, self.phase, self.round_index, len(payload))
        self._take(client, packet)

    def first_answer(self, client: str, payload: bytes, asked: bytes) -> dict[str, Any]:
        """What a client says to the first request, as plain values; nothing is kept of it."""
        try:
            packet = self._read(client, payload)
            if packet.kind != "refusal":
                self._check(client, packet)
        except MessageError as error:
            return {"kind": "wrong", "sentence": f"its answer is refused: {error}"}
        if packet.answers != digest(asked):
            return {"kind": "wrong", "sentence": "it answers something that it was not asked"}
        arrays = {name: array.tolist() for name, array in packet.arrays.items()}
        return {**packet.values, **arrays, "kind": packet.kind}

    def _read(self, client: str, payload: bytes) -> Packet:
        """An answer as a packet: nothing longer than it can be is read, nor shown as it came."""
        check_length(self._ask.kind, self._ask.shapes.get(client), payload)
        packet = decode(payload)
        check_sender(packet, self.plan.run, client)
        if packet.kind == "refusal":
            sentence = shorten(packet.values["sentence"], LONGEST_SENTENCE)
            packet = packet._replace(values={**packet.values, "sentence": sentence})
        return packet

    def _check(self, client: str, packet: Packet) -> None:
        ask = self._ask
        check_answer(ask.kind, ask.values[client], ask.shapes.get(client), packet)

    def _take(self, client: str, packet: Packet) -> None:
        """An answer that the protocol waits for; with the last one it goes on."""
        del self._open[client]
        self._answers[client] = packet
        if not self._open:
            self._advance()

    def tick(self) -> None:
        """Look at the clock: say who is awaited, and end the wait when it has lasted too long.

        Raises:
            RunStopped: a client stays away and the run may not go on without it.
        """
        if not self._open:
            return
        waited = self.clock() - self._since
        awaited = ", ".join(
            f"'{name}'"
            + (" (its site has not allowed the run yet)" if name in self._waiting else "")
            for name in sorted(self._open)
        )
        if waited > self.plan.options.wait_seconds:
            self._give_up(awaited, waited)
        elif waited > self._noticed + NOTICE_SECONDS:
            self._noticed = waited
            left = self.plan.options.wait_seconds - waited
            self._log(f"waiting for {awaited} since {waited:.0f} s; {left:.0f} s left")

    def _begin(self) -> None:
        self._protocol = self._of(self.plan, self._store, self.clock, self._log)
        self._send(next(self._protocol))

    def _send(self, ask: Request) -> None:
        self._ask, self._answers = ask, {}
        self.phase, self.round_index = ask.kind, ask.round_index
        self._since, self._noticed = self.clock(), 0.0
        self._waiting: set[str] = set()
        self._open = {
            client: encode(
                Packet(ask.kind, self.plan.run, client, values, ask.arrays.get(client, {}))
            )
            for client, values in ask.values.items()
        }

    def _advance(self) -> None:
        try:
            following = self._protocol.send(self._answers)
        except StopIteration as end:
            self.found = end.value
            return
        self._send(following)

    def _refused(self, client: str, packet: Packet) -> None:
        code, sentence = str(packet.values["code"]), str(packet.values["sentence"])
        self.ledger.refused[client] += 1
        if code == "budget" and self.phase in ("train", "step"):
            self._end_rounds(BudgetSpent(f"client '{client}': {sentence}"))
            return
        if code == "data" and self.phase == "step":  # it was ready: its parameters ran away
            self._end_rounds(
                UnstableRecursionError(
                    f"client '{client}' stopped FedGC's rounds, which diverged or met data that "
                    "changed; its own log says which. Use smaller step sizes or solver='newton'"
                )
            )
            return
        if self.phase == "translate" and code in ("data", "policy", "budget", "invalid"):
            self._log(f"client '{client}' says nothing of its sensors: {sentence}")
            self._take(client, no_sensors(packet, *self._ask.shapes[client]))
            return
        if code in ("data", "policy", "budget"):
            raise RunStopped(f"client '{client}': {sentence}")
        if code == "stale":
            raise RunStopped(
                f"client '{client}' follows a newer start of this run ({sentence[:100]}); this one "
                "ends"
            )
        self.should_pause = True
        if code == "waiting":
            if client not in self._waiting:
                self._log(f"client '{client}' must allow the run first: {sentence}")
            self._waiting.add(client)
            return
        self._log(f"client '{client}' cannot answer: {sentence}")
        if code in ("unavailable", "unknown"):
            self._restart()

    def _end_rounds(self, error: Exception) -> None:
        """Inform the protocol, which goes on with the tests."""
        self._log(str(error))
        self._send(self._protocol.throw(error))

    def _restart(self) -> None:
        """Ask again where everybody stands, and go on from the last common round."""
        self._restarts += 1
        if self._restarts > LARGEST_RESTARTS:
            raise RunStopped("the clients keep losing their records; look at their disks")
        self.plan = replace(self.plan, nonce=f"{self.plan.nonce}+")
        self._begin()

    def _give_up(self, awaited: str, waited: float) -> None:
        if self.plan.options.on_missing == "stop":
            raise RunStopped(
                f"no answer from {awaited} for {waited:.0f} s; the run can be resumed when they "
                "are back"
            )
        remaining = tuple(name for name in self.plan.clients if name not in self._open)
        if len(remaining) < 2:
            raise RunStopped(
                f"no answer from {awaited} for {waited:.0f} s; too few clients are left"
            )
        self._log(f"going on without {awaited}: no answer for {waited:.0f} s")
        self.dropped = (*self.dropped, *sorted(self._open))
        self.plan = replace(self.plan, clients=remaining)
        self._restart()
