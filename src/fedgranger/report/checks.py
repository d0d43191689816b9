"""Section on how far the tests can be trusted: p-values, residuals, stationarity, power."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.report.facts import section_of
from fedgranger.report.markup import Column, escape, table
from fedgranger.report.selection import has_test
from fedgranger.report.small_charts import draw_p_histogram
from fedgranger.text import format_number

__all__ = ["checks_section"]

COLUMNS = {
    "portmanteau": "residuals uncorrelated, p",
    "unit_root": "unit root, p",
    "effective_samples": "effective samples",
}
FLAT_FROM = 0.5


def checks_section(
    pairs: pd.DataFrame, entries: pd.DataFrame | None, manifest: Mapping[str, Any]
) -> str:
    """Return the diagnostics of the tests; empty when none were made."""
    inference = section_of(manifest, "inference")
    if not has_test(pairs):
        return ""
    p = pairs["p_value"].to_numpy(dtype=float, na_value=np.nan)
    charts = [draw_p_histogram(p, "p-values of all pairs")]
    if entries is not None and "p_value" in entries:
        single = entries["p_value"].to_numpy(dtype=float, na_value=np.nan)
        charts.append(draw_p_histogram(single, "p-values of all entries"))
    names = ("pairs", "entries")
    figures = "".join(
        f"<div>{chart}<p class='caption'>p-values of all {name}</p></div>"
        for chart, name in zip(charts, names, strict=False)
        if chart
    )
    sentences = [_null_share(p), _power(inference), _lags(inference)]
    words = " ".join(escape(sentence) for sentence in sentences if sentence)
    return (
        "<section id='checks'><h2>Checks of the tests</h2>\n"
        f"<figure><div class='charts small'>{figures}</div><figcaption>Edges that do not exist "
        "spread evenly over 0…1; edges that do pile up at 0. A slope elsewhere means that the "
        f"tests are off.</figcaption></figure>\n<p>{words}</p>\n{_client_checks(inference)}\n"
        "</section>"
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


def _client_checks(inference: Mapping[str, Any]) -> str:
    found = {key: section_of(inference, key) for key in COLUMNS}
    clients = list(dict.fromkeys(name for values in found.values() for name in values))
    if not clients:
        return ""
    keys = [key for key, values in found.items() if values]
    columns = [Column("client"), *(Column(COLUMNS[key], is_number=True) for key in keys)]
    rows = [[name, *(_cell(key, found[key].get(name)) for key in keys)] for name in clients]
    body = table(columns, rows, caption="Checks per client")
    return (
        f"{body}\n<p class='caption'>Small p in the first column: the residuals hold structure "
        "that the model misses. Large p in the second: a random walk cannot be excluded.</p>"
    )


def _cell(key: str, value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if key == "effective_samples" else format_number(float(value))
