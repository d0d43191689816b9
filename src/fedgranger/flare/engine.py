"""FLARE as an engine: a different request to every client, all at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any

SLOW_SECONDS = 2.0
PING_SECONDS = 5.0
LARGEST_MISSED = 3


class LostClientError(RuntimeError):
    """A client's process is gone; the job must end and be submitted again."""


class FlareEngine:
    """Calls `handle` of every client's job object, in threads that need FLARE's call context."""

    def __init__(
        self, proxies: Mapping[str, Any], context: Any, is_aborted: Callable[[], bool]
    ) -> None:
        from nvflare.collab.api.context import set_call_context

        self._proxies, self._is_aborted = proxies, is_aborted
        self._missed: dict[str, int] = {}
        self._pool = ThreadPoolExecutor(  # a call and a ping for everybody
            2 * max(len(proxies), 1), initializer=lambda: set_call_context(context)
        )

    def exchange(
        self, requests: Mapping[str, bytes], timeout: float
    ) -> Iterable[tuple[str, bytes]]:
        """Call all clients in parallel; one that is slow or fails is asked whether it is there.

        Raises:
            LostClientError: a client missed several pings in a row, or the job was aborted.
        """
        calls = {
            self._pool.submit(self._call, name, payload, timeout): name
            for name, payload in requests.items()
        }
        answers, waiting = [], set(calls)
        while waiting:
            if self._is_aborted():
                raise LostClientError("the job was aborted")
            done, waiting = wait(waiting, SLOW_SECONDS, return_when=FIRST_COMPLETED)
            results = [(calls[call], call.result()) for call in done]
            answers += [(name, answer) for name, answer in results if answer is not None]
            self._missed.update((name, 0) for name, answer in results if answer is not None)
            failed = [name for name, answer in results if answer is None]
            self._check_alive(failed if done else [calls[call] for call in waiting])
        return answers

    def _call(self, name: str, payload: bytes, timeout: float) -> bytes | None:
        try:
            answer = self._proxies[name](timeout=timeout).handle(payload)
        except Exception:
            return None
        return answer if isinstance(answer, bytes) else None

    def _check_alive(self, names: Iterable[str]) -> None:
        pings = {name: self._pool.submit(self._ping, name) for name in names}
        for name, ping in pings.items():
            self._missed[name] = 0 if ping.result() else self._missed.get(name, 0) + 1
            if self._missed[name] >= LARGEST_MISSED:
                raise LostClientError(f"client '{name}' does not answer")

    def _ping(self, name: str) -> bool:
        try:
            self._proxies[name](timeout=PING_SECONDS).ping()
        except Exception:
            time.sleep(1.0)  # a client that cannot be reached fails at once
            return False
        return True
