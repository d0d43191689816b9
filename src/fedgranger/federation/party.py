"""A client of a federated run: one function from a request to an answer, and a record on disk.

Every request may arrive twice, late or after a restart. θ of a round is a fact that never changes:
the party keeps those of the last two rounds on disk, computes a new one at most once, and answers
any request for a round it has from the record. A server that was restarted announces itself with a
higher epoch; whatever an earlier one had sent is refused.

The site's policy decides over every request before anything is computed, and what leaves is
written to the site's audit log before it leaves.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from fedgranger._version import __version__
from fedgranger.client.client_side import ClientSide
from fedgranger.client.learner import ClientMemory, Learner
from fedgranger.client.own_normal import learn_own_normal
from fedgranger.client.prepared_client import check_length
from fedgranger.data.time_axis import LocalSeries, TimeGrid, period_text, range_of
from fedgranger.errors import ConfigError, DataError, FedGrangerError
from fedgranger.federation import answers
from fedgranger.federation.agreed_options import ClientOptions, check_run_name
from fedgranger.federation.answers import Answer
from fedgranger.federation.codec import MessageError, Packet, decode, digest, encode
from fedgranger.federation.policy import PolicyError, SitePolicy
from fedgranger.federation.preparation import Preparation
from fedgranger.federation.questions import Questions, WaitingError, question_of
from fedgranger.federation.requests import RefusalError, read_edges, read_grid
from fedgranger.federation.secret import data_hash, draw_start
from fedgranger.federation.site_normal import keep_normal
from fedgranger.federation.store import Store
from fedgranger.federation.watcher import WATCH_KINDS, Watcher

RECORD = "party"
KEPT_ROUNDS = 2
Edges = list[tuple[str, str, float, float]]


class Party:
    """State machine of one client.

    Args:
        series: its data, within the period that the policy allows.
        store: its disk.
        prepare: identifies, computes the states and builds the learner.
        policy: what the site lets out.
        secret: random bytes of the site that never leave it.
        clock: seconds since 1970.
        log: told what the user of this site should know.
        audit: told what is about to leave or was refused; when it fails, nothing leaves.
        on_finish: told the edges when the run has ended.
        watcher: answers for its new data; None: it has none.
    """

    def __init__(
        self,
        series: LocalSeries,
        store: Store,
        prepare: Preparation,
        *,
        policy: SitePolicy,
        secret: bytes,
        clock: Callable[[], float],
        log: Callable[[str], None] = lambda _: None,
        audit: Callable[..., None] = lambda *_, **__: None,
        on_finish: Callable[[Edges], None] = lambda _: None,
        watcher: Watcher | None = None,
    ) -> None:
        self.name = series.client.name
        self._series, self._store, self._prepare, self._policy = series, store, prepare, policy
        self._secret, self._clock, self._log = secret, clock, log
        self._audit, self._on_finish = audit, on_finish
        self._watcher = watcher or Watcher(None, store, policy=policy, secret=secret, clock=clock)
        self.data_hash = data_hash(secret, series)
        self._range = range_of(series)
        self._questions = Questions(store, policy, self.data_hash)
        self._prepared: tuple[tuple[TimeGrid, str], ClientSide] | None = None
        self._permitted: tuple[str, TimeGrid, str] | None = None
        self._question, self._period = "", ""
        self._grid: TimeGrid | None = None
        self._pieces: dict[tuple[int, int], np.ndarray] = {}
        self._run, self._options, self._epoch, self._round = "", "", 0, 0
        self._rounds: dict[int, ClientMemory] = {}
        self._read()

    def handle(self, payload: bytes) -> bytes:
        """Answer a request; whatever is wrong with it becomes a refusal, never an exception.

        What is wrong with this site's data is said here and not to the server: a sentence can
        hold a sensor's name or a value.
        """
        answered = digest(payload) if isinstance(payload, bytes) else ""
        asked = Packet("", self._run, self.name, {})
        try:
            asked = decode(payload)
            kind, values, arrays = self._answer(asked)
            answer = encode(Packet(kind, asked.run, self.name, values, arrays, answered))
            self._audit("answered", **self._facts(asked, kind, answer))
        except RefusalError as error:
            code, sentence = error.code, str(error)
        except WaitingError as error:
            code, sentence = "waiting", str(error)
            self._log(
                f"run '{asked.run}' waits for your word: 'fedgranger federation allow KIT "
                f"{asked.run}' shows what it asks for and lets it go on"
            )
        except PolicyError as error:
            code, sentence = "policy", str(error)
            self._log(f"run '{asked.run[:63]}' was refused: {error}")
        except MessageError as error:
            code, sentence = "invalid", str(error)
        except OSError as error:
            self._log(f"the disk failed: {error}")
            code, sentence = "disk", "its disk failed; its own log says how"
        except Exception as error:
            self._log(str(error) if isinstance(error, FedGrangerError) else repr(error))
            code, sentence = "data", "it cannot take part; its own log says why"
        else:
            return answer
        values = {"code": code, "sentence": sentence}
        refusal = encode(Packet("refusal", asked.run, self.name, values, {}, answered))
        try:
            facts = self._facts(asked, "refusal", refusal)
            self._audit("refused", **facts, code=code, reason=sentence)
        except OSError as error:
            self._log(f"the disk failed: {error}")
        return refusal

    def _facts(self, asked: Packet, kind: str, answer: bytes) -> dict[str, Any]:
        """What the audit log says of one answer."""
        is_start = asked.kind == "begin"
        asks = {"options": self._options, "period": self._period} if is_start else {}
        if asked.kind in WATCH_KINDS:
            asks = {"period": self._watcher.period, "piece": asked.values.get("piece")}
        return {
            "run": asked.run,
            "request": asked.kind,
            "round": asked.values.get("round"),
            "answer": kind,
            "bytes": len(answer),
            "question": self._question,
            "digest": digest(answer),
            **asks,
        }

    def _answer(self, packet: Packet) -> Answer:
        _valid(check_run_name, packet.run)
        if packet.client != self.name:
            raise RefusalError("invalid", "the request is for another client")
        if packet.kind in WATCH_KINDS:
            return self._watcher.answer(packet)
        if packet.kind == "offer":
            return self._offer(packet)
        if packet.run != self._run:
            raise RefusalError("unknown", "it has not been told of this run")
        if packet.kind == "begin":
            return self._begin(packet)
        if packet.kind not in ("join", "train", "step", "upload", "finish"):
            raise RefusalError("invalid", f"'{packet.kind}' is not a request")
        if packet.values["epoch"] != self._epoch:
            raise RefusalError("stale", f"the run goes on with epoch {self._epoch}")
        if packet.kind == "finish":
            return self._finish(read_edges(str(packet.values["edges"])))
        prepared = self._ready()
        if packet.kind == "join":
            if prepared.learner is not None:  # without rounds the number of sensors is nobody's
                others = int(packet.values["total_dim"]) - prepared.model.state_dim
                check_length(prepared.data, prepared.model, others)
            return answers.DONE
        if packet.kind == "upload":
            return self._upload(prepared, int(packet.values["piece"]))
        if prepared.learner is None:
            raise RefusalError("invalid", "the run has no rounds of FedGC")
        if packet.kind == "train":
            return answers.model(prepared)
        return self._step(prepared.learner, packet)

    def _offer(self, packet: Packet) -> Answer:
        """Say what is there; nothing changes but the run's name and options."""
        options = _valid(ClientOptions.from_text, str(packet.values["options"]))
        text = options.to_text()  # not what was sent: people at the site read it
        self._policy.check_options(options, self._series.client.num_sensors)
        if (packet.run, text) != (self._run, self._options):
            self._read()  # a late offer of another run may have come between
        if (packet.run, text) != (self._run, self._options):
            self._run, self._options = packet.run, text
            self._epoch, self._round, self._rounds = 0, 0, {}
            self._grid, self._question = None, ""
        values, arrays = answers.range_fields(self._range)
        values |= {
            "clock": float(self._clock()),
            "version": __version__,
            "epoch": self._epoch,
            "rounds": json.dumps(sorted(self._rounds)),
            "data": self.data_hash,
        }
        return "range", values, arrays

    def _begin(self, packet: Packet) -> Answer:
        self._period = ""
        grid, epoch, round_index = read_grid(packet, self._range, self._epoch)
        self._period = period_text(grid)
        if epoch < self._epoch:
            raise RefusalError("stale", f"the run goes on with epoch {self._epoch}")
        if epoch > self._epoch or self._grid is None:
            same = self._grid is None or grid == self._grid
            rounds = {k: m for k, m in self._rounds.items() if k <= round_index and same}
            if round_index and round_index not in rounds:
                raise RefusalError("unavailable", f"it does not have round {round_index}")
            learner = self._ready(grid).learner
            if round_index == 0:
                rounds = {} if learner is None else {0: learner.initial()}
            self._write(epoch, round_index, rounds, grid)
            self._pieces = {}
        return answers.hello(self._ready())

    def _step(self, learner: Learner, packet: Packet) -> Answer:
        values = packet.values
        round_index, piece = int(values["round"]), int(values["learn_piece"])
        if round_index < self._round - 1:
            raise RefusalError("stale", f"the run has reached round {self._round}")
        if piece >= 0 and round_index not in self._rounds:
            self._learn(learner, round_index, piece, int(values["learn_pieces"]), packet)
        wanted = int(values["want_piece"])
        if wanted < 0:
            return answers.DONE
        if round_index not in self._rounds:
            raise RefusalError("unavailable", f"it does not have round {round_index}")
        if learner.piece_length(round_index, wanted) < 1:
            raise RefusalError("invalid", f"there is no piece {wanted}")
        memory = self._rounds[round_index]
        self._questions.show(memory.augmentation)
        return answers.round_message(
            learner, memory, round_index, wanted, want_filtered=bool(values["want_filtered"])
        )

    def _learn(
        self, learner: Learner, round_index: int, piece: int, num_pieces: int, packet: Packet
    ) -> None:
        """Collect gradients; with the last piece θ of the round is computed and written."""
        before = self._rounds.get(round_index - 1)
        if before is None:
            raise RefusalError("unavailable", f"it does not have round {round_index - 1}")
        gradients = packet.arrays["gradients"]
        shape = (learner.piece_length(round_index - 1, piece), before.augmentation.shape[0])
        if num_pieces != learner.num_pieces(round_index - 1) or gradients.shape != shape:
            raise RefusalError(
                "invalid", f"the gradients have shape {gradients.shape}, not {shape}"
            )
        self._pieces = {key: value for key, value in self._pieces.items() if key[0] == round_index}
        self._pieces[round_index, piece] = gradients
        if piece < num_pieces - 1:
            return
        if len(self._pieces) != num_pieces:
            raise RefusalError("unavailable", "some of the round's gradients were lost")
        parts = [self._pieces[round_index, k] for k in range(num_pieces)]
        memory = learner.learn(before, round_index, parts)
        if not np.isfinite(memory.augmentation).all():
            raise RefusalError("data", "its parameters diverged; use smaller step sizes or 'auto'")
        kept = {k: m for k, m in self._rounds.items() if k > round_index - KEPT_ROUNDS}
        self._write(self._epoch, round_index, {**kept, round_index: memory}, self._grid)
        self._pieces = {}

    def _upload(self, prepared: ClientSide, piece: int) -> Answer:
        options = ClientOptions.from_text(self._options)
        if options.config.test == "none":
            raise RefusalError("invalid", "the run has no edge tests")
        if not 0 <= piece * options.message_steps < len(prepared.states):
            raise RefusalError("invalid", f"there is no piece {piece}")
        return answers.states(prepared, piece, options.message_steps)

    def _finish(self, edges: Edges) -> Answer:
        """Keep what is normal, for a watch over new data; then tell the site the edges."""
        if self._grid is not None:
            prepared = self._ready()
            try:
                keep_normal(self._store, self._run, learn_own_normal(prepared))
            except DataError as error:
                self._log(f"run '{self._run}': new data cannot be watched: {error}")
        self._on_finish(edges)
        return answers.DONE

    def _ready(self, grid: TimeGrid | None = None) -> ClientSide:
        """The data prepared for the agreed time axis; after a restart, once more.

        The policy is asked first, and again for every run and after every restart.
        """
        grid = grid or self._grid
        if grid is None:
            raise RefusalError("unknown", "the run has not begun")
        key = (grid, self._options)
        is_permitted = self._permitted == (self._run, *key)
        if self._prepared is not None and is_permitted and self._prepared[0] == key:
            return self._prepared[1]
        options, sensors = ClientOptions.from_text(self._options), self._series.client.num_sensors
        self._policy.check_options(options, sensors)
        largest = self._policy.largest_for(sensors)
        question, now = question_of(options, grid, largest), self._clock()
        details = {"options": self._options, "period": period_text(grid)}
        self._questions.check(self._run, question, details, now)
        kept = self._prepared if self._prepared is not None and self._prepared[0] == key else None
        if kept is None:
            capped = min(options.config.max_state_dim, largest)
            own = replace(options, config=replace(options.config, max_state_dim=capped))
            start = lambda shape: draw_start(self._secret, self.data_hash, shape)  # noqa: E731
            try:
                prepared = self._prepare(self._series, grid, own, start)
            except Exception:
                self._questions.fail(question, now)
                raise
            if prepared.model.state_dim > largest:
                raise PolicyError(f"its policy allows {largest} states at most")
            if prepared.model.state_dim == capped < options.config.max_state_dim:
                self._log(
                    f"run '{self._run}': policy.toml allows {capped} states for {sensors} sensors; "
                    "without that limit more might have been chosen"
                )
            for note in prepared.notes:
                self._log(f"run '{self._run}': {note}")
            if prepared.learner is not None:
                self._log(
                    f"run '{self._run}' asks for rounds of FedGC: every round shows the server "
                    f"{prepared.model.state_dim} more combinations of {sensors} sensors"
                )
            kept = key, prepared
        self._questions.take(self._run, question, now)
        self._prepared, self._question = kept, question
        self._permitted = (self._run, *key)
        return kept[1]

    def _write(
        self, epoch: int, round_index: int, rounds: dict[int, ClientMemory], grid: TimeGrid | None
    ) -> None:
        """Write to disk first, then change memory: a failed write changes nothing."""
        values = {
            "run": self._run,
            "options": self._options,
            "epoch": epoch,
            "round": round_index,
            "rounds": sorted(rounds),
            "data": self.data_hash,
            "grid": None if grid is None else [grid[0], str(grid[1]), str(grid[2])],
        }
        arrays = {}
        for k, memory in rounds.items():
            arrays[f"augmentation_{k}"], arrays[f"pass_start_{k}"] = memory
        if grid is not None:
            arrays["stretches"] = np.array(grid.stretches, dtype=np.int64)
        self._store.save(RECORD, values, arrays)
        self._epoch, self._round, self._rounds, self._grid = epoch, round_index, rounds, grid

    def _read(self) -> None:
        record = self._store.load(RECORD)
        if record is None:
            return
        values, arrays = record
        if values["data"] != self.data_hash:  # other data: what was learned does not hold
            return
        if values["grid"] is not None and "stretches" not in arrays:  # of an older version
            return
        self._run, self._options = values["run"], values["options"]
        self._epoch, self._round = values["epoch"], values["round"]
        if values["grid"] is not None:
            kind, first, interval = values["grid"]
            stretches = tuple((start, stop) for start, stop in arrays["stretches"].tolist())
            self._grid = TimeGrid(kind, Fraction(first), Fraction(interval), stretches)
        self._rounds = {
            k: ClientMemory(arrays[f"augmentation_{k}"], arrays[f"pass_start_{k}"])
            for k in values["rounds"]
        }


def _valid(read: Callable[[Any], Any], value: Any) -> Any:
    """Read what a request holds; what cannot be read is the request's fault, not the data's."""
    try:
        return read(value)
    except ConfigError as error:
        raise RefusalError("invalid", str(error)) from None
