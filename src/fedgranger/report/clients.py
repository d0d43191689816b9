"""A page per client: its edges, its local model, its missing data and what it sent."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedgranger.report.facts import BYTE_LABELS, CLIENT_LABELS, pair_list, section_of
from fedgranger.report.markup import Column, escape, table
from fedgranger.report.selection import by_strength, edge_flags
from fedgranger.report.small_charts import draw_quantiles
from fedgranger.text import format_number

__all__ = ["clients_section"]

SHOWN_SENSORS = 60


def clients_section(
    clients: Sequence[str], pairs: pd.DataFrame, manifest: Mapping[str, Any]
) -> str:
    """Return one folded page per client; empty when the manifest knows none of them."""
    facts = section_of(section_of(manifest, "data"), "clients")
    sent = section_of(manifest, "bytes")
    if not facts and not sent:
        return ""
    notes = section_of(manifest, "data").get("notes")
    pages = "\n".join(
        _page(index, name, pairs, section_of(facts, name), section_of(sent, name))
        for index, name in enumerate(clients)
    )
    read = "".join(f"<li>{escape(note)}</li>" for note in notes or [])
    return (
        "<section id='clients'><h2>Clients</h2>\n<p>Raw measurements stay with the client. Open a "
        "client to see how well its own model fits and what it sent.</p>\n"
        f"{f'<ul>{read}</ul>' if read else ''}{pages}\n</section>"
    )


def _page(
    index: int, name: str, pairs: pd.DataFrame, facts: Mapping[str, Any], sent: Mapping[str, Any]
) -> str:
    missing = facts.get("missing_share")
    hints = [f"{facts['num_sensors']} sensors"] if facts.get("num_sensors") else []
    hints += [f"{facts['state_dim']} states"] if facts.get("state_dim") else []
    hints += [f"{100 * missing:.1f} % missing"] if missing else []
    parts = [
        _edges(name, pairs),
        pair_list(facts, CLIENT_LABELS),
        _local_fit(section_of(facts, "local_fit")),
        "<h4>What it sent</h4>" + (pair_list(sent, BYTE_LABELS) or "<p>Not recorded.</p>"),
    ]
    return (
        f"<details class='client' id='client-{index}'><summary><strong>{escape(name)}</strong> "
        f"<span class='soft'>{escape(', '.join(hints))}</span></summary>\n"
        f"{chr(10).join(part for part in parts if part)}</details>"
    )


def _edges(name: str, pairs: pd.DataFrame) -> str:
    flags = edge_flags(pairs)
    if not any(flag is not None for flag in flags):
        return ""
    order = [row for row in by_strength(pairs) if flags[row]]
    causes = [pairs["cause"].iloc[row] for row in order if pairs["effect"].iloc[row] == name]
    effects = [pairs["effect"].iloc[row] for row in order if pairs["cause"].iloc[row] == name]
    said = [
        f"driven by {', '.join(causes)}" if causes else "driven by no other client",
        f"drives {', '.join(effects)}" if effects else "drives no other client",
    ]
    return f"<p>{escape(name)} is {escape(said[0])}, and {escape(said[1])}.</p>"


def _local_fit(fit: Mapping[str, Any]) -> str:
    """Say how well the local model fits; in a deployment only the client itself knows."""
    if not fit:
        return "<h4>Local model</h4><p>Its fit is known to the client alone.</p>"
    chart = draw_quantiles(fit.get("quantiles", []), "Whitened one-step errors, quantiles")
    variance, rho = fit.get("innovation_variance"), fit.get("autocorrelation")
    words = (
        "One-step errors of the client's own model, whitened: variance "
        f"{format_number(variance)} (1 if its own past explains all that can be explained), "
        f"largest autocorrelation {format_number(rho)} (0), over {fit.get('steps')} steps. "
        "What is left over includes the influence of other clients."
    )
    sensors = list(fit.get("sensors", []))
    rows = [
        [row["name"], _share(row.get("explained")), _share(row.get("missing_share"))]
        for row in sensors[:SHOWN_SENSORS]
    ]
    columns = [Column("sensor"), Column("explained", True), Column("missing", True)]
    more = int(fit.get("num_sensors", len(sensors))) - len(rows)
    note = f"<p class='caption'>{more} more sensors are left out.</p>" if more > 0 else ""
    caption = "Variance of each sensor that the states explain, and missing samples"
    return (
        f"<h4>Local model</h4><p>{escape(words)}</p><div class='split'>"
        f"{f'<div>{chart}<p class=caption>errors against the normal</p></div>' if chart else ''}"
        f"<div>{table(columns, rows, caption=caption)}{note}</div></div>"
    )


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
