"""Section on how far the tests can be trusted: p-values, residuals, stationarity, power."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.report.charts import p_histogram
from fedgranger.report.facts import section_of
from fedgranger.report.selection import has_test, numbers
from fedgranger.report.view import Checks, Column, Table
from fedgranger.text import format_number

COLUMNS = {
    "portmanteau": "residuals uncorrelated, p",
    "unit_root": "unit root, p",
    "effective_samples": "effective samples",
}
FLAT_FROM = 0.5


def checks_view(
    pairs: pd.DataFrame, entries: pd.DataFrame | None, manifest: Mapping[str, Any]
) -> Checks | None:
    """The diagnostics of the tests; None when none were made."""
    inference = section_of(manifest, "inference")
    if not has_test(pairs):
        return None
    p = numbers(pairs, "p_value")
    charts = [p_histogram("p-pairs", p, "pairs")]
    if entries is not None and "p_value" in entries:
        charts.append(p_histogram("p-entries", numbers(entries, "p_value"), "entries"))
    sentences = [_null_share(p), _power(inference), _lags(inference)]
    return Checks(
        charts=tuple(chart for chart in charts if chart),
        words=" ".join(filter(None, sentences)),
        clients=_client_checks(inference),
    )


def _null_share(p: np.ndarray) -> str:
    """Storey's estimate of the number of absent edges, from the flat part."""
    known = p[np.isfinite(p)]
    if len(known) < 12:
        return ""
    absent = min(len(known), (known > FLAT_FROM).sum() / (1 - FLAT_FROM))
    return f"By their flat part, about {absent:.0f} of {len(known)} pairs have no influence."


def _power(inference: Mapping[str, Any]) -> str:
    strengths = list(section_of(inference, "detectable_strength").values())
    if not strengths:
        return ""
    return (
        f"An influence of strength {format_number(float(np.median(strengths)))} is found with "
        f"80 % probability in the median pair ({format_number(float(max(strengths)))} in the "
        "least favourable one)."
    )


def _lags(inference: Mapping[str, Any]) -> str:
    radius = inference.get("spectral_radius")
    if radius is None:
        return ""
    return (
        f"The model has {inference.get('lags')} lag(s) and a largest root of {radius:.3f} (1 would "
        "be a random walk)."
    )


def _client_checks(inference: Mapping[str, Any]) -> Table | None:
    found = {key: section_of(inference, key) for key in COLUMNS}
    clients = list(dict.fromkeys(name for values in found.values() for name in values))
    if not clients:
        return None
    keys = [key for key, values in found.items() if values]
    columns = [Column("client"), *(Column(COLUMNS[key], is_number=True) for key in keys)]
    rows = [[name, *(_cell(key, found[key].get(name)) for key in keys)] for name in clients]
    return Table("Checks per client", columns, rows)


def _cell(key: str, value: float | None) -> str:
    is_count = key == "effective_samples" and value is not None
    return f"{value:.0f}" if is_count else format_number(value)
