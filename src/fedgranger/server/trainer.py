"""How the server takes part in training: step-wise, by exact solves, or with recurrent rows.

A trainer holds what stays the same in a run; what changes is its memory, all that a restart needs.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np

from fedgranger.config import RunConfig
from fedgranger.server.neural_trainer import NeuralMemory, NeuralTrainer
from fedgranger.server.newton_trainer import NewtonMemory, NewtonTrainer
from fedgranger.server.round_messages import RoundMessages, Rows
from fedgranger.server.row_setup import ServerStepSize
from fedgranger.server.sgd_trainer import SgdMemory, SgdTrainer

Memory = SgdMemory | NewtonMemory | NeuralMemory


@runtime_checkable
class Trainer(Protocol):
    """What stays the same in a run.

    Attributes:
        sends_filtered_once: filtered states come up in the first round only.
        step_sizes: of every row, where there are any.
        rounds_per_pass: rounds that go once through the record.
        rounds_per_row: so many rounds have a row of losses together.
        ends_by_reports: the last round brings only the clients' reports on the pass before it.
        most_rounds: training ends there at the latest.
    """

    sends_filtered_once: bool
    step_sizes: tuple[ServerStepSize, ...]
    rounds_per_pass: int
    rounds_per_row: int
    ends_by_reports: bool
    most_rounds: int

    def initial(self) -> Any:
        """The memory before the first round."""
        ...

    def granger(self, memory: Any) -> np.ndarray:
        """Â without its diagonal blocks, P x P."""
        ...

    def spans(self, round_index: int) -> list[int]:
        """Time steps of every piece of a round."""
        ...

    def step(
        self, memory: Any, round_index: int, messages: RoundMessages
    ) -> tuple[Any, list[np.ndarray] | None]:
        """One round: the next memory and all clients' gradients, None when it was the last."""
        ...


def make_trainer(rows: Rows, config: RunConfig, window: int, message_steps: int) -> Trainer:
    """The trainer that the options ask for."""
    if config.training_solver == "newton":
        return NewtonTrainer(rows, config, message_steps)
    if config.training_solver == "neural":
        return NeuralTrainer(rows, config)
    return SgdTrainer(rows, config, window)
