"""FedGC's rounds as the server asks for them: gradients down, states up, until it has enough."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedgranger.errors import UnstableRecursionError
from fedgranger.federation.agreed_options import FederationOptions
from fedgranger.federation.exchanges import Answers, Participants, Request
from fedgranger.federation.gradient_noise import GradientNoise, server_noise
from fedgranger.federation.round_record import Place, RoundRecord, begin
from fedgranger.federation.store import Record
from fedgranger.messages import LARGEST_NUMBER
from fedgranger.server.jacobian_trace import JacobianTrace
from fedgranger.server.loss_trace import trace_table
from fedgranger.server.neural_trainer import NeuralMemory
from fedgranger.server.round_messages import RoundMessages, Rows
from fedgranger.server.trainer import Trainer, make_trainer


class Training(NamedTuple):
    """How FedGC's rounds ended, as the server knows it.

    Attributes:
        granger: Â with A_mm on the diagonal; None where training failed.
        trace: losses (`server.loss_trace`).
        rounds: rounds of training.
        distance: how far from the limit at the end.
        failure: why it failed; empty: it did not.
        note: why it ended before it had to; empty: it did not.
        jacobian: Granger blocks over time, of neural training only.
    """

    granger: np.ndarray | None
    trace: pd.DataFrame
    rounds: int
    distance: float
    failure: str = ""
    note: str = ""
    jacobian: JacobianTrace | None = None


class BudgetSpent(Exception):  # noqa: N818  not an error: rounds that end by a rule
    """A client releases nothing more; what there is of the estimate is kept."""


NO_TRAINING = Training(None, trace_table((), ()), 0, np.inf)


def train(
    participants: Participants,
    starts: np.ndarray,
    options: FederationOptions,
    record: RoundRecord,
    resumed: Record | None,
) -> Generator[Request, Answers, Training]:
    """All rounds, or those after `resumed`; rounds that run away are no reason not to test.

    `starts`: time steps that do not follow the one before.
    """
    num_pairs = len(starts) - 1
    names, config = tuple(participants.dims), options.config
    shapes = {name: (dim, dim) for name, dim in participants.dims.items()}
    try:
        models = yield participants.request("train")._replace(shapes=shapes)
    except BudgetSpent as error:
        return NO_TRAINING._replace(failure=str(error))
    rows = Rows(
        names,
        tuple(np.asarray(models[name].arrays["self_transition"]) for name in names),
        np.array([float(models[name].arrays["state_gain"]) for name in names]),
        num_pairs,
        starts,
    )
    window = config.round_steps(num_pairs)
    trainer = make_trainer(rows, config, window, options.message_steps)
    protect = None
    if config.privacy == "to-clients":
        noise = server_noise(record.store, config, is_local=options.is_local)
        protect = GradientNoise(config, noise, num_pairs, len(names)).protect
    place = begin(trainer, len(names), resumed)
    try:
        end, note = yield from _exchange_rounds(participants, trainer, place, record, protect)
    except UnstableRecursionError as error:
        return NO_TRAINING._replace(failure=str(error))
    if not len(end.trace.places):
        return NO_TRAINING._replace(failure=note)
    granger = with_diagonal(trainer.granger(end.memory), rows.transitions)
    jacobian = end.memory.jacobian if isinstance(end.memory, NeuralMemory) else None
    losses, distance = trace_table(names, end.trace.rows), float(end.memory.distance)
    return Training(granger, losses, end.round_index, distance, note=note, jacobian=jacobian)


def _exchange_rounds(
    participants: Participants,
    trainer: Trainer,
    place: Place,
    record: RoundRecord,
    protect: Callable[[int, list[np.ndarray]], list[np.ndarray]] | None,
) -> Generator[Request, Answers, tuple[Place, str]]:
    """Rounds until the trainer has enough, or a client's budget is spent: where, and that sentence.

    `protect` adds noise to gradients.
    """
    names = tuple(participants.dims)
    filtered: Sequence[np.ndarray] | None = None
    gradients: list[np.ndarray] | None = None
    round_index, memory, trace = place
    while True:
        received: list[Answers] = []
        try:
            for request, is_wanted in _requests(
                participants, trainer, round_index, gradients, want_filtered=filtered is None
            ):
                answers = yield request
                if is_wanted:
                    received.append(answers)
        except BudgetSpent as error:
            rounds = int(trace.places[-1, 1]) - 1 if len(trace.places) else 0
            return Place(rounds, memory, trace), str(error)
        messages = _messages(names, received, filtered)
        if trainer.sends_filtered_once:
            filtered = messages.filtered
        record.keep(Place(round_index, memory, trace), trainer)
        memory, gradients = trainer.step(memory, round_index, messages)
        if gradients is not None or not trainer.ends_by_reports:
            num_steps = np.array([float(np.sum(flags)) for flags in messages.observed])
            trace = trace.add(
                round_index,
                memory.losses,
                num_steps,
                rounds_per_pass=trainer.rounds_per_pass,
                rounds_per_row=trainer.rounds_per_row,
            )
        if gradients is None:
            return Place(round_index, memory, trace), ""
        gradients = gradients if protect is None else protect(round_index, gradients)
        if not all((np.abs(own) <= LARGEST_NUMBER).all() for own in gradients):  # also NaN
            raise UnstableRecursionError(
                f"the server's gradients grew beyond {LARGEST_NUMBER:g}; use smaller step sizes or "
                "solver='newton'"
            )
        round_index += 1


def _requests(
    participants: Participants,
    trainer: Trainer,
    round_index: int,
    gradients: list[np.ndarray] | None,
    *,
    want_filtered: bool,
) -> Iterator[tuple[Request, bool]]:
    """Gradients of the round before go down in pieces; with the last, states begin to come up.

    Beside each request: whether its answer brings states.
    """
    spans = trainer.spans(round_index)
    learned = [] if gradients is None else trainer.spans(round_index - 1)
    offsets = np.cumsum([0, *learned])
    last = len(learned) - 1
    pieces = [(k, -1) for k in range(last)]
    pieces += [(last, 0), *((-1, piece) for piece in range(1, len(spans)))]
    for learn, want in pieces:
        values = {
            "round": round_index,
            "learn_piece": learn,
            "learn_pieces": len(learned),
            "want_piece": want,
            "want_filtered": want_filtered,
        }
        arrays = {name: np.zeros((0, 0)) for name in participants.dims}
        if gradients is not None and learn >= 0:
            rows = slice(offsets[learn], offsets[learn + 1])
            arrays = {name: own[rows] for name, own in zip(arrays, gradients, strict=True)}
        request = participants.request("step", values, spans[max(want, 0)])
        by_client = {name: {"gradients": own} for name, own in arrays.items()}
        yield request._replace(arrays=by_client), want >= 0


def _messages(
    names: tuple[str, ...], received: list[Answers], filtered: Sequence[np.ndarray] | None
) -> RoundMessages:
    """Join the pieces; `filtered` are the filtered states when they came in an earlier round."""

    def joined(field: str) -> list[np.ndarray]:
        return [np.concatenate([part[name].arrays[field] for part in received]) for name in names]

    if filtered is None:
        filtered = joined("filtered_states")
    first = [received[0][name].values for name in names]
    reports = None
    if all(values["has_report"] for values in first):
        reports = [(float(values["change"]), float(values["size"])) for values in first]
    return RoundMessages(filtered, joined("augmented_states"), joined("is_observed"), reports)


def with_diagonal(granger: np.ndarray, transitions: Iterable[np.ndarray]) -> np.ndarray:
    """Â with every client's A_mm in its place."""
    out, place = granger.copy(), 0
    for A in transitions:
        out[place : place + len(A), place : place + len(A)] = A
        place += len(A)
    return out
