r"""Uncertainty of the server's Jacobian by an ensemble of neural trainings, all at once.

Every member is one training (`client.neural_augment`, `server.neural_rows`) with noise of its own:

- \(\Sigma_y\): a second measurement, noise of this variance on every sensor in the units of its
  local model; the member filters its own record.
- \(\Sigma_W\): noise of this variance on every first weight of the server's networks.

After every pass the spread over members tells how uncertain the Granger blocks still are:
\(\operatorname{tr}\operatorname{Cov}(J_{mn}^t)\), averaged over the time steps t of one round (the
paper's appendix on nonlinear experiments has it along training). It says how far the answer depends
on noise and first weights; it does not say how far another record would give another answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import lax
from jaxtyping import Array

from fedgranger.client import neural_augment
from fedgranger.client.client_side import start_shape
from fedgranger.client.neural_augment import Prediction, SequenceWindow
from fedgranger.client.neural_learner import NeuralLearner, network_shape
from fedgranger.client.nonlinear_states import OwnModel, own_model
from fedgranger.client.prepared_client import PreparedClient, initial_augmentation
from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.linalg.blocks import pack_square
from fedgranger.linalg.jax_arrays import jax_array
from fedgranger.recurrent import NetworkShape, Trained, untrained
from fedgranger.runtime.setup import set_up
from fedgranger.server import neural_rows
from fedgranger.server.granger import stack_states
from fedgranger.server.neural_rows import NeuralParams, SequenceMessages
from fedgranger.server.neural_trainer import (
    first_weights,
    row_params,
    row_shape,
    sequence_messages,
)
from fedgranger.server.round_messages import RoundMessages, Rows

COLUMNS = ["round", "client", "cause", "trace", "strength"]


@dataclass(frozen=True)
class EnsembleOptions:
    """How many members, Σ_y per sensor, Σ_W per weight, and the seed of both."""

    num_members: int = 8
    noise_var: float = 0.0
    weight_var: float = 0.0
    seed: int = 0


class MemberShapes(NamedTuple):
    """What all members share: sizes of the networks, predictions, learning rates."""

    clients: tuple[NetworkShape, ...]
    row: NetworkShape
    predictions: tuple[Prediction, ...]
    client_rate: float
    server_rate: float


class MemberState(NamedTuple):
    """One member: every client's network, and the server's rows with a leading client axis."""

    clients: tuple[Trained, ...]
    rows: Trained


class MemberInputs(NamedTuple):
    """What one round reads: every client's window, messages without h_a, breaks of time."""

    windows: tuple[SequenceWindow, ...]
    messages: SequenceMessages
    is_start: Array


def round_step(
    shapes: MemberShapes, params: NeuralParams, state: MemberState, inputs: MemberInputs
) -> MemberState:
    """One round of one member: clients send, the server answers, both sides step."""
    p = shapes.row.output_dim
    each = list(zip(shapes.clients, state.clients, inputs.windows, strict=True))
    sent = [neural_augment.augmented_states(shape, now.weights, w) for shape, now, w in each]
    padded = [jnp.pad(h_a, ((0, 0), (0, 0), (0, p - h_a.shape[2]))) for h_a in sent]
    messages = eqx.tree_at(lambda m: m.augmented_states, inputs.messages, jnp.stack(padded))
    rows, replies, _ = neural_rows.answer(
        shapes.row, shapes.server_rate, params, state.rows, messages, inputs.is_start
    )
    clients = tuple(
        neural_augment.step(shape, predict, shapes.client_rate, now, w, reply[..., : h.shape[2]])[0]
        for (shape, now, w), predict, reply, h in zip(
            each, shapes.predictions, replies, sent, strict=True
        )
    )
    return MemberState(clients, rows)


@eqx.filter_jit
def _pass(
    shapes: MemberShapes, params: NeuralParams, states: MemberState, rounds: MemberInputs
) -> MemberState:
    """All members through all rounds; `rounds` has leading axes (round, member)."""
    members = jax.vmap(lambda state, inputs: round_step(shapes, params, state, inputs))
    return lax.scan(lambda now, inputs: (members(now, inputs), None), states, rounds)[0]


@eqx.filter_jit
def _jacobians(
    shapes: MemberShapes, params: NeuralParams, states: MemberState, inputs: MemberInputs
) -> Array:
    """J of all members over one round: (member, client, sequence, step, p, client * p)."""

    def of_member(weights: Array, messages: SequenceMessages, is_start: Array) -> Array:
        stacked = stack_states(messages.filtered_states)
        return neural_rows.jacobians(shapes.row, params, weights, stacked, is_start)

    return jax.vmap(of_member)(states.rows.weights, inputs.messages, inputs.is_start)


def run_ensemble(panel: Panel, config: RunConfig, options: EnsembleOptions) -> pd.DataFrame:
    """Train all members; spread and size of every Granger block after every pass.

    Returns:
        Columns `COLUMNS`: `trace` is tr Cov(J_mn) over members, `strength` the norm of the mean of
        J_mn over members and time steps. Round 0 is before training.
    """
    with jax.enable_x64(True):
        starts = panel.segment_starts
        owned = [
            own_model(client, panel[client.data.name], starts, config)
            for client in set_up(panel, config).clients
        ]
        clients = tuple(own.prepared for own in owned)
        rows = _rows(clients, panel)
        shapes = MemberShapes(
            tuple(network_shape(d.num_sensors, d.state_dim, config) for d in _models(clients)),
            row_shape(rows.dims, config),
            tuple(own.predict for own in owned),
            config.client_learning_rate,
            config.server_learning_rate,
        )
        rng = np.random.default_rng(options.seed)
        inputs = _stacked(
            [
                _member_inputs(panel, owned, rows, config, options, rng)
                for _ in range(options.num_members)
            ]
        )
        states, params = (
            _first_states(clients, rows, config, options, rng),
            row_params(rows, config),
        )
        num_rounds = inputs.is_start.shape[0]
        middle = jax.tree.map(lambda leaf: leaf[num_rounds // 2], inputs)
        table = []
        for k in range(config.network_passes + 1):
            if k:
                states = _pass(shapes, params, states, inputs)
            found = np.asarray(_jacobians(shapes, params, states, middle))
            table += _spread(k * num_rounds, rows, found)
    return pd.DataFrame(table, columns=COLUMNS)


def _models(clients: tuple[PreparedClient, ...]) -> list:
    return [client.data.model for client in clients]


def _rows(clients: tuple[PreparedClient, ...], panel: Panel) -> Rows:
    return Rows(
        tuple(client.data.name for client in clients),
        tuple(np.asarray(client.hello.self_transition) for client in clients),
        np.array([float(client.hello.state_gain) for client in clients]),
        panel.num_steps - 1,
        panel.segment_starts,
    )


def _member_inputs(
    panel: Panel,
    owned: list[OwnModel],
    rows: Rows,
    config: RunConfig,
    options: EnsembleOptions,
    rng: np.random.Generator,
) -> MemberInputs:
    """A member's own measurements, filtered and cut; leading axis: rounds of a pass."""
    learners, starts = [], panel.segment_starts
    for own in owned:
        client, model = panel[own.prepared.data.name], own.prepared.data.model
        noise = np.sqrt(options.noise_var) * rng.standard_normal(client.values.shape)
        noisy = replace(client, values=client.values + model.scale * noise)
        prepared = own.prepared._replace(data=own.filter(noisy))
        learners.append(NeuralLearner(prepared, config, np.zeros(0), starts, own.predict))
    rounds = []
    for k in range(learners[0].num_windows):
        windows = tuple(learner.window(k) for learner in learners)
        spans = [learner.filtered(k) for learner in learners]
        states, flags = [h for h, _ in spans], [flag for _, flag in spans]
        first = k * config.batch_steps
        breaks = rows.starts[first : first + len(states[0])]
        sent = RoundMessages(states, states, flags, None)
        messages = sequence_messages(sent, breaks, learners[0].cut)
        rounds.append(MemberInputs(windows, messages, jax_array(learners[0].cut(breaks))))
    return _stacked(rounds, axis=0)


def _stacked(parts: list[MemberInputs], axis: int = 1) -> MemberInputs:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves, axis=axis), *parts)


def _first_states(
    clients: tuple[PreparedClient, ...],
    rows: Rows,
    config: RunConfig,
    options: EnsembleOptions,
    rng: np.random.Generator,
) -> MemberState:
    """The run's first weights, with noise on the server's."""
    K = options.num_members
    server = first_weights(rows.names, row_shape(rows.dims, config), config)
    noise = np.sqrt(options.weight_var) * rng.standard_normal((K, *server.shape))

    def repeated(client: PreparedClient) -> Trained:
        shape = start_shape(client.data.model, config)
        weights = initial_augmentation(client.data.name, shape, config)
        return _on_device(untrained(np.repeat(weights[None], K, axis=0)))

    return MemberState(tuple(map(repeated, clients)), _on_device(untrained(server + noise)))


def _on_device(trained: Trained) -> Trained:
    return Trained(*map(jax_array, trained))


def _spread(round_index: int, rows: Rows, jacobians: np.ndarray) -> list[tuple]:
    """Rows of the table for one checkpoint, off the diagonal."""
    by_step = np.moveaxis(jacobians, 1, 3)  # member, sequence, step, client, p, client * p
    num_members = by_step.shape[0]
    variances = by_step.var(axis=0, ddof=1 if num_members > 1 else 0).mean(axis=(0, 1))
    means = by_step.mean(axis=(0, 1, 2))
    V, J = pack_square(variances, rows.dims), pack_square(means, rows.dims)
    ends = np.cumsum(rows.dims)
    own = [slice(end - dim, end) for end, dim in zip(ends, rows.dims, strict=True)]
    return [
        (
            round_index,
            effect,
            cause,
            float(V[own[m], own[n]].sum()),
            float(np.linalg.norm(J[own[m], own[n]])),
        )
        for m, effect in enumerate(rows.names)
        for n, cause in enumerate(rows.names)
        if m != n
    ]
