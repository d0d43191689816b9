"""Exact solves round by round: learners and trainer of a run, without protocol or messages."""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from fedgranger import convergence
from fedgranger.client.augment import AugmentState
from fedgranger.client.learner import NewtonLearner
from fedgranger.client.prepared_client import initial_augmentation
from fedgranger.config import RunConfig
from fedgranger.convergence import Progress
from fedgranger.linalg.blocks import pad_stack, unpack_square
from fedgranger.rounds import RoundState
from fedgranger.runtime.inprocess import Snapshot, TraceRow
from fedgranger.runtime.setup import Setup
from fedgranger.server.granger import ServerState
from fedgranger.server.trainer import NewtonTrainer, RoundMessages, Rows


def solve(setup: Setup, config: RunConfig) -> Iterator[tuple[Snapshot, TraceRow]]:
    """Run rounds until both sides' solves agree, or the last allowed one."""
    starts = [
        initial_augmentation(client.name, client.model.augmentation_shape, config)
        for client in setup.client_data
    ]
    learners = [
        NewtonLearner(client, config, setup.num_pairs, start)
        for client, start in zip(setup.clients, starts, strict=True)
    ]
    gains = np.array([float(client.hello.state_gain) for client in setup.clients])
    transitions = tuple(client.model.self_transition for client in setup.client_data)
    rows = Rows(setup.names, transitions, gains, setup.num_pairs)
    trainer = NewtonTrainer(rows, config, setup.num_pairs)
    memories = [learner.initial() for learner in learners]
    for round_index in range(config.passes + 1):
        sent = [
            learner.send(memory, round_index, 0)
            for learner, memory in zip(learners, memories, strict=True)
        ]
        messages = RoundMessages(
            [message["filtered_states"] for message in sent],
            [message["augmented_states"] for message in sent],
            [message["is_observed"] for message in sent],
            None,
        )
        gradients = trainer.absorb(round_index, messages)
        snapshot = _snapshot(setup, trainer, memories, round_index, is_last=gradients is None)
        unknown = np.full(len(learners), np.nan)
        yield snapshot, TraceRow(round_index, round_index, unknown, trainer.losses.copy())
        if gradients is None:
            return
        memories = [
            learner.learn(memory, round_index + 1, [gradient])
            for learner, memory, gradient in zip(learners, memories, gradients, strict=True)
        ]


def _snapshot(
    setup: Setup, trainer: NewtonTrainer, memories: list, round_index: int, *, is_last: bool
) -> Snapshot:
    p, d = setup.padded_dims
    thetas = pad_stack([memory.augmentation for memory in memories], (p, d))
    rows = unpack_square(trainer.granger, setup.state_dims, p)
    state = RoundState(AugmentState(jnp.asarray(thetas)), ServerState(jnp.asarray(rows)))
    progress = Progress(convergence.start(len(memories)).changes, trainer.distance)
    return Snapshot(round_index, 0, state, state, progress, is_last)
