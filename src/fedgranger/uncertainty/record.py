"""`Propagation`: uncertainty along training, as tables and matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.errors import RunError
from fedgranger.uncertainty.views import QUANTITIES, Quantities

__all__ = ["PER_CAUSE", "Propagation", "sizes"]

PER_CAUSE = ("granger_cov", "granger_augmentation_cov", "granger_state_cov")
"""Quantities that belong to a pair (effect, cause); the others belong to a client."""

TRACE_COLUMNS = ("round", "client", "cause", "quantity", "total", "prior", "data")


@dataclass(frozen=True, eq=False)
class Propagation:
    """Mean and covariance of every row along one pass over the data.

    Attributes:
        clients: names in the order of the arrays.
        level: "joint" or "blockwise".
        table: columns round, client, cause, quantity, total, prior, data: traces (Frobenius norms
            of cross-covariances); `prior` is the part that comes from the prior (epistemic),
            `data` the part from measurement noise (aleatoric). Empty prior and data: not split.
        final: all quantities at the last round, per client.
        means: mean of θ and of Â (its cross-client blocks side by side) at the end, per client.
        granger_paths: mean of Â at every round of the table, (round, p, q) per client.
        prior_time: rounds after which the prior is below 1 % of Σ_A's trace, per client; infinite
            when that was not reached.
    """

    clients: tuple[str, ...]
    level: str
    table: pd.DataFrame
    final: dict[str, Quantities]
    means: dict[str, tuple[np.ndarray, np.ndarray]]
    granger_paths: dict[str, np.ndarray]
    prior_time: dict[str, float]

    def trace(self, quantity: str, client: str, cause: str = "") -> pd.DataFrame:
        """Rows of the table for one quantity, by round."""
        if quantity not in QUANTITIES:
            raise RunError(f"no quantity '{quantity}'; choose one of {', '.join(QUANTITIES)}")
        table = self.table
        rows = (table["quantity"] == quantity) & (table["client"] == client)
        return table.loc[rows & (table["cause"] == cause)].reset_index(drop=True)


def sizes(found: Quantities, causes: int) -> dict[str, Any]:
    """Traces of covariances, Frobenius norms of cross-covariances; one per cause where it has any.

    Args:
        found: the quantities of one row, as NumPy arrays.
        causes: number of other clients; Â's columns are split evenly among them.
    """
    granger = _by_cause(np.asarray(found.granger_cov), causes)
    p = found.state_cov.shape[0]
    between = found.granger_augmentation_cov.reshape(
        p, causes, -1, *found.augmentation_cov.shape[:2]
    )
    state = found.granger_state_cov.reshape(p, causes, -1, p)
    return {
        "augmentation_cov": np.einsum("ijij->", found.augmentation_cov),
        "granger_cov": np.einsum("nijij->n", granger),
        "granger_augmentation_cov": np.sqrt((between**2).sum(axis=(0, 2, 3, 4))),
        "augmentation_data_cov": np.linalg.norm(found.augmentation_data_cov),
        "augmentation_state_cov": np.linalg.norm(found.augmentation_state_cov),
        "granger_state_cov": np.sqrt((state**2).sum(axis=(0, 2, 3))),
        "state_cov": np.trace(found.state_cov),
        "gradient_cov": np.trace(found.gradient_cov),
    }


def _by_cause(granger_cov: np.ndarray, causes: int) -> np.ndarray:
    """Blocks of single causes, (cause, p, s, p, s), from either level."""
    groups, p, size = granger_cov.shape[:3]
    if groups == causes:
        return granger_cov
    width = size // causes
    full = granger_cov[0].reshape(p, causes, width, p, causes, width)
    return np.stack([full[:, n, :, :, n] for n in range(causes)])
