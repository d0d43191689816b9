"""Every client's season, taken out of a panel in one process as each would do it alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from fedgranger.client.season import Season, take_out
from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel

__all__ = ["Seasonless", "take_out_seasons"]


class Seasonless(NamedTuple):
    """A panel without what repeats.

    Attributes:
        panel: the data that identification, training and tests use.
        seasons: what was removed, by client.
        notes: sentences on it, by client.
    """

    panel: Panel
    seasons: dict[str, Season]
    notes: dict[str, tuple[str, ...]]

    def facts(self, client: str) -> dict[str, Any]:
        """What the manifest says of one client's season."""
        season = self.seasons[client]
        if not season.lengths:
            return {"periods": []}
        return {
            "periods": season.periods.tolist(),
            "kind": season.kind,
            "share": round(season.share, 6),
            "fact": season.fact(client),
        }


def take_out_seasons(panel: Panel, config: RunConfig, interval: float | None = None) -> Seasonless:
    """Let every client find and remove what repeats in its own sensors.

    Args:
        panel: the data.
        config: the options `period` and `season`.
        interval: ticks per step, or None: the median step.

    Raises:
        DataError: a period that a client's data cannot have.
    """
    clients, seasons, notes = [], {}, {}
    for client in panel:
        data, seasons[client.name], notes[client.name] = take_out(
            client, panel.time, config, interval=interval
        )
        clients.append(data)
    return Seasonless(replace(panel, clients=tuple(clients)), seasons, notes)
