"""`Propagation`: uncertainty along training, as tables and matrices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fedgranger.errors import RunError
from fedgranger.uncertainty.views import QUANTITIES, Quantities

__all__ = ["Propagation"]

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
