"""From the quantities seen at the checkpoints of a propagation to its tables."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pandas as pd

from fedgranger.uncertainty.noise import Noise
from fedgranger.uncertainty.record import PER_CAUSE, TRACE_COLUMNS, Propagation, sizes
from fedgranger.uncertainty.views import Quantities

__all__ = ["collect"]

PRIOR_SHARE = 0.01


def collect(
    names: tuple[str, ...], noise: Noise, level: str, marks: list[int], seen: list[tuple]
) -> Propagation:
    """Build the record.

    Args:
        names: the clients.
        noise: with the bases in which the quantities are expressed.
        level: "joint" or "blockwise".
        marks: rounds of the checkpoints.
        seen: at every checkpoint, ((all quantities, the prior's share), means), of all clients.
    """
    table, final, means, paths, prior_time = [], {}, {}, {}, {}
    for m, client in enumerate(names):
        found = [_at(m, stop[0][0]) for stop in seen]
        priors = [None if stop[0][1] is None else _at(m, stop[0][1]) for stop in seen]
        causes = [name for name in names if name != client]
        totals = [sizes(one, len(causes)) for one in found]
        shares = [None if one is None else sizes(one, len(causes)) for one in priors]
        for mark, total, share in zip(marks, totals, shares, strict=True):
            table.extend(_table_rows(mark, client, causes, total, share))
        basis = noise.bases[m]
        last = seen[-1][1]
        theta = np.asarray(last.augmentation[m])[:, : len(basis)] @ basis.T
        final[client] = _unrotate(found[-1], basis)
        means[client] = (theta, np.asarray(last.granger[m]))
        paths[client] = np.stack([np.asarray(mean.granger[m]) for _, mean in seen])
        prior_time[client] = _prior_time(marks, totals, shares)
    frame = pd.DataFrame(table, columns=list(TRACE_COLUMNS))
    return Propagation(names, level, frame, final, means, paths, prior_time)


def _at(place: int, stacked: Quantities) -> Quantities:
    return jax.tree.map(lambda leaf: np.asarray(leaf[place]), stacked)


def _prior_time(marks: list[int], totals: list[dict], shares: list[dict | None]) -> float:
    """First checkpoint from which on the prior's share of tr Σ_A stays below 1 %."""
    last = float("inf")
    for mark, total, share in zip(reversed(marks), reversed(totals), reversed(shares), strict=True):
        if share is None or share["granger_cov"].sum() >= PRIOR_SHARE * total["granger_cov"].sum():
            break
        last = float(mark)
    return last


def _table_rows(
    mark: int, client: str, causes: list[str], totals: dict[str, Any], priors: dict | None
) -> list[tuple]:
    out = []
    for quantity, total in totals.items():
        prior = np.full(np.shape(total), np.nan) if priors is None else priors[quantity]
        labels = causes if quantity in PER_CAUSE else [""]
        values = zip(labels, np.atleast_1d(total), np.atleast_1d(prior), strict=True)
        out.extend(
            (mark, client, cause, quantity, float(all_), float(part), float(all_ - part))
            for cause, all_, part in values
        )
    return out


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
