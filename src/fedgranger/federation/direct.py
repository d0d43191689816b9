"""All parties in one process: the same protocol with objects instead of bytes.

Nothing is hidden here: what is wrong with a client's data is raised as it is, and there are no
policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from fedgranger.client.client_side import ClientSide, set_up_client
from fedgranger.client.learner import ClientMemory
from fedgranger.client.params import LocalModel
from fedgranger.client.prepared_client import check_length
from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.data.time_axis import TimeRange
from fedgranger.errors import UnstableRecursionError
from fedgranger.federation import answers
from fedgranger.federation.answers import Answer
from fedgranger.federation.codec import Packet
from fedgranger.federation.edge_fields import read_side
from fedgranger.federation.exchanges import source_of
from fedgranger.federation.own_edges import sensors_behind
from fedgranger.federation.protocol import ServerProtocol, ServerResult
from fedgranger.inference.states import StateSource


class LocalClient:
    """A client in the server's process; `prepare` is called once, when the run begins."""

    def __init__(self, name: str, axis: TimeRange, prepare: Callable[[], ClientSide]) -> None:
        self.name, self._axis, self._prepare = name, axis, prepare
        self._prepared: ClientSide | None = None
        self._memory: ClientMemory | None = None
        self._rounds: list[int] = []

    @property
    def prepared(self) -> ClientSide:
        """What it has made of its data, once the run has begun."""
        if self._prepared is None:
            self._prepared = self._prepare()
        return self._prepared

    @property
    def augmentation(self) -> np.ndarray | None:
        """θ after the rounds that went through this client; None when there were none."""
        learner = self.prepared.learner
        if self._memory is None or learner is None:
            return None
        return learner.augmentation(self._memory)

    @property
    def memory(self) -> ClientMemory:
        """What it must not lose, once rounds have begun."""
        if self._memory is None:
            raise RuntimeError("no round has begun")
        return self._memory

    def restore(self, memory: ClientMemory, round_index: int) -> None:
        """Go on from a round of an interrupted run."""
        self._memory, self._rounds = memory, [round_index]

    def answer(
        self, kind: str, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
    ) -> Answer:
        """Answer a request of the protocol."""
        if kind == "offer":
            return answers.time_range(
                "range", self._axis, 0.0, 0, rounds=str(self._rounds), data=""
            )
        if kind == "begin":
            return answers.hello(self.prepared)
        if kind == "join":
            others = int(values["total_dim"]) - self.prepared.model.state_dim
            own = self.prepared
            check_length(own.data.name, own.is_observed, own.model, others)
        if kind == "train":
            return answers.model(self.prepared)
        if kind == "step":
            return self._step(values, arrays)
        if kind == "upload":
            return answers.states(self.prepared, int(values["piece"]), len(self.prepared.states))
        if kind == "translate":
            side = read_side(Packet(kind, "", self.name, values, arrays))
            shown = sensors_behind(self.prepared, side)
            return answers.sensors(shown, self.prepared.model.state_dim)
        return answers.DONE

    def _step(self, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Answer:
        learner, round_index = self.prepared.learner, int(values["round"])
        if learner is None:
            raise RuntimeError("the client has no learner")
        is_first = self._memory is None or round_index == 0
        memory = learner.initial() if is_first else self.memory
        if values["learn_piece"] >= 0:
            memory = learner.learn(memory, round_index, [arrays["gradients"]])
        self._memory = memory
        filtered = bool(values["want_filtered"])
        return answers.round_message(learner, memory, round_index, 0, want_filtered=filtered)


def run_direct(protocol: ServerProtocol, clients: Mapping[str, LocalClient]) -> ServerResult:
    """Drive the protocol to its end; every client answers at once, in the order of their names."""
    request = next(protocol)
    while True:
        found: dict[str, Packet] = {}
        try:
            for name, values in request.values.items():
                answer = clients[name].answer(request.kind, values, request.arrays.get(name, {}))
                found[name] = _packet(name, answer)
            request = protocol.send(found)
        except UnstableRecursionError as error:
            request = protocol.throw(error)  # training failed; the tests go on
        except StopIteration as stop:
            return stop.value


def state_source(panel: Panel, models: Mapping[str, LocalModel]) -> StateSource:
    """The states of a panel without seasons, of clients with these local models."""
    config, starts = RunConfig(solver="none", period="none"), panel.segment_starts
    return source_of_clients(
        set_up_client(
            client, panel.time, starts, config, model=models[client.name], is_filtered=False
        )
        for client in panel
    )


def source_of_clients(clients: Iterable[ClientSide]) -> StateSource:
    """The states that these clients would send, as the server of a run collects them."""
    own = sorted(clients, key=lambda client: client.data.name)
    hellos = {one.data.name: _packet(one.data.name, answers.hello(one)) for one in own}
    states, observed = [one.states for one in own], [one.is_observed for one in own]
    return source_of(hellos, states, observed, own[0].starts)


def _packet(name: str, answer: Answer) -> Packet:
    return Packet(answer[0], "", name, answer[1], answer[2])
