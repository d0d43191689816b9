"""Tables of a result: responses, coefficients lag by lag, FedGC's blocks; all pure functions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from fedgranger.errors import RunError
from fedgranger.inference.edge_tables import EDGE_COLUMNS, ENTRY_COLUMNS, EdgeInference
from fedgranger.tested_facts import InferenceFacts
from fedgranger.text import did_you_mean

RESPONSE_COLUMNS = (
    *("cause", "effect", "cause_sensor", "effect_sensor"),
    *("step", "change", "low", "high", "variance_share", "r2_gained"),
)
COEFFICIENT_COLUMNS = (
    *("cause", "effect", "lag", "row", "col"),
    *("estimate", "std_error", "p_value"),
)


def check_client(name: str, clients: Sequence[str]) -> None:
    """Refuse a name that no client of the run has."""
    if name not in clients:
        nearest = did_you_mean(str(name), clients)
        raise RunError(f"no client '{name}'; the run has {', '.join(clients)}{nearest}")


def of_pair(
    table: pd.DataFrame, clients: Sequence[str], cause: str | None, effect: str | None
) -> pd.DataFrame:
    """The rows with this cause and this effect; None: with any.

    Raises:
        RunError: the run has no such client.
    """
    for column, name in (("cause", cause), ("effect", effect)):
        if name is not None:
            check_client(name, clients)
            table = table.loc[table[column] == name]
    return table.reset_index(drop=True)


def state_slices(clients: Sequence[str], dims: Sequence[int]) -> dict[str, slice]:
    """Every client's places among all states."""
    ends = np.cumsum(dims).tolist()
    return {name: slice(end - dim, end) for name, dim, end in zip(clients, dims, ends, strict=True)}


def coefficient_table(
    clients: Sequence[str],
    dims: Sequence[int],
    found: EdgeInference,
    *,
    within: bool,
) -> pd.DataFrame:
    """One row per entry of Â = [Â¹ … Âᴸ] that an equation has, by effect, cause, lag, row, col.

    p-values are those of `entries` where that has them. Columns `COEFFICIENT_COLUMNS`.
    """
    P, places = sum(dims), state_slices(clients, dims)
    estimates, p_values = found.transition, _p_values(found, places, P)
    lags, rows = estimates.shape[1] // P, []
    for effect, cause in itertools.product(clients, clients):
        if effect == cause and not within:
            continue
        shape = (P, lags, P)
        parts = (estimates, found.std_error, p_values)
        blocks = (part.reshape(shape)[places[effect], :, places[cause]] for part in parts)
        value, error, p = (block.transpose(1, 0, 2) for block in blocks)
        known = np.isfinite(value) & ((value != 0) | np.isfinite(error))
        rows += [
            (cause, effect, lag + 1, i, j, value[lag, i, j], error[lag, i, j], p[lag, i, j])
            for lag, i, j in np.argwhere(known).tolist()
        ]
    return pd.DataFrame(rows, columns=list(COEFFICIENT_COLUMNS))


def _p_values(found: EdgeInference, places: Mapping[str, slice], P: int) -> np.ndarray:
    """Of every entry of Â."""
    out, tested = found.p_value.copy(), found.entries
    for _, own in tested.groupby(["cause", "effect"], sort=False):
        cause, effect = own["cause"].iloc[0], own["effect"].iloc[0]
        first, size = places[cause].start, places[cause].stop - places[cause].start
        lag, state = np.divmod(own["col"].to_numpy(), size)
        rows = places[effect].start + own["row"].to_numpy()
        out[rows, lag * P + first + state] = own["p_value"]
    return out


def response_table(facts: InferenceFacts) -> pd.DataFrame:
    """What the edges do, step by step, from the facts of a test; columns `RESPONSE_COLUMNS`."""
    sensors, rows = facts.sensor_responses or {}, []
    for edge, found in (facts.responses or {}).items():
        shown = sensors.get(edge, found)
        pair = tuple(edge.split(" -> "))
        names = (shown.cause_sensor, shown.effect_sensor)
        curve = zip(shown.value, shown.low, shown.high, strict=True)
        sizes = (found.variance_share, found.r2_gained)
        rows += [(*pair, *names, step, *values, *sizes) for step, values in enumerate(curve)]
    return pd.DataFrame(rows, columns=list(RESPONSE_COLUMNS))


def untested_edges(
    clients: Sequence[str], dims: Sequence[int], granger: np.ndarray | None
) -> pd.DataFrame:
    """All pairs with FedGC's strength, empty when FedGC was not run; no test."""
    pairs, places = list(itertools.permutations(clients, 2)), state_slices(clients, dims)
    table = pd.DataFrame(
        {"cause": [cause for _, cause in pairs], "effect": [effect for effect, _ in pairs]}
    )
    if granger is not None:
        blocks = (granger[places[effect], places[cause]] for effect, cause in pairs)
        table["strength"] = [float(np.linalg.norm(block)) for block in blocks]
    return table.reindex(columns=list(EDGE_COLUMNS))


def untested_entries(
    clients: Sequence[str], dims: Sequence[int], granger: np.ndarray
) -> pd.DataFrame:
    """Every entry of FedGC's cross-client blocks; no test."""
    places = state_slices(clients, dims)
    rows = [
        (cause, effect, i, j, float(value))
        for effect, cause in itertools.permutations(clients, 2)
        for (i, j), value in np.ndenumerate(granger[places[effect], places[cause]])
    ]
    table = pd.DataFrame(rows, columns=list(ENTRY_COLUMNS[:5]))
    return table.reindex(columns=list(ENTRY_COLUMNS))
