"""A recurrent network as one vector, and Adam, against plain NumPy."""

import builtins

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedgranger.errors import ConfigError
from fedgranger.recurrent import (
    NetworkShape,
    Trained,
    cut,
    joined,
    pack,
    read_sequences,
    unpack,
    untrained,
    update,
)

SHAPE = NetworkShape(3, 4, 2)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def textbook(weights, inputs, is_start):
    """LSTM with a linear layer, gate by gate (input, forget, cell, output)."""
    n, H, o = SHAPE
    sizes = [4 * H * n, 4 * H * H, 4 * H, o * H, o]
    W, U, b, V, c = np.split(weights, np.cumsum(sizes)[:-1])
    W, U, V = W.reshape(4 * H, n), U.reshape(4 * H, H), V.reshape(o, H)
    out = np.zeros((*inputs.shape[:2], o))
    for s, sequence in enumerate(inputs):
        h = cell = np.zeros(H)
        for t, x in enumerate(sequence):
            if is_start[s, t]:
                h = cell = np.zeros(H)
            i, f, g, q = np.split(W @ x + U @ h + b, 4)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            h = sigmoid(q) * np.tanh(cell)
            out[s, t] = V @ h + c
    return out


def test_network_vs_textbook_loop():
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(SHAPE.num_weights)
    inputs = rng.standard_normal((3, 5, 3))
    is_start = np.zeros((3, 5), dtype=bool)
    is_start[1, 3] = True
    found = read_sequences(SHAPE, jnp.array(weights), jnp.array(inputs), jnp.array(is_start))
    np.testing.assert_allclose(found, textbook(weights, inputs, is_start), atol=1e-12)


def test_adam_vs_textbook():
    rng = np.random.default_rng(1)
    w, m, v = rng.standard_normal(6), np.zeros(6), np.zeros(6)
    trained = Trained(*map(jnp.array, untrained(w)))
    for k in range(1, 4):
        g = rng.standard_normal(6)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        w = w - 0.01 * (m / (1 - 0.9**k)) / (np.sqrt(v / (1 - 0.999**k)) + 1e-8)
        trained = update(trained, jnp.array(g), 0.01)
    np.testing.assert_allclose(trained.weights, w, rtol=1e-9)
    assert float(trained.num_updates) == 3


def test_packed_and_unpacked_is_the_same():
    rng = np.random.default_rng(2)
    trained = Trained(*rng.standard_normal((3, 2, 5)), np.array([3.0, 4.0]))
    for one, other in zip(unpack(pack(trained)), trained, strict=True):
        np.testing.assert_array_equal(one, other)


def test_cut_pads_with_zeros_and_joined_takes_them_off():
    values = np.arange(1.0, 8.0)[:, None]
    sequences = cut(values, 3, 3)
    assert sequences[2].ravel().tolist() == [7, 0, 0]
    np.testing.assert_array_equal(joined(sequences, 7), values)
    assert cut(np.ones(4, dtype=bool), 2, 3).dtype == np.bool_


def test_without_optax_it_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name == "optax":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match=r"pip install 'fedgranger\[nonlinear\]'"):
        jax.eval_shape(lambda w: update(Trained(w, w, w, w[0]), w, 0.1), jnp.zeros(2))
