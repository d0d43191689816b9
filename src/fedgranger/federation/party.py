"""A client of a federated run: one function from a request to an answer, and a record on disk.

Every request may arrive twice, late or after a restart. θ of a round is a fact that never changes
(`followed_run`): the party computes a new one at most once, and answers any request for a round it
has from the record. A server that was restarted announces itself with a higher epoch; whatever an
earlier one had sent is refused.

The site's policy decides over every request before anything is computed, and what leaves is
written to the site's audit log before it leaves.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fedgranger.client.client_side import ClientSide
from fedgranger.client.prepared_client import check_length
from fedgranger.data.time_axis import LocalSeries, TimeGrid, period_text, range_of
from fedgranger.errors import ConfigError, DataError
from fedgranger.federation import answers
from fedgranger.federation.agreed_options import ClientOptions, check_run_name
from fedgranger.federation.answers import Answer
from fedgranger.federation.codec import Packet, decode, digest, encode
from fedgranger.federation.edge_fields import read_sensors
from fedgranger.federation.followed_run import FollowedRun, OwnRounds
from fedgranger.federation.own_edges import OwnEdges, answer_edges, kept_edges, shared_names
from fedgranger.federation.preparation import PermittedClient, Preparation
from fedgranger.federation.questions import Site
from fedgranger.federation.requests import (
    RefusalError,
    TestedPair,
    read_edges,
    read_grid,
    reason_of,
    refuse,
)
from fedgranger.federation.watch_records import learn_and_keep
from fedgranger.federation.watcher import WATCH_KINDS, Watcher
from fedgranger.messages import CONTENTS


class Party:
    """State machine of one client.

    `audit` receives what is about to leave or was refused; when it fails, nothing leaves.
    `on_finish` receives all edges when the run has ended, and the site's own in its sensors;
    without a `watcher` nothing is watched.
    """

    def __init__(
        self,
        series: LocalSeries,
        site: Site,
        prepare: Preparation,
        *,
        audit: Callable[..., None] = lambda *_, **__: None,
        on_finish: Callable[[list[TestedPair], OwnEdges], None] = lambda *_: None,
        watcher: Watcher | None = None,
    ) -> None:
        self.name = series.client.name
        self._site, self._audit, self._on_finish = site, audit, on_finish
        self._watcher = watcher or Watcher(None, site)
        self._client = PermittedClient(series, site, prepare)
        self._range, self._period = range_of(series), ""
        self._rounds = OwnRounds(site, self._client)

    @property
    def _followed(self) -> FollowedRun:
        return self._rounds.followed

    def handle(self, payload: bytes) -> bytes:
        """Answer a request; whatever is wrong with it becomes a refusal, never an exception."""
        asked = Packet("", self._followed.run, self.name, {})
        try:
            asked = decode(payload)
            kind, values, arrays = self._answer(asked)
            answer = encode(Packet(kind, asked.run, self.name, values, arrays, digest(payload)))
            self._audit("answered", **self._facts(asked, kind, answer))
        except Exception as error:
            code, sentence = reason_of(error, asked.run, self._site.log)
        else:
            return answer
        refusal = refuse(payload, asked.run, self.name, code, sentence)
        try:
            facts = self._facts(asked, "refusal", refusal)
            self._audit("refused", **facts, code=code, reason=sentence)
        except OSError as error:
            self._site.log(f"the disk failed: {error}")
        return refusal

    def _facts(self, asked: Packet, kind: str, answer: bytes) -> dict[str, Any]:
        """What the audit log says of one answer."""
        asks: dict[str, Any] = {}
        if asked.kind == "begin":
            asks = {"options": self._followed.options, "period": self._period}
        if kind == "sensors":
            asks = {"sensors": shared_names(read_sensors(decode(answer)))}
        if asked.kind in WATCH_KINDS:
            asks = {"period": self._watcher.period, "piece": asked.values.get("piece")}
        return {
            "run": asked.run,
            "request": asked.kind,
            "round": asked.values.get("round"),
            "answer": kind,
            "fields": ", ".join((*CONTENTS[kind].values, *CONTENTS[kind].arrays)),
            "bytes": len(answer),
            "question": self._client.question,
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
        if packet.run != self._followed.run:
            raise RefusalError("unknown", "it has received nothing of this run")
        if packet.kind == "begin":
            return self._begin(packet)
        if packet.kind not in ("join", "train", "step", "upload", "translate", "finish"):
            raise RefusalError("invalid", f"'{packet.kind}' is not a request")
        if packet.values["epoch"] != self._followed.epoch:
            raise RefusalError("stale", f"the run goes on with epoch {self._followed.epoch}")
        if packet.kind == "finish":
            return self._finish(read_edges(str(packet.values["edges"])))
        prepared = self._ready()
        if packet.kind == "join":
            if prepared.learner is not None:  # without rounds the number of sensors is nobody's
                others = int(packet.values["total_dim"]) - prepared.model.state_dim
                check_length(self.name, prepared.is_observed, prepared.model, others)
            return answers.DONE
        if packet.kind == "upload":
            return self._upload(prepared, int(packet.values["piece"]))
        if packet.kind == "translate":
            return answer_edges(self._site, self._followed, prepared, packet)
        if prepared.learner is None:
            raise RefusalError("invalid", "the run has no rounds of FedGC")
        if packet.kind == "train":
            self._rounds.charge(prepared.learner.hello_releases())
            return answers.model(prepared)
        return self._rounds.step(prepared.learner, packet)

    def _offer(self, packet: Packet) -> Answer:
        """Say what is there; nothing changes but the run's name and options."""
        options = _valid(ClientOptions.from_text, str(packet.values["options"]))
        text = options.to_text()  # not what was sent: people at the site read it
        self._client.check_options(options)
        if not self._rounds.follow(packet.run, text):
            self._client.question = ""
        rounds, data = json.dumps(sorted(self._followed.rounds)), self._client.data_hash
        clock, epoch = float(self._site.clock()), self._followed.epoch
        return answers.time_range("range", self._range, clock, epoch, rounds=rounds, data=data)

    def _begin(self, packet: Packet) -> Answer:
        self._period, now = "", self._followed
        grid, epoch, round_index = read_grid(packet, self._range, now.epoch)
        self._period = period_text(grid)
        if epoch < now.epoch:
            raise RefusalError("stale", f"the run goes on with epoch {now.epoch}")
        if epoch > now.epoch or now.grid is None:
            same = now.grid is None or grid == now.grid
            rounds = {k: m for k, m in now.rounds.items() if k <= round_index and same}
            if round_index and round_index not in rounds:
                raise RefusalError("unavailable", f"it does not have round {round_index}")
            learner = self._ready(grid).learner
            if round_index == 0:
                rounds = {} if learner is None else {0: learner.initial()}
            self._rounds.write(FollowedRun(now.run, now.options, epoch, round_index, rounds, grid))
        return answers.hello(self._ready())

    def _upload(self, prepared: ClientSide, piece: int) -> Answer:
        options = self._followed.asked
        if options.config.test == "none":
            raise RefusalError("invalid", "the run has no edge tests")
        if not 0 <= piece * options.message_steps < len(prepared.states):
            raise RefusalError("invalid", f"there is no piece {piece}")
        return answers.states(prepared, piece, options.message_steps)

    def _finish(self, edges: list[TestedPair]) -> Answer:
        """Keep what is normal, for a watch over new data; then hand the site the edges."""
        run = self._followed.run
        if self._followed.grid is not None:
            prepared = self._ready()
            try:
                config, grid = self._followed.asked.config, self._followed.grid
                learn_and_keep(self._site, run, prepared, grid, config)
            except DataError as error:
                self._site.log(f"run '{run}': new data cannot be watched: {error}")
        self._on_finish(edges, kept_edges(self._site.store, run, self._followed.epoch))
        return answers.DONE

    def _ready(self, grid: TimeGrid | None = None) -> ClientSide:
        """The data prepared for the agreed time axis; after a restart, once more."""
        grid = grid or self._followed.grid
        if grid is None:
            raise RefusalError("unknown", "the run has not begun")
        return self._client.ready(self._followed.run, self._followed.options, grid)


def _valid(read: Callable[[Any], Any], value: Any) -> Any:
    """Read what a request holds; what cannot be read is the request's fault, not the data's."""
    try:
        return read(value)
    except ConfigError as error:
        raise RefusalError("invalid", str(error)) from None
