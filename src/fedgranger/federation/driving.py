"""The loop that drives a server's side over an engine, to its end or for its first question.

An engine is anything that carries bytes to a client and brings bytes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from fedgranger.federation.coordinator import Coordinator

PAUSE_SECONDS = 2.0
"""Before a client is asked again that gave no answer: its log and the server's would fill up."""


@runtime_checkable
class Engine(Protocol):
    """Carries requests to clients and brings back whatever answers arrive."""

    def exchange(
        self, requests: Mapping[str, bytes], timeout: float
    ) -> Iterable[tuple[str, bytes]]:
        """Send every request to its client and return the answers of the next `timeout` seconds.

        Answers may be missing, repeated, of an earlier exchange, or damaged.
        """
        ...


def drive(
    coordinator: Coordinator,
    engine: Engine,
    timeout: float = 30.0,
    pause: Callable[[float], None] = time.sleep,
) -> Any:
    """Run to the end; return what the protocol found.

    Raises:
        RunStopped: the run ends by a rule; its records are kept.
        FedGrangerError: the data or options cannot work.
    """
    while coordinator.found is None:
        phase, before = coordinator.phase, time.perf_counter()
        answers = engine.exchange(coordinator.requests(), timeout)
        coordinator.ledger.took(phase, time.perf_counter() - before)
        for client, payload in answers:
            coordinator.receive(client, payload)
            if coordinator.found is not None:
                break
        coordinator.tick()
        if coordinator.should_pause and coordinator.found is None:
            coordinator.should_pause = False
            pause(PAUSE_SECONDS)
    return coordinator.found


def ask_first(
    coordinator: Coordinator, engine: Engine, tries: int = 3, timeout: float = 30.0
) -> dict[str, dict[str, Any]]:
    """What every client answers to the first request, and no more; nothing is kept of it.

    Returns:
        Values, arrays as lists, `kind` of the answer and the time at which it was `asked` by
        client; of one that is refused kind "wrong" and a `sentence`.
    """
    found: dict[str, dict[str, Any]] = {}
    for _ in range(tries):
        asked = {name: sent for name, sent in coordinator.requests().items() if name not in found}
        if not asked:
            break
        before = coordinator.clock()
        for client, payload in engine.exchange(asked, timeout):
            if client in asked and client not in found:
                facts = coordinator.first_answer(client, payload, asked[client])
                found[client] = {**facts, "asked": before}
    return found
