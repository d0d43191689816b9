r"""What the server expects of the clients' states in normal operation.

Two one-step predictions of each client's states, by ridge regression on training moments: from
its own states alone, and with those of its possible causes. When an anomaly reaches a client
through others, the second prediction fails less than the first, each in units of its usual error:
the others explain a share of it. Noise that clients add to their states is left in: new states
carry the same, so what was usual stays usual.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from threadpoolctl import threadpool_limits

from fedgranger.errors import InferenceError
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.inference.state_moments import weighted_mean
from fedgranger.inference.states import StateSource, lagged_pairs
from fedgranger.linalg.blocks import client_slices
from fedgranger.linalg.smoothing import squared_norms
from fedgranger.linalg.unbroken_steps import rows_at
from fedgranger.manifest_types import NormalFacts

RIDGE = 1e-2
"""Relative to the variance of each state."""
DEVIATION_QUANTILE = 0.99
MOST_NORMS = 200_000


class Reference(NamedTuple):
    """Expectations of all clients' states.

    Attributes:
        names: clients in the order of the states.
        dims: states per client.
        mean: training mean.
        own: prediction from a client's own states, block diagonal.
        cross: prediction from its own and its possible causes' states.
        precision: inverse covariance of the own prediction's errors, block diagonal.
        usual_cross: energy that the second prediction leaves in normal operation (the first: 1).
        deviation_threshold: 99 % quantile of each client's distance from its mean (the paper's τ).
    """

    names: tuple[str, ...]
    dims: tuple[int, ...]
    mean: Float[np.ndarray, " state"]
    own: Float[np.ndarray, "state state"]
    cross: Float[np.ndarray, "state state"]
    precision: Float[np.ndarray, "state state"]
    usual_cross: Float[np.ndarray, " client"]
    deviation_threshold: Float[np.ndarray, " client"]

    @property
    def owner(self) -> Int[np.ndarray, " state"]:
        """Client index of every state."""
        return np.repeat(np.arange(len(self.dims)), self.dims)


class StateEvidence(NamedTuple):
    """What the states of some steps show, per step and client; NaN where unknown.

    Attributes:
        own: energy of the own prediction's error, 1 on average in normal operation.
        cross: energy of the other prediction's error, 1 on average in normal operation too.
        deviation: distance from the mean over its threshold.
        without: [t, m, n], energy of m's cross error when n's contribution is left out.
    """

    own: Float[np.ndarray, "time client"]
    cross: Float[np.ndarray, "time client"]
    deviation: Float[np.ndarray, "time client"]
    without: Float[np.ndarray, "time effect cause"]


def learn_normal(
    source: StateSource, inference: EdgeInference | None
) -> tuple[Reference | None, NormalFacts]:
    """Learn what is normal at the end of a run; say why when that is not possible.

    With tested edges only their causes may explain a client; without, all others.
    """
    allowed = None if inference is None else _tested(inference, source.names)
    try:
        with threadpool_limits(1):  # the same sums on every machine of a run
            reference = learn_reference(source, allowed)
    except InferenceError as error:
        return None, NormalFacts(reason=str(error))
    return reference, NormalFacts(explained_by="all clients" if allowed is None else "edges")


def _tested(inference: EdgeInference, names: tuple[str, ...]) -> Bool[np.ndarray, "effect cause"]:
    allowed = np.zeros((len(names), len(names)), dtype=np.bool_)
    found = inference.edges.loc[inference.edges["is_edge"].fillna(False).astype(bool)]
    for cause, effect in zip(found["cause"], found["effect"], strict=True):
        allowed[names.index(effect), names.index(cause)] = True
    return allowed


def learn_reference(
    source: StateSource, allowed: Bool[np.ndarray, "effect cause"] | None = None
) -> Reference:
    """Learn the expectations from training states; reads the source three times.

    By default everybody is allowed to drive everybody; a client always predicts itself.

    Raises:
        InferenceError: too few complete pairs of steps.
    """
    P, owner, mean = source.total_dim, source.owner, weighted_mean(source)
    G0, G1, after_cov, num = np.zeros((P, P)), np.zeros((P, P)), np.zeros((P, P)), 0
    for pairs in lagged_pairs(source, 1, mean):
        both = pairs.before_observed.all(axis=1) & pairs.after_observed.all(axis=1)
        before, after = (
            rows_at(part, np.flatnonzero(both)) for part in (pairs.before, pairs.after)
        )
        G0 += before.T @ before
        G1 += after.T @ before
        after_cov += after.T @ after
        num += len(before)
    if num < 2 * P:
        raise InferenceError(
            f"{num} complete pairs of steps are too few for {P} states; give more data or use "
            "fewer states"
        )
    G0, G1, after_cov = G0 / num, G1 / num, after_cov / num
    G0_ridge = G0 + RIDGE * np.diag(np.maximum(np.diag(G0), 1e-12))
    M = len(source.dims)
    allowed = np.ones((M, M), dtype=np.bool_) if allowed is None else allowed
    own, cross, precision = np.zeros((P, P)), np.zeros((P, P)), np.zeros((P, P))
    usual = np.ones(M)
    for m in range(M):
        rows = np.flatnonzero(owner == m)
        causes = np.flatnonzero(allowed[m, owner] | (owner == m))
        for matrix, columns in ((own, rows), (cross, causes)):
            gram = G0_ridge[np.ix_(columns, columns)]
            matrix[np.ix_(rows, columns)] = np.linalg.solve(gram, G1[np.ix_(rows, columns)].T).T
        here = np.ix_(rows, rows)
        own_cov = _error_cov(own[rows], rows, G0, G1, after_cov)
        floor = 1e-9 * max(np.trace(own_cov) / len(rows), 1e-12)
        precision[here] = np.linalg.inv(own_cov + floor * np.eye(len(rows)))
        cross_cov = _error_cov(cross[rows], rows, G0, G1, after_cov)
        usual[m] = np.trace(precision[here] @ cross_cov) / len(rows)
    threshold = _deviation_thresholds(source, mean)
    return Reference(source.names, source.dims, mean, own, cross, precision, usual, threshold)


def examine_states(
    reference: Reference,
    states: Float[np.ndarray, "time state"],
    observed: Bool[np.ndarray, "time client"],
    starts: Bool[np.ndarray, " time"],
) -> StateEvidence:
    """Compare new states with the expectations; a step without a predecessor stays unknown."""
    owner, M = reference.owner, len(reference.dims)
    x = np.where(observed[:, owner], states - reference.mean, np.nan)
    before = np.concatenate([np.full((1, x.shape[1]), np.nan), x[:-1]])
    before[starts] = np.nan
    own = np.full((len(x), M), np.nan)
    cross, without = own.copy(), np.full((len(x), M, M), np.nan)
    for m in range(M):
        rows = owner == m
        weight = reference.precision[np.ix_(rows, rows)] / rows.sum()
        own[:, m] = squared_norms(
            x[:, rows] - before[:, rows] @ reference.own[rows][:, rows].T, weight
        )
        used = np.flatnonzero(reference.cross[rows].any(axis=0))
        error = x[:, rows] - before[:, used] @ reference.cross[rows][:, used].T
        weight = weight / reference.usual_cross[m]
        cross[:, m] = squared_norms(error, weight)
        for n in np.unique(owner[used]):
            part = owner == n
            contribution = before[:, part] @ reference.cross[np.ix_(rows, part)].T
            without[:, m, n] = squared_norms(error + contribution, weight)
    parts = [squared_norms(x[:, owner == m], np.eye(dim)) for m, dim in enumerate(reference.dims)]
    deviation = np.sqrt(np.stack(parts, axis=1))
    return StateEvidence(own, cross, deviation / reference.deviation_threshold, without)


def _error_cov(
    matrix: np.ndarray, rows: np.ndarray, G0: np.ndarray, G1: np.ndarray, after_cov: np.ndarray
) -> np.ndarray:
    """Covariance of the errors that predicting `rows` by `matrix` leaves on training data."""
    lagged = matrix @ G1[rows].T
    return after_cov[np.ix_(rows, rows)] - lagged - lagged.T + matrix @ G0 @ matrix.T


def _deviation_thresholds(source: StateSource, mean: np.ndarray) -> np.ndarray:
    """Quantile of the distance from the mean, of at most 200 000 evenly spaced steps."""
    stride = max(1, -(-source.num_steps // MOST_NORMS))
    norms, step = [[] for _ in source.dims], 0
    for chunk in source.chunks():
        rows = slice((-step) % stride, None, stride)
        states, observed = chunk.states[rows] - mean, chunk.observed[rows]
        step += len(chunk.states)
        for m, part in enumerate(client_slices(source.dims)):
            own = rows_at(states[:, part], np.flatnonzero(observed[:, m]))
            norms[m].append(np.sqrt(np.einsum("ti,ti->t", own, own)))
    limits = [np.quantile(np.concatenate(parts), DEVIATION_QUANTILE) for parts in norms]
    return np.maximum(np.array(limits), 1e-12)
