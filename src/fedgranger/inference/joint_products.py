r"""Does a cause act together with a third client: products of its states with a third one's?

Least squares explain the effect's next states by B: a constant, its own past, the others' and the
cause's, all products of two present states but those of the cause with third clients,
\(\varphi = s_n \otimes s_{\text{third}}\), a curve in every present state (straight lines with
bends at its quantiles), and products of one client's states at each earlier step. Without the
curves a third client that saturates and also moves the cause would look as if both acted together.
What least squares leave of both,

$$u = y - P_B\, y, \qquad \varphi_\perp = \varphi - P_B\, \varphi,$$

has products of mean zero where there is no such influence (`residual_products`). u and φ⊥ are left
by the same rows that B was fitted to, not out of fold: where f is in the span of B, no error of it
is left in \(\sum_t u_t \varphi_{\perp t}\), however slow the states are. Blocks of slow states
are predicted with an error that is as slow, and two slow things are easily taken for linked.

The columns of all pairs of one cause are made once; a pair chooses among them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from fedgranger.inference.cross_fitting import MOST_PRODUCTS, SMALLEST
from fedgranger.inference.nonlinear_test import PairData
from fedgranger.inference.residual_products import JointPart

BENDS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Quantiles of a state at which its curve may bend."""
DEPENDENT = 1e-4
"""A product of whose size B leaves no larger share is a combination of columns but for rounding."""
ROWS_PER_COLUMN = 4
"""Least squares on more columns leave too little of what is tested."""
MOST_CELLS = 40_000_000
"""Rows times columns; every worker holds them twice."""


class _Columns(NamedTuple):
    """What explains any effect, one row per usable step.

    Attributes:
        client: (column, 2), whose states a column holds: a product's two, one client twice in a
            linear column and in a curve; -1 of the constant.
        lag: of a linear column and of one client's earlier products, 0 of the others.
    """

    time: Int[np.ndarray, " row"]
    values: Float[np.ndarray, "row column"]
    client: Int[np.ndarray, "column _"]
    lag: Int[np.ndarray, " column"]


def joint_parts(
    data: PairData, cause: int, lags: Int[np.ndarray, " effect"]
) -> dict[int, JointPart]:
    """Parts of all effects of one cause; none where there are too few rows or clients for it."""
    own_lags = np.maximum(np.asarray(data.source.own_lags), 1)
    M = len(own_lags)
    if M < 3 or joint_refusal(data, cause, lags) is not None:
        return {}
    deep = _depth(lags, cause)
    columns = _columns(data, np.maximum(own_lags, deep), deep)
    X = columns.values
    size = np.sqrt(np.einsum("rc,rc->c", X, X))
    X /= np.where(size > 0, size, 1.0)
    moments = X.T @ X
    out = {}
    for m in (k for k in range(M) if k != cause):
        is_third = _is_third(columns, cause, m)
        is_used = _is_explaining(columns, m, int(own_lags[m]), int(lags[m]) + 1) & ~is_third
        inverse = np.linalg.pinv(moments[np.ix_(is_used, is_used)], rcond=SMALLEST, hermitian=True)
        B = X[:, is_used]
        y, phi = data.at(columns.time, m, 0), X[:, is_third]
        left = y - B @ (inverse @ (B.T @ y))
        shape = phi - B @ (inverse @ moments[np.ix_(is_used, is_third)])
        third = columns.client[is_third]
        other = np.where(third[:, 0] == cause, third[:, 1], third[:, 0])
        own = np.linalg.norm(shape, axis=0) > DEPENDENT * np.linalg.norm(phi, axis=0)
        out[m] = JointPart(left, shape[:, own] * np.sqrt(len(X)), other[own], int(is_used.sum()))
    return out


def third_client(part: JointPart) -> int:
    """The client together with which the cause explains most of the effect."""
    basis, sizes, _ = np.linalg.svd(part.left, full_matrices=False)
    u = basis[:, sizes > SMALLEST * sizes[0]]  # of unit covariance, whichever states depend

    def explained(client: int) -> float:
        X = part.shape[:, part.third == client]
        return float(((X @ np.linalg.lstsq(X, u, rcond=None)[0]) ** 2).sum())

    return max(sorted(set(part.third.tolist())), key=explained)


def joint_refusal(data: PairData, cause: int, lags: Int[np.ndarray, " effect"]) -> str | None:
    """Why products with third clients are not tested, if they are not."""
    own_lags = np.maximum(np.asarray(data.source.own_lags), 1)
    depth, p = _depth(lags, cause), len(data.source.owner)
    products = p * (p + 1) // 2
    if products > MOST_PRODUCTS:
        return f"{p} states have {products} products of two, more than {MOST_PRODUCTS}"
    dims = np.asarray(data.source.dims)
    others = np.delete(np.arange(len(dims)), cause)
    most = max(int(dims @ np.where(np.arange(len(dims)) == m, own_lags, depth)) for m in others)
    earlier = (depth - 1) * int((dims * (dims + 1) // 2).sum())
    columns = 1 + most + products + len(BENDS) * p + earlier
    rows = _rows(data, max(depth, int(own_lags.max())))
    if len(rows) < ROWS_PER_COLUMN * columns:
        return f"{len(rows)} usable rows for {columns} columns"
    if len(rows) * columns > MOST_CELLS:
        return f"{len(rows)} rows of {columns} columns are more than fit in memory"
    return None


def _depth(lags: np.ndarray, cause: int) -> int:
    return int(np.delete(lags, cause).max()) + 1


def _rows(data: PairData, depth: int) -> np.ndarray:
    """Steps whose next one and so many before are there of every client."""
    return np.flatnonzero((data.unbroken[1:] > depth).all(axis=1))


def _columns(data: PairData, depths: Int[np.ndarray, " client"], deep: int) -> _Columns:
    time, owner = _rows(data, int(depths.max())), data.source.owner
    values, client, lag = [np.ones((len(time), 1))], [np.array([[-1, -1]])], [0]
    for k, depth in enumerate(depths.tolist()):
        for step in range(1, depth + 1):
            states = data.at(time, k, step)
            values.append(states)
            client.append(np.full((states.shape[1], 2), k))
            lag += [step] * states.shape[1]
        for step in range(2, deep + 1):
            states = data.at(time, k, step, bounded=True)
            i, j = np.triu_indices(states.shape[1])
            values.append(states[:, i] * states[:, j])
            client.append(np.full((len(i), 2), k))
            lag += [step] * len(i)
    present = data.bounded[time]
    i, j = np.triu_indices(len(owner))
    values.append(present[:, i] * present[:, j])
    client.append(np.stack([owner[i], owner[j]], axis=1))
    lag += [0] * len(i)
    for k in range(len(owner)):
        bends = np.quantile(present[:, k], BENDS)
        values.append(np.maximum(present[:, [k]] - bends, 0.0))
        client.append(np.full((len(bends), 2), owner[k]))
        lag += [0] * len(bends)
    return _Columns(time, np.concatenate(values, axis=1), np.concatenate(client), np.array(lag))


def _is_third(columns: _Columns, cause: int, effect: int) -> np.ndarray:
    """Products of the cause's states with third clients'."""
    is_cause = columns.client == cause
    is_third = (columns.client >= 0) & ~is_cause & (columns.client != effect)
    return is_cause.any(axis=1) & is_third.any(axis=1)


def _is_explaining(columns: _Columns, effect: int, own_lags: int, deep: int) -> np.ndarray:
    """All but lags beyond the effect's own and the others' `deep`."""
    most = np.where(columns.client[:, 0] == effect, own_lags, deep)
    return columns.lag <= most
