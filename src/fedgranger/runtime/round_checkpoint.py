"""Rounds in one process leave what every party must not lose, all in the run's checkpoint."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedgranger.client.learner import ClientMemory
from fedgranger.errors import FedGrangerError
from fedgranger.federation.direct import LocalClient
from fedgranger.federation.round_record import RECORD
from fedgranger.federation.store import NoRecords, Record
from fedgranger.runtime.checkpoint import Checkpoints


class RoundCheckpoint(NoRecords):
    """The server's record of a round, with its clients' memories; other records are not kept.

    Args:
        checkpoints: the run's; clients go on from where it left them.
        clients: all of them.
    """

    def __init__(self, checkpoints: Checkpoints, clients: Mapping[str, LocalClient]) -> None:
        self._checkpoints, self._clients = checkpoints, clients
        self._latest: Record | None = None
        self._written = time.monotonic()
        if checkpoints.rounds is not None:
            values, arrays = checkpoints.rounds
            for name, client in clients.items():
                parts = (arrays[_place(name, field)] for field in ClientMemory._fields)
                client.restore(ClientMemory(*parts), int(values["round"]))

    def save(self, name: str, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        """Remember a round, and write it down now and then."""
        if name != RECORD:
            return
        own = {
            _place(client, field): part
            for client, one in self._clients.items()
            for field, part in zip(ClientMemory._fields, one.memory, strict=True)
        }
        self._latest = dict(values), {**arrays, **own}
        if time.monotonic() - self._written >= self._checkpoints.seconds:
            self.write()

    def write(self) -> None:
        """Write the last round down."""
        if self._latest is not None:
            self._checkpoints.save_rounds(*self._latest)
            self._written = time.monotonic()

    def load(self, name: str, *, if_damaged: FedGrangerError | None = None) -> Record | None:  # noqa: ARG002
        """The round that the run goes on with."""
        return self._checkpoints.rounds if name == RECORD else None


def _place(client: str, field: str) -> str:
    return f"client '{client}' {field}"
