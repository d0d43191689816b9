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
from fedgranger.server.newton_trainer import NewtonTrainer
from fedgranger.server.round_messages import RoundMessages, Rows


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
    memories, memory = [learner.initial() for learner in learners], trainer.initial()
    for round_index in range(config.passes + 1):
        sent = [
            learner.send(own, round_index, 0)
            for learner, own in zip(learners, memories, strict=True)
        ]
        messages = RoundMessages(
            [message["filtered_states"] for message in sent],
            [message["augmented_states"] for message in sent],
            [message["is_observed"] for message in sent],
            None,
        )
        memory, gradients = trainer.step(memory, round_index, messages)
        thetas = [own.augmentation for own in memories]
        progress = Progress(convergence.start(len(memories)).changes, float(memory.distance))
        state = _state(setup, thetas, trainer.granger(memory))
        snapshot = Snapshot(round_index, 0, state, state, progress, gradients is None)
        unknown = np.full(len(learners), np.nan)
        yield snapshot, TraceRow(round_index, round_index, unknown, memory.losses)
        if gradients is None:
            return
        memories = [
            learner.learn(own, round_index + 1, [gradient])
            for learner, own, gradient in zip(learners, memories, gradients, strict=True)
        ]


def _state(setup: Setup, thetas: list[np.ndarray], granger: np.ndarray) -> RoundState:
    """θ and Â of a round, padded."""
    p, d = setup.padded_dims
    rows = unpack_square(granger, setup.state_dims, p)
    clients = AugmentState(jnp.asarray(pad_stack(thetas, (p, d))))
    return RoundState(clients, ServerState(jnp.asarray(rows)))
