"""Put clients that were left out of the tests back into the tables and arrays, as not tested."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from fedgranger.inference.edges import EdgeInference
from fedgranger.inference.states import StateSource

__all__ = ["widen"]


def widen(found: EdgeInference, source: StateSource, reasons: Mapping[str, str]) -> EdgeInference:
    """The tests of some clients as those of all: NaN wherever one takes part that was left out.

    Args:
        found: of the clients that are not in `reasons`, in the order of the source.
        source: all clients.
        reasons: why a client was left out, by client.
    """
    if not reasons:
        return found
    lags, P = int(found.facts["lags"]), source.total_dim
    names, dims = source.names, dict(zip(source.names, source.dims, strict=True))
    tested = ~np.isin(np.array(names, dtype=object)[source.owner], list(reasons))
    rows = np.flatnonzero(tested)
    where = np.ix_(rows, np.concatenate([k * P + rows for k in range(lags)]))

    def full(part: np.ndarray) -> np.ndarray:
        out = np.full((P, lags * P), np.nan)
        out[where] = part
        return out

    pairs = [
        (cause, effect)
        for effect in names
        for cause in names
        if cause != effect and (cause in reasons or effect in reasons)
    ]
    new = pd.DataFrame(pairs, columns=["cause", "effect"])
    entries = [
        (*pair, row, col)
        for pair in pairs
        for row in range(dims[pair[1]])
        for col in range(lags * dims[pair[0]])
    ]
    facts = found.facts
    facts["reasons"] |= {f"{c} -> {e}": reasons.get(c, reasons.get(e, "")) for c, e in pairs}
    if "mean" in facts:
        mean = np.zeros(P)
        mean[rows] = facts["mean"]
        facts["mean"] = mean.tolist()
    return found._replace(
        transition=full(found.transition),
        std_error=full(found.std_error),
        p_value=full(found.p_value),
        edges=_joined(found.edges, new.assign(df=0, delay=0), names),
        entries=_joined(
            found.entries, pd.DataFrame(entries, columns=["cause", "effect", "row", "col"]), names
        ),
        beside=None if found.beside is None else widen(found.beside, source, reasons),
    )


def _joined(table: pd.DataFrame, new: pd.DataFrame, names: tuple[str, ...]) -> pd.DataFrame:
    """Both tables by effect and cause, with the first one's columns and types."""
    place = {name: k for k, name in enumerate(names)}
    rows = new.reindex(columns=table.columns).astype(table.dtypes.to_dict())
    both = pd.concat([table, rows], ignore_index=True)
    pairs = zip(both["effect"], both["cause"], strict=True)
    key = [len(names) * place[effect] + place[cause] for effect, cause in pairs]
    order = np.argsort(key, kind="stable")
    return both.iloc[order].reset_index(drop=True)
