"""Granger blocks that change over time, as neural training finds them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class JacobianTrace(NamedTuple):
    """The rows' Jacobians over time, one entry per sequence.

    Attributes:
        first_steps: first time step of every sequence.
        num_steps: how many time steps each is the mean of.
        blocks: mean of J, (sequence, P, P); block [m, n] is the influence of n on m, A_mm included
            on the diagonal.
        squares: mean of J², entry by entry.
    """

    first_steps: np.ndarray
    num_steps: np.ndarray
    blocks: np.ndarray
    squares: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Mean over all time steps."""
        return self._over_time(self.blocks)

    @property
    def root_mean_square(self) -> np.ndarray:
        """Size of J over all time steps, entry by entry.

        An influence that changes its sign, such as that of a square, has a mean of about zero and
        shows here; what the network makes of noise shows here too.
        """
        return np.sqrt(self._over_time(self.squares))

    def strengths(self, dims: tuple[int, ...], *, is_mean: bool = True) -> np.ndarray:
        """Frobenius norm of every block, (effect, cause), of the mean or of the size."""
        whole = self.mean if is_mean else self.root_mean_square
        starts = np.concatenate([[0], np.cumsum(dims)[:-1]])
        squares = np.add.reduceat(np.add.reduceat(whole**2, starts, axis=0), starts, axis=1)
        return np.sqrt(squares)

    def _over_time(self, parts: np.ndarray) -> np.ndarray:
        return np.einsum("s,sij->ij", self.num_steps / self.num_steps.sum(), parts)
