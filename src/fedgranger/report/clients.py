"""A page per client: its edges, its local model, its missing data and what it sent."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedgranger.report.charts import error_quantiles
from fedgranger.report.facts import BYTE_LABELS, CLIENT_LABELS, section_of, terms
from fedgranger.report.selection import by_strength, edge_flags
from fedgranger.report.view import Client, Clients, Column, LocalFit, Table
from fedgranger.text import format_number, format_share

SHOWN_SENSORS = 60


def clients_view(
    clients: Sequence[str], pairs: pd.DataFrame, manifest: Mapping[str, Any]
) -> Clients | None:
    """One entry per client; None when the manifest knows none of them."""
    data, sent = section_of(manifest, "data"), section_of(manifest, "bytes")
    facts = section_of(data, "clients")
    if not facts and not sent:
        return None
    pages = tuple(
        _client(f"client-{k}", name, pairs, section_of(facts, name), section_of(sent, name))
        for k, name in enumerate(clients)
    )
    return Clients(tuple(map(str, data.get("notes") or ())), pages)


def _client(
    key: str, name: str, pairs: pd.DataFrame, facts: Mapping[str, Any], sent: Mapping[str, Any]
) -> Client:
    missing = facts.get("missing_share")
    hints = [f"{facts['num_sensors']} sensors"] if facts.get("num_sensors") else []
    hints += [f"{facts['state_dim']} states"] if facts.get("state_dim") else []
    hints += [f"{format_share(missing)} missing"] if missing else []
    return Client(
        name=name,
        hints=", ".join(hints),
        edges=_edges(name, pairs),
        facts=terms(facts, CLIENT_LABELS),
        fit=_local_fit(key, section_of(facts, "local_fit")),
        sent=terms(sent, BYTE_LABELS),
    )


def _edges(name: str, pairs: pd.DataFrame) -> str:
    flags = edge_flags(pairs)
    if not any(flag is not None for flag in flags):
        return ""
    order = [row for row in by_strength(pairs) if flags[row]]
    causes = [pairs["cause"].iloc[row] for row in order if pairs["effect"].iloc[row] == name]
    effects = [pairs["effect"].iloc[row] for row in order if pairs["cause"].iloc[row] == name]
    driven = f"driven by {', '.join(causes) or 'no other client'}"
    return f"{name} is {driven}, and drives {', '.join(effects) or 'no other client'}."


def _local_fit(key: str, fit: Mapping[str, Any]) -> LocalFit | None:
    """How well the local model fits; in a deployment only the client itself knows."""
    if not fit:
        return None
    variance, rho = fit.get("innovation_variance"), fit.get("autocorrelation")
    words = (
        "One-step errors of the client's own model, whitened: variance "
        f"{format_number(variance)} (1 if its own past explains all that can be explained), "
        f"largest autocorrelation {format_number(rho)} (0), over {fit.get('steps')} steps. "
        "What is left over includes the influence of other clients."
    )
    sensors = list(fit.get("sensors", []))
    rows = [
        [row["name"], format_share(row.get("explained")), format_share(row.get("missing_share"))]
        for row in sensors[:SHOWN_SENSORS]
    ]
    columns = [Column("sensor"), Column("explained", True), Column("missing", True)]
    caption = "Variance of each sensor that the states explain, and missing samples"
    return LocalFit(
        words=words,
        chart=error_quantiles(key, fit.get("quantiles", [])),
        sensors=Table(caption, columns, rows),
        more=int(fit.get("num_sensors", len(sensors))) - len(rows),
    )
