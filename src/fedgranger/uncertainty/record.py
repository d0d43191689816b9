"""`Propagation`: uncertainty along training, as tables and matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pandas as pd

from fedgranger.errors import RunError
from fedgranger.uncertainty.quantities import PER_CAUSE, QUANTITIES, Quantities
from fedgranger.uncertainty.recursion import Sizes

TRACE_COLUMNS = ("round", "client", "cause", "quantity", "total", "prior", "data")
PRIOR_SHARE = 0.01


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


def make_record(
    names: tuple[str, ...],
    bases: tuple[np.ndarray, ...],
    level: str,
    rounds: list[int],
    sizes: list[Sizes],
    quantities: Quantities,
    augmentation: np.ndarray,
) -> Propagation:
    """Build the record.

    Args:
        names: the clients.
        bases: per client the basis of its sensors in which the quantities are expressed, (d, d).
        level: "joint" or "blockwise".
        rounds: the checkpoints.
        sizes: of all quantities at every checkpoint.
        quantities: all clients' at the last of them.
        augmentation: means of θ there, (client, p, d).
    """
    final, means, paths = {}, {}, {}
    for m, (client, basis) in enumerate(zip(names, bases, strict=True)):
        own = jax.tree.map(lambda leaf, m=m: leaf[m], quantities)
        final[client] = _to_sensors(own, basis)
        means[client] = (augmentation[m][:, : len(basis)] @ basis.T, sizes[-1].granger[m])
        paths[client] = np.stack([one.granger[m] for one in sizes])
    prior_time = dict(zip(names, _prior_times(rounds, sizes), strict=True))
    return Propagation(names, level, _table(names, rounds, sizes), final, means, paths, prior_time)


def _table(names: tuple[str, ...], rounds: list[int], sizes: list[Sizes]) -> pd.DataFrame:
    """One row per client, checkpoint, quantity and cause, in this order."""
    total = _by_client([one.total for one in sizes])
    priors = [one.prior for one in sizes if one.prior is not None]
    prior = _by_client(priors) if priors else np.full(total.shape, np.nan)
    labels = [
        (number, client, cause, quantity)
        for client in names
        for number in rounds
        for quantity in QUANTITIES
        for cause in _causes(names, client, quantity)
    ]
    table = pd.DataFrame(labels, columns=TRACE_COLUMNS[:4])
    return table.assign(total=total.ravel(), prior=prior.ravel(), data=(total - prior).ravel())


def _by_client(sizes: list[dict[str, np.ndarray]]) -> np.ndarray:
    """Sizes as (client, checkpoint, quantity and cause)."""
    parts = [np.stack([one[quantity] for one in sizes]) for quantity in QUANTITIES]
    flat = [part.reshape(*part.shape[:2], -1) for part in parts]
    return np.concatenate(flat, axis=2).swapaxes(0, 1)


def _causes(names: tuple[str, ...], client: str, quantity: str) -> list[str]:
    return [name for name in names if name != client] if quantity in PER_CAUSE else [""]


def _prior_times(rounds: list[int], sizes: list[Sizes]) -> list[float]:
    """First checkpoint, per client, from which on the prior's share of tr Σ_A stays below 1 %."""
    total = np.stack([one.total["granger_cov"].sum(axis=1) for one in sizes])
    prior = [one.prior["granger_cov"].sum(axis=1) for one in sizes if one.prior is not None]
    is_small = np.stack(prior) < PRIOR_SHARE * total if prior else np.zeros_like(total, dtype=bool)
    stays = np.logical_and.accumulate(is_small[::-1])[::-1]
    first = np.array(rounds, dtype=np.float64)[stays.argmax(axis=0)]
    return np.where(stays[-1], first, np.inf).tolist()


def _to_sensors(found: Quantities, basis: np.ndarray) -> Quantities:
    """Back from the noise's eigenbasis to sensors; padding of sensors removed."""
    d = len(basis)
    rotated: dict[str, Any] = {
        "augmentation_cov": np.einsum(
            "ajbl,cj,el->acbe", found.augmentation_cov[:, :d, :, :d], basis, basis, optimize=True
        ),
        "granger_augmentation_cov": found.granger_augmentation_cov[..., :d] @ basis.T,
        "augmentation_data_cov": np.einsum(
            "ajl,cj,el->ace", found.augmentation_data_cov[:, :d, :d], basis, basis
        ),
        "augmentation_state_cov": np.einsum(
            "aji,cj->aci", found.augmentation_state_cov[:, :d], basis
        ),
    }
    return found._replace(**rotated)
