"""From the sizes seen at the checkpoints of a propagation to its tables."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

from fedgranger.uncertainty.noise import Noise
from fedgranger.uncertainty.record import TRACE_COLUMNS, Propagation
from fedgranger.uncertainty.views import PER_CAUSE, QUANTITIES, Quantities

__all__ = ["Checkpoint", "collect"]

PRIOR_SHARE = 0.01


class Checkpoint(NamedTuple):
    """What is kept of a checkpoint.

    Attributes:
        round: when it was.
        total: sizes of all quantities: (client,), or (client, cause).
        prior: the prior's share of them, when it is told apart.
        granger: means of Â, (client, p, q).
    """

    round: int
    total: dict[str, np.ndarray]
    prior: dict[str, np.ndarray] | None
    granger: np.ndarray


def collect(
    names: tuple[str, ...],
    noise: Noise,
    level: str,
    seen: list[Checkpoint],
    quantities: Quantities,
    augmentation: np.ndarray,
) -> Propagation:
    """Build the record.

    Args:
        names: the clients.
        noise: with the bases in which the quantities are expressed.
        level: "joint" or "blockwise".
        seen: the checkpoints.
        quantities: all clients' quantities at the last of them.
        augmentation: means of θ there, (client, p, d).
    """
    final, means, paths = {}, {}, {}
    for m, (client, basis) in enumerate(zip(names, noise.bases, strict=True)):
        own = jax.tree.map(lambda leaf, m=m: leaf[m], quantities)
        final[client] = _unrotate(own, basis)
        means[client] = (augmentation[m][:, : len(basis)] @ basis.T, seen[-1].granger[m])
        paths[client] = np.stack([one.granger[m] for one in seen])
    prior_time = dict(zip(names, _prior_times(seen), strict=True))
    return Propagation(names, level, _table(names, seen), final, means, paths, prior_time)


def _table(names: tuple[str, ...], seen: list[Checkpoint]) -> pd.DataFrame:
    """One row per client, checkpoint, quantity and cause, in this order."""
    total = _by_client([one.total for one in seen])
    priors = [one.prior for one in seen if one.prior is not None]
    prior = _by_client(priors) if priors else np.full(total.shape, np.nan)
    labels = [
        [(cause, quantity) for quantity in QUANTITIES for cause in _causes(names, client, quantity)]
        for client in names
    ]
    size = total.shape[2]
    pairs = [pair for own in labels for _ in seen for pair in own]
    columns = (
        np.tile(np.repeat([one.round for one in seen], size), len(names)),
        np.repeat(names, len(seen) * size),
        [cause for cause, _ in pairs],
        [quantity for _, quantity in pairs],
        total.ravel(),
        prior.ravel(),
        (total - prior).ravel(),
    )
    return pd.DataFrame(dict(zip(TRACE_COLUMNS, columns, strict=True)))


def _by_client(sizes: list[dict[str, np.ndarray]]) -> np.ndarray:
    """Sizes as (client, checkpoint, quantity and cause)."""
    parts = [np.stack([one[quantity] for one in sizes]) for quantity in QUANTITIES]
    flat = [part.reshape(*part.shape[:2], -1) for part in parts]
    return np.concatenate(flat, axis=2).swapaxes(0, 1)


def _causes(names: tuple[str, ...], client: str, quantity: str) -> list[str]:
    return [name for name in names if name != client] if quantity in PER_CAUSE else [""]


def _prior_times(seen: list[Checkpoint]) -> list[float]:
    """First checkpoint, per client, from which on the prior's share of tr Σ_A stays below 1 %."""
    is_small = np.stack([_is_prior_small(one) for one in seen])
    stays = np.logical_and.accumulate(is_small[::-1])[::-1]
    rounds = np.array([one.round for one in seen], dtype=np.float64)
    return np.where(stays[-1], rounds[stays.argmax(axis=0)], np.inf).tolist()


def _is_prior_small(one: Checkpoint) -> np.ndarray:
    total = one.total["granger_cov"].sum(axis=1)
    if one.prior is None:
        return np.zeros(len(total), dtype=np.bool_)
    return one.prior["granger_cov"].sum(axis=1) < PRIOR_SHARE * total


def _unrotate(found: Quantities, basis: np.ndarray) -> Quantities:
    """Back from the noise's eigenbasis to sensors; padding of sensors removed."""
    d = len(basis)
    turned: dict[str, Any] = {
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
    return found._replace(**turned)
