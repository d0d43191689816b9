r"""A filter's steps, and how much a change of its state at a step changes all later states.

With \(\Phi_t\) the matrix that carries the state of step t - 1 into step t, a change x of the
state at step t has the energy \(x^\top X_t x\) in the states of step t and all later ones:

$$X_t = I + \Phi_{t+1}^\top X_{t+1} \Phi_{t+1}, \qquad X_T = I.$$
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

CUT, OBSERVED, MISSING = 0, 1, 2
BLOCK_STEPS = 1024


class Steps(NamedTuple):
    """What a filter does at every step.

    Attributes:
        matrices: how the state is carried into a step that is cut from what was before (zero),
            observed, missing.
        kinds: which of the three a step is.
        observed: whether a measurement enters there; a cut step may be observed or not.
        gain: G, how it enters.
    """

    matrices: np.ndarray
    kinds: np.ndarray
    observed: np.ndarray
    gain: np.ndarray

    @property
    def state_dim(self) -> int:
        """Number of states p."""
        return self.gain.shape[0]

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Measurements before each step: of the record (with one more at the end), of segments.

        The second is the number that the record had before the step's segment.
        """
        total = np.concatenate([[0], np.cumsum(self.observed)])
        before_segment = np.where(self.kinds == CUT, total[:-1], 0)
        return total, np.maximum.accumulate(before_segment)


def make_steps(
    transition: np.ndarray,
    correction: np.ndarray,
    gain: np.ndarray,
    observed: np.ndarray,
    starts: np.ndarray,
) -> Steps:
    """Collect the steps of a filter; the first one is a start, whatever `starts` says.

    A measurement of norm at most one acts as one of the smallest number of coordinates: by the
    singular values of the gain, so that a client may have many sensors.
    """
    kinds = np.where(observed, OBSERVED, MISSING)
    kinds[starts] = CUT
    kinds[:1] = CUT
    left, values, _ = np.linalg.svd(gain, full_matrices=False)
    matrices = np.stack([np.zeros_like(transition), correction @ transition, transition])
    return Steps(matrices, kinds, observed, left * values)


def later_energy(steps: Steps) -> np.ndarray:
    r"""\(X_t\) of every step; shape (time, p, p).

    The recursion runs in all blocks of `BLOCK_STEPS` steps at once: first from nothing, which
    gives every block's own part S and product \(\Psi\); then from block to block,
    \(Y_{\text{begin}} = S + \Psi^\top Y_{\text{end}} \Psi\); and again from the right ends.
    """
    kinds = in_blocks(steps.kinds, CUT, BLOCK_STEPS)
    num_blocks, length = kinds.shape
    p = steps.state_dim
    identity = np.eye(p)

    Y, Psi = np.zeros((num_blocks, p, p)), np.tile(identity, (num_blocks, 1, 1))
    for t in reversed(range(length)):
        Phi = steps.matrices[kinds[:, t]]
        Y = carried_back(identity + Y, Phi)
        Psi = Psi @ Phi
    ends = np.zeros((num_blocks, p, p))
    for block in reversed(range(num_blocks - 1)):
        after = block + 1
        ends[block] = symmetric(Y[after] + Psi[after].T @ ends[after] @ Psi[after])

    X = np.empty((num_blocks, length, p, p))
    Y = ends
    for t in reversed(range(length)):
        X[:, t] = identity + Y
        Y = carried_back(X[:, t], steps.matrices[kinds[:, t]])
    return X.reshape(num_blocks * length, p, p)[: len(steps.kinds)]


def energy_after(matrix: np.ndarray, num_steps: int) -> np.ndarray:
    r"""\(X\) when `num_steps` steps with the same matrix follow, by doubling their number."""
    X, Phi = np.zeros_like(matrix), np.eye(len(matrix))  # of the steps so far
    doubled, product = np.eye(len(matrix)), matrix  # of the next 1, 2, 4, ... steps
    remaining = num_steps + 1
    while remaining:
        if remaining % 2:
            X = symmetric(X + Phi.T @ doubled @ Phi)
            Phi = product @ Phi
        doubled = symmetric(doubled + product.T @ doubled @ product)
        product = product @ product
        remaining //= 2
    return X


def in_blocks(values: np.ndarray, filler: object, length: int) -> np.ndarray:
    """Rows of `length` steps (fewer when the record is shorter), the last one filled up."""
    length = min(length, len(values))
    num_blocks = -(-len(values) // length)
    filled = np.full(num_blocks * length, filler, dtype=values.dtype)
    filled[: len(values)] = values
    return filled.reshape(num_blocks, length)


def carried_back(energy: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    r"""\(\Phi^\top E\,\Phi\), exactly symmetric: what is not would grow."""
    return symmetric(np.swapaxes(matrices, -1, -2) @ energy @ matrices)


def symmetric(matrices: np.ndarray) -> np.ndarray:
    """Mean of the matrices and their transposes."""
    return 0.5 * (matrices + np.swapaxes(matrices, -1, -2))
