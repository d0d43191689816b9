"""FLARE as an engine: a different request to every client, all at once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

__all__ = ["FlareEngine", "LostClientError"]

PING_SECONDS = 5.0
LARGEST_MISSED = 3


class LostClientError(RuntimeError):
    """A client's process is gone; the job must end and be submitted again."""


class FlareEngine:
    """Calls `handle` of every client's job object.

    Args:
        proxies: FLARE's client proxies by name.
        context: FLARE's call context, which its threads need.
        is_aborted: tells whether the job is to end.
    """

    def __init__(self, proxies: Mapping[str, Any], context: Any, is_aborted: Any) -> None:
        from nvflare.collab.api.context import set_call_context

        self._proxies, self._is_aborted = proxies, is_aborted
        self._missed = dict.fromkeys(proxies, 0)
        self._pool = ThreadPoolExecutor(
            max(len(proxies), 1), initializer=lambda: set_call_context(context)
        )

    def exchange(
        self, requests: Mapping[str, bytes], timeout: float
    ) -> Iterable[tuple[str, bytes]]:
        """Call all clients in parallel; one that fails is asked whether it is still there.

        Raises:
            LostClientError: a client did not answer several times in a row, not even a ping.
        """
        if self._is_aborted():
            raise LostClientError("the job was aborted")
        calls = {
            self._pool.submit(self._call, name, payload, timeout): name
            for name, payload in requests.items()
        }
        answers = []
        for call in as_completed(calls):
            name, answer = calls[call], call.result()
            if isinstance(answer, bytes):
                self._missed[name] = 0
                answers.append((name, answer))
        return answers

    def _call(self, name: str, payload: bytes, timeout: float) -> bytes | None:
        try:
            return self._proxies[name](timeout=timeout).handle(payload)
        except Exception:
            self._check_alive(name)
            return None

    def _check_alive(self, name: str) -> None:
        while True:
            try:
                self._proxies[name](timeout=PING_SECONDS).ping()
            except Exception:
                self._missed[name] += 1
                if self._missed[name] >= LARGEST_MISSED or self._is_aborted():
                    raise LostClientError(f"client '{name}' does not answer") from None
                time.sleep(1.0)
            else:
                return
