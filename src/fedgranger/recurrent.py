r"""A small recurrent network and how it learns: LSTM, a linear layer, Adam.

Both sides of neural training use it, the client for its correction and the server for its rows
(the paper's appendix on nonlinear experiments, table of architectures). A network reads a sequence
of time steps and gives an output at every one of them:

$$(m^t, c^t) = \text{LSTM}(x^t, m^{t-1}, c^{t-1}), \qquad o^t = W m^t + b$$

Its memory is empty at the first step of a sequence and wherever the record has a break. All weights
are one flat vector, so that a run's state is arrays whatever the architecture; Adam's moments are
vectors of the same length.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float

from fedgranger.errors import ConfigError


class NetworkShape(NamedTuple):
    """Sizes of a network: inputs, memory (the paper's hidden dimension), outputs."""

    input_dim: int
    hidden_dim: int
    output_dim: int

    @property
    def num_weights(self) -> int:
        """Length of the flat vector of its weights."""
        gates = 4 * self.hidden_dim * (self.input_dim + self.hidden_dim + 1)
        return gates + self.output_dim * (self.hidden_dim + 1)


class RecurrentNetwork(eqx.Module):
    """One layer of LSTM and a linear layer."""

    cell: eqx.nn.LSTMCell
    readout: eqx.nn.Linear


class Trained(NamedTuple):
    """A network in training: weights, Adam's two moments of the gradient, number of updates."""

    weights: Float[Array, "*batch weight"]
    first_moment: Float[Array, "*batch weight"]
    second_moment: Float[Array, "*batch weight"]
    num_updates: Float[Array, "*batch"]


def untrained(weights: np.ndarray) -> Trained:
    """Before the first update; `weights` may have leading axes."""
    zeros = np.zeros_like(weights)
    return Trained(weights, zeros, zeros, np.zeros(weights.shape[:-1]))  # type: ignore[arg-type]


def pack(trained: Trained) -> np.ndarray:
    """One vector of all that a restart needs (with leading axes: one for each)."""
    w, m, v, k = (np.asarray(part) for part in trained)
    return np.concatenate([w, m, v, k[..., None]], axis=-1)


def unpack(vector: np.ndarray) -> Trained:
    """Undo `pack`."""
    size = (vector.shape[-1] - 1) // 3
    w, m, v = (vector[..., k * size : (k + 1) * size] for k in range(3))
    return Trained(w, m, v, vector[..., -1])  # type: ignore[arg-type]


@functools.lru_cache(maxsize=64)
def _unravel(shape: NetworkShape) -> Callable[[Array], RecurrentNetwork]:
    """From the flat vector to the network, whose layers are made without weights of their own."""

    def made(key: Array) -> RecurrentNetwork:
        cell = eqx.nn.LSTMCell(shape.input_dim, shape.hidden_dim, dtype=jnp.float64, key=key)
        readout = eqx.nn.Linear(shape.hidden_dim, shape.output_dim, dtype=jnp.float64, key=key)
        return RecurrentNetwork(cell, readout)

    with jax.enable_x64(True):
        leaves, tree = jax.tree.flatten(eqx.filter_eval_shape(made, jax.random.key(0)))
    ends = np.cumsum([leaf.size for leaf in leaves])
    if ends[-1] != shape.num_weights:
        raise RuntimeError(f"the network has {ends[-1]} weights, not {shape.num_weights}")

    def unravel(weights: Array) -> RecurrentNetwork:
        parts = jnp.split(weights, ends[:-1])
        cut = (part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True))
        return jax.tree.unflatten(tree, cut)

    return unravel


def network_of(shape: NetworkShape, weights: Float[Array, " weight"]) -> RecurrentNetwork:
    """The network that these weights are of."""
    return _unravel(shape)(weights)


Memory = tuple[Array, Array]
"""Hidden state and cell of the LSTM."""


def empty_memory(shape: NetworkShape) -> Memory:
    """What a network remembers at the first step of a sequence: nothing."""
    return jnp.zeros(shape.hidden_dim), jnp.zeros(shape.hidden_dim)


def read_step(
    network: RecurrentNetwork, memory: Memory, inputs: Float[Array, " input"], is_start: Array
) -> tuple[Memory, Float[Array, " output"]]:
    """One time step: new memory and output."""
    kept = tuple(jnp.where(is_start, 0.0, part) for part in memory)
    after = network.cell(inputs, kept)
    return after, network.readout(after[0])


def read_sequences(
    shape: NetworkShape,
    weights: Float[Array, " weight"],
    inputs: Float[Array, "sequence step input"],
    is_start: Bool[Array, "sequence step"],
) -> Float[Array, "sequence step output"]:
    """Outputs at every step of some sequences, each read from an empty memory."""
    network = network_of(shape, weights)

    def read(inputs: Array, is_start: Array) -> Array:
        def advance(memory: Memory, now: tuple[Array, Array]) -> tuple[Memory, Array]:
            return read_step(network, memory, *now)

        return lax.scan(advance, empty_memory(shape), (inputs, is_start))[1]

    return jax.vmap(read)(inputs, is_start)


def require_optax() -> Any:
    """Optax, which only neural training needs.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        import optax
    except ImportError:
        raise ConfigError(
            "solver='neural' needs optax; install it with: pip install 'fedgranger[nonlinear]'"
        ) from None
    return optax


def update(trained: Trained, gradient: Float[Array, " weight"], learning_rate: float) -> Trained:
    """One step of Adam."""
    optax = require_optax()
    w, m, v, k = trained
    before = optax.ScaleByAdamState(count=k.astype(jnp.int32), mu=m, nu=v)
    with jax.numpy_dtype_promotion("standard"):  # Optax counts in whole numbers
        direction, after = optax.scale_by_adam().update(gradient, before)
    return Trained(w - learning_rate * direction, after.mu, after.nu, k + 1)


def cut(values: np.ndarray, num_sequences: int, sequence_steps: int) -> np.ndarray:
    """Cut time steps into sequences of equal length, padded at the end with zeros (False)."""
    padding = num_sequences * sequence_steps - len(values)
    padded = np.concatenate([values, np.zeros((padding, *values.shape[1:]), dtype=values.dtype)])
    return padded.reshape(num_sequences, sequence_steps, *values.shape[1:])


def joined(sequences: np.ndarray, num_steps: int) -> np.ndarray:
    """Undo `cut`."""
    return sequences.reshape(-1, *sequences.shape[2:])[:num_steps]
