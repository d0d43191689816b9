"""A client of a federated run: one function from a request to an answer, and a record on disk.

Every request may arrive twice, late or after a restart. θ of a round is a fact that never changes:
the party keeps those of the last two rounds on disk, computes a new one at most once, and answers
any request for a round it has from the record. A server that was restarted announces itself with a
higher epoch; whatever an earlier one had sent is refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from fedgranger._version import __version__
from fedgranger.client.site import Site, check_length
from fedgranger.client.state_noise import state_message
from fedgranger.data.panel import ClientData
from fedgranger.errors import FedGrangerError
from fedgranger.runtime.federated.codec import MessageError, Packet, decode, digest, encode
from fedgranger.runtime.federated.learners import ClientMemory, Learner
from fedgranger.runtime.federated.options import FederationOptions
from fedgranger.runtime.federated.store import Store
from fedgranger.runtime.federated.timing import LocalSeries, TimeGrid, range_of
from fedgranger.runtime.federated.validation import read_fraction

__all__ = ["Party", "Preparation", "Prepared"]

RECORD = "party"
KEPT_ROUNDS = 2


class Prepared(NamedTuple):
    """A party's data on the common time axis, ready to learn, and what it says of them."""

    site: Site
    data: ClientData
    learner: Learner
    hello: dict[str, np.ndarray]


Preparation = Callable[[LocalSeries, TimeGrid, FederationOptions], Prepared]
Answer = tuple[str, dict[str, Any], dict[str, np.ndarray]]


class _RefusalError(FedGrangerError):
    """Why a request is not answered; `code` tells the server what to make of it."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Party:
    """State machine of one client.

    Args:
        series: its data.
        store: its disk.
        prepare: identifies, filters and builds the learner.
        clock: seconds since 1970.
        log: told what the user of this site should know.
        on_finish: told the edges (JSON) when the run has ended.
    """

    def __init__(
        self,
        series: LocalSeries,
        store: Store,
        prepare: Preparation,
        clock: Callable[[], float],
        log: Callable[[str], None] = lambda _: None,
        on_finish: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.name = series.client.name
        self._series, self._store, self._prepare = series, store, prepare
        self._clock, self._log, self._on_finish = clock, log, on_finish
        self._prepared: Prepared | None = None
        self._prepared_for: tuple[TimeGrid, str] | None = None
        self._grid: TimeGrid | None = None
        self._pieces: dict[tuple[int, int], np.ndarray] = {}
        self._data_hash = _data_hash(series)
        self._run, self._options, self._epoch, self._round = "", "", 0, 0
        self._rounds: dict[int, ClientMemory] = {}
        self._read()

    def handle(self, payload: bytes) -> bytes:
        """Answer a request; whatever is wrong with it becomes a refusal, never an exception.

        What is wrong with this site's data is said here and not to the server: a sentence can
        hold a sensor's name or a value.
        """
        run, answers = self._run, digest(payload) if isinstance(payload, bytes) else ""
        try:
            packet = decode(payload)
            run = packet.run
            kind, values, arrays = self._answer(packet)
            return encode(Packet(kind, run, self.name, values, arrays, answers))
        except _RefusalError as error:
            refusal = _refuse(error.code, str(error))
        except MessageError as error:
            refusal = _refuse("invalid", str(error))
        except OSError as error:
            self._log(f"the disk failed: {error}")
            refusal = _refuse("disk", "its disk failed; its own log says how")
        except Exception as error:
            self._log(str(error) if isinstance(error, FedGrangerError) else repr(error))
            refusal = _refuse("data", "it cannot take part; its own log says why")
        kind, values, arrays = refusal
        return encode(Packet(kind, run, self.name, values, arrays, answers))

    def _answer(self, packet: Packet) -> Answer:
        if packet.client != self.name:
            raise _RefusalError("invalid", f"the request is for '{packet.client}'")
        if packet.kind == "offer":
            return self._offer(packet)
        if packet.run != self._run:
            raise _RefusalError("unknown", "it has not been told of this run")
        if packet.kind == "begin":
            return self._begin(packet.values)
        if packet.kind not in ("join", "step", "upload", "finish"):
            raise _RefusalError("invalid", f"'{packet.kind}' is not a request")
        if packet.values["epoch"] != self._epoch:
            raise _RefusalError("stale", f"the run goes on with epoch {self._epoch}")
        if packet.kind == "finish":
            self._on_finish(str(packet.values["edges"]))
            return "done", {}, {}
        prepared = self._ready()
        if packet.kind == "join":
            own = prepared.site.stream.model.state_dim
            check_length(prepared.site.stream, int(packet.values["total_dim"]) - own)
            return "done", {}, {}
        if packet.kind == "upload":
            return self._upload(prepared, int(packet.values["piece"]))
        return self._step(prepared, packet)

    def _offer(self, packet: Packet) -> Answer:
        """Say what is there; nothing changes but the run's name and options."""
        options = str(packet.values["options"])
        if options != self._options:
            FederationOptions.from_text(options)  # refuse what cannot be read
        if (packet.run, options) != (self._run, self._options):
            self._read()  # a late offer of another run may have come between
        if (packet.run, options) != (self._run, self._options):
            self._run, self._options = packet.run, options
            self._epoch, self._round, self._rounds = 0, 0, {}
            self._grid = None
        mine = range_of(self._series)
        return (
            "range",
            {
                "time_kind": mine.time_kind,
                "first": str(mine.first),
                "last": str(mine.last),
                "interval": str(mine.interval),
                "clock": float(self._clock()),
                "version": __version__,
                "epoch": self._epoch,
                "rounds": json.dumps(sorted(self._rounds)),
            },
            {},
        )

    def _begin(self, values: Any) -> Answer:
        epoch, round_index = int(values["epoch"]), int(values["round"])
        grid = TimeGrid(
            str(values["time_kind"]),
            read_fraction(values["first"]),
            read_fraction(values["interval"]),
            int(values["num_steps"]),
        )
        if epoch < self._epoch:
            raise _RefusalError("stale", f"the run goes on with epoch {self._epoch}")
        if epoch > self._epoch or self._grid is None:
            same = self._grid is None or grid == self._grid
            rounds = {k: m for k, m in self._rounds.items() if k <= round_index and same}
            if round_index and round_index not in rounds:
                raise _RefusalError("unavailable", f"it does not have round {round_index}")
            self._grid = grid
            learner = self._ready().learner
            if round_index == 0:
                rounds = {0: learner.initial()}
            self._pieces = {}
            self._write(epoch, round_index, rounds)
        return "hello", {}, self._ready().hello

    def _step(self, prepared: Prepared, packet: Packet) -> Answer:
        values, learner = packet.values, prepared.learner
        round_index, piece = int(values["round"]), int(values["learn_piece"])
        if round_index < self._round - 1:
            raise _RefusalError("stale", f"the run has reached round {self._round}")
        if piece >= 0 and round_index not in self._rounds:
            self._learn(learner, round_index, piece, int(values["learn_pieces"]), packet)
        wanted = int(values["want_piece"])
        if wanted < 0:
            return "done", {}, {}
        if round_index not in self._rounds:
            raise _RefusalError("unavailable", f"it does not have round {round_index}")
        if learner.piece_length(round_index, wanted) < 1:
            raise _RefusalError("invalid", f"there is no piece {wanted}")
        memory = self._rounds[round_index]
        states = dict(learner.send(memory, round_index, wanted))
        if not values["want_filtered"]:
            states["filtered_states"] = states["filtered_states"][:0]
        report = learner.report(memory, round_index)
        change, size = report or (0.0, 0.0)
        told = {"has_report": report is not None, "change": change, "size": size}
        return "message", {"round": round_index, "piece": wanted, **told}, states

    def _learn(
        self, learner: Learner, round_index: int, piece: int, num_pieces: int, packet: Packet
    ) -> None:
        """Collect gradients; with the last piece θ of the round is computed and written."""
        before = self._rounds.get(round_index - 1)
        if before is None:
            raise _RefusalError("unavailable", f"it does not have round {round_index - 1}")
        gradients = packet.arrays["gradients"]
        shape = (
            learner.piece_length(round_index - 1, piece) if piece < num_pieces else -1,
            before.augmentation.shape[0],
        )
        if gradients.shape != shape:
            raise _RefusalError(
                "invalid", f"the gradients have shape {gradients.shape}, not {shape}"
            )
        self._pieces = {key: value for key, value in self._pieces.items() if key[0] == round_index}
        self._pieces[round_index, piece] = gradients
        if piece < num_pieces - 1:
            return
        if len(self._pieces) != num_pieces:
            raise _RefusalError("unavailable", "some of the round's gradients were lost")
        parts = [self._pieces[round_index, k] for k in range(num_pieces)]
        memory = learner.learn(before, round_index, parts)
        if not np.isfinite(memory.augmentation).all():
            raise _RefusalError("data", "its parameters diverged; use smaller step sizes or 'auto'")
        kept = {k: m for k, m in self._rounds.items() if k > round_index - KEPT_ROUNDS}
        self._write(self._epoch, round_index, {**kept, round_index: memory})
        self._pieces = {}

    def _upload(self, prepared: Prepared, piece: int) -> Answer:
        size = FederationOptions.from_text(self._options).message_steps
        start, total = piece * size, len(prepared.data.values)
        if not 0 <= start < total:
            raise _RefusalError("invalid", f"there is no piece {piece}")
        model = prepared.site.stream.model
        message = state_message(prepared.data, model, start, min(start + size, total))
        states, flags = np.asarray(message.states), np.asarray(message.is_observed)
        return "states", {"piece": piece}, {"states": states, "is_observed": flags}

    def _ready(self) -> Prepared:
        """The data prepared for the agreed time axis; after a restart, once more."""
        if self._grid is None:
            raise _RefusalError("unknown", "the run has not begun")
        key = (self._grid, self._options)
        if self._prepared is None or self._prepared_for != key:
            options = FederationOptions.from_text(self._options)
            self._prepared = self._prepare(self._series, self._grid, options)
            self._prepared_for = key
        return self._prepared

    def _write(self, epoch: int, round_index: int, rounds: dict[int, ClientMemory]) -> None:
        """Make it last, then make it so: a failed disk leaves everything as it was."""
        grid = self._grid
        values = {
            "run": self._run,
            "options": self._options,
            "epoch": epoch,
            "round": round_index,
            "rounds": sorted(rounds),
            "data": self._data_hash,
            "grid": None if grid is None else [grid[0], str(grid[1]), str(grid[2]), grid[3]],
        }
        arrays = {}
        for k, memory in rounds.items():
            arrays[f"augmentation_{k}"], arrays[f"pass_start_{k}"] = memory
        self._store.save(RECORD, values, arrays)
        self._epoch, self._round, self._rounds = epoch, round_index, rounds

    def _read(self) -> None:
        record = self._store.load(RECORD)
        if record is None:
            return
        values, arrays = record
        if values["data"] != self._data_hash:  # other data: what was learned does not hold
            return
        self._run, self._options = values["run"], values["options"]
        self._epoch, self._round = values["epoch"], values["round"]
        if values["grid"] is not None:
            kind, first, interval, num_steps = values["grid"]
            self._grid = TimeGrid(kind, Fraction(first), Fraction(interval), num_steps)
        self._rounds = {
            k: ClientMemory(arrays[f"augmentation_{k}"], arrays[f"pass_start_{k}"])
            for k in values["rounds"]
        }


def _data_hash(series: LocalSeries) -> str:
    """Tell a party's data from others; stays on its disk."""
    digest_of = hashlib.blake2b(digest_size=16)
    parts = (series.time, series.client.values, series.client.observed)
    for part in parts:
        digest_of.update(np.ascontiguousarray(part).view(np.uint8).data)
    return digest_of.hexdigest()


def _refuse(code: str, sentence: str) -> Answer:
    return "refusal", {"code": code, "sentence": sentence}, {}
