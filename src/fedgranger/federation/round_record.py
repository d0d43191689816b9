"""Where the server stands in the rounds, on its disk: what a restart goes on from."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from fedgranger.federation.exchanges import Answers
from fedgranger.federation.store import Record, Store
from fedgranger.server.loss_trace import LossTrace, no_losses
from fedgranger.server.trainer import Memory, Trainer

RECORD, RECORD_FORMAT = "server", 2


class Place(NamedTuple):
    """Where the server stands before it uses a round's messages.

    Attributes:
        round_index: the round.
        memory: the trainer's.
        trace: losses of the rounds before.
    """

    round_index: int
    memory: Memory
    trace: LossTrace


class RoundRecord(NamedTuple):
    """The server's record of a run's last round.

    Attributes:
        store: the server's disk.
        key: clients, data, options and time of the run; another one has rounds of its own.
        on_round: called with (round, trainer, its memory) before every round's messages are used.
    """

    store: Store
    key: list[Any]
    on_round: Callable[[int, Trainer, Memory], None]

    def load(self, ranges: Answers) -> Record | None:
        """The last round, if every client still has it; None: begin with the first."""
        record = self.store.load(RECORD)
        if record is None or record[0].get("format") != RECORD_FORMAT:
            return None
        if record[0]["key"] != self.key or record[0]["round"] == 0:
            return None
        known = [json.loads(str(packet.values["rounds"])) for packet in ranges.values()]
        return record if all(record[0]["round"] in rounds for rounds in known) else None

    def keep(self, place: Place, trainer: Trainer) -> None:
        """Write down where a round begins, before its messages are used."""
        round_index, *arrays = place
        self.on_round(round_index, trainer, place.memory)
        facts = {"format": RECORD_FORMAT, "key": self.key, "round": round_index}
        self.store.save(RECORD, facts, dict(_named(arrays)))


def _named(tree: Any) -> list[tuple[str, np.ndarray]]:
    """All arrays of a tree, named by their place in it."""
    leaves = jax.tree.leaves_with_path(tree)
    named = [
        (jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in leaves
    ]
    return [(name, np.asarray(leaf)) for name, leaf in named]


def begin(trainer: Trainer, num_clients: int, resumed: Record | None) -> Place:
    """Before the first round, or where a record left it."""
    first = [trainer.initial(), no_losses(num_clients)]
    if resumed is None:
        return Place(0, *first)
    values, arrays = resumed
    leaves = [arrays[name] for name, _ in _named(first)]
    return Place(int(values["round"]), *jax.tree.unflatten(jax.tree.structure(first), leaves))
