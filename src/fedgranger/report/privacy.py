"""Section on privacy: the budget spent, or plainly that there is none."""

from collections.abc import Mapping
from typing import Any

from fedgranger.report.facts import section_of
from fedgranger.report.markup import Column, table
from fedgranger.text import format_number

__all__ = ["privacy_section"]


def privacy_section(manifest: Mapping[str, Any]) -> str:
    """Return the budget per client from `manifest["privacy"]`, or what is missing without one."""
    if "bytes" not in manifest and "privacy" not in manifest:
        return ""
    privacy = section_of(manifest, "privacy")
    clients = section_of(privacy, "clients")
    if clients:
        rows = [
            [name, *(_cell(section_of(clients, name).get(key)) for key in ("epsilon", "delta"))]
            for name in map(str, clients)
        ]
        columns = [Column("client"), Column("ε spent", True), Column("δ", True)]
        body = table(columns, rows, caption="Differential privacy, per client")
    else:
        body = (
            "<p>No noise was added to the messages, so there is no differential-privacy guarantee: "
            "the budget is unlimited. Sensors are reduced to a few states before anything is sent; "
            "states reveal what they summarise, and a client with as many states as sensors sends "
            "its measurements in another basis.</p>"
        )
    return f"<section id='privacy'><h2>Privacy</h2>\n{body}\n</section>"


def _cell(value: Any) -> str:
    return format_number(float(value)) if value is not None else "–"
