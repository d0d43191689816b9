"""Granger blocks that change over time, as neural training finds them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class JacobianTrace(NamedTuple):
    """The rows' Jacobians over time, one entry per sequence.

    Attributes:
        first_steps: first time step of every sequence.
        num_steps: how many time steps each is the mean of.
        blocks: J, (sequence, P, P); block [m, n] is the influence of n on m, A_mm included on the
            diagonal.
    """

    first_steps: np.ndarray
    num_steps: np.ndarray
    blocks: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """Mean over all time steps."""
        weights = self.num_steps / self.num_steps.sum()
        return np.einsum("s,sij->ij", weights, self.blocks)
