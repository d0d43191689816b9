"""Panel of a root-cause analysis, when the run folder holds one (`rca.json`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedgranger.report.view import CauseWindow, RankedClient, RootCauses
from fedgranger.text import format_number

MOST_WINDOWS = 12


def root_cause_view(found: Mapping[str, Any] | None) -> RootCauses | None:
    """A ranking with its evidence per window; None without an analysis.

    Args:
        found: `windows`: a list of {name, ranking: [{client, score, probability}], evidence:
            [sentences]}; `scorer`: its name.
    """
    windows: Sequence[Mapping[str, Any]] = (found or {}).get("windows", [])
    if not windows:
        return None
    shown = tuple(_window(window) for window in windows[:MOST_WINDOWS])
    return RootCauses((found or {}).get("scorer", ""), shown, len(windows) - MOST_WINDOWS)


def _window(window: Mapping[str, Any]) -> CauseWindow:
    is_defined = window.get("is_defined") is not False
    ranking = tuple(
        RankedClient(
            name=str(row["client"]),
            share=float(row["probability"]),
            score=format_number(None if row["score"] is None else float(row["score"])),
        )
        for row in (window["ranking"] if is_defined else [])
    )
    return CauseWindow(str(window["name"]), ranking, tuple(map(str, window.get("evidence", []))))
