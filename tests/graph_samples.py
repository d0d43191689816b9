"""Data from graphs that are known, for the tests of the compared methods."""

import numpy as np

import fedgranger
from fedgranger_research.baselines.federated_methods import METHODS
from fedgranger_research.baselines.method_protocol import Columns


def fit_method(name, columns, **options):
    """What a federated method of that name finds."""
    return METHODS[name].fit(columns, options)


def random_graph(rng, num_variables, num_edges):
    """A directed acyclic graph, `[cause, effect]`, and an order of its variables."""
    order = rng.permutation(num_variables)
    later = np.argwhere(np.triu(np.ones((num_variables, num_variables)), 1))
    chosen = later[rng.choice(len(later), num_edges, replace=False)]
    edges = np.zeros((num_variables, num_variables), dtype=bool)
    edges[order[chosen[:, 0]], order[chosen[:, 1]]] = True
    return edges, order


def random_weights(rng, edges, low=0.5, high=1.5):
    """Weights of both signs on these edges."""
    return edges * rng.uniform(low, high, edges.shape) * rng.choice([-1.0, 1.0], edges.shape)


def linear_samples(rng, weights, num_samples):
    """X = XW + E with standard Gaussian noise."""
    noise = rng.normal(size=(num_samples, len(weights)))
    return np.linalg.solve((np.eye(len(weights)) - weights).T, noise.T).T


def nonlinear_samples(rng, edges, order, num_samples):
    """Every effect is a sum of sines of its causes, with Gaussian noise."""
    X = 0.7 * rng.normal(size=(num_samples, len(edges)))
    speed = random_weights(rng, edges, 0.8, 2.0)
    for i in order:
        X[:, i] += 2.0 * np.sin(X * speed[:, i])[:, edges[:, i]].sum(axis=1)
    return X


def network_series(rng, present, past, num_steps, burn_in=100):
    """x_t = x_t W + x_{t−1} A + e: a dynamic Bayesian network."""
    dim = len(present)
    forward = np.linalg.inv(np.eye(dim) - present)
    x, out = np.zeros(dim), []
    for _ in range(num_steps + burn_in):
        x = (x @ past + rng.normal(size=dim)) @ forward
        out.append(x)
    return np.array(out[burn_in:])


def columns_of(series, dims, starts=(0,)):
    """Split one array of series among clients."""
    parts = np.split(series, np.cumsum(dims)[:-1], axis=1)
    return Columns(
        tuple(f"client{k + 1}" for k in range(len(dims))),
        tuple(parts),
        np.isin(np.arange(len(series)), starts),
        tuple(np.zeros((dim, dim)) for dim in dims),
    )


def paper_columns(seed):
    """Six clients with two states and eight sensors; their least-squares states, and the truth."""
    panel, truth = fedgranger.simulate(6, 2000, state_dims=2, sensor_dims=8, seed=seed)
    states = [
        np.linalg.lstsq(truth.observation_matrices[client.name], client.values.T)[0].T
        for client in panel.clients
    ]
    return columns_of(np.hstack(states), (2,) * 6), truth.transition != 0


def f1_score(found, true):
    """2TP / (found + true)."""
    return 2 * (found & true).sum() / (found.sum() + true.sum())
