"""Panel of a root-cause analysis, when the run folder holds one (`rca.json`)."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedgranger.report.markup import escape
from fedgranger.text import format_number

__all__ = ["root_cause_section"]

MOST_WINDOWS = 12


def root_cause_section(found: Mapping[str, Any] | None) -> str:
    """Return a ranking with its evidence per window; empty without an analysis.

    Args:
        found: `windows`: a list of {name, ranking: [{client, score, probability}], evidence:
            [sentences]}; `scorer`: its name.
    """
    windows: Sequence[Mapping[str, Any]] = (found or {}).get("windows", [])
    if not windows:
        return ""
    panels = "\n".join(_window(window) for window in windows[:MOST_WINDOWS])
    more = len(windows) - MOST_WINDOWS
    rest = f"<p class='caption'>{more} more windows are in rca.json.</p>" if more > 0 else ""
    scorer = (found or {}).get("scorer", "")
    return (
        f"<section id='root-cause'><h2>Root cause</h2>\n<p>Which client started it, by the scorer "
        f"“{escape(scorer)}”; the bar is the share of resamples of the window in which a client "
        f"comes first, not the chance to be right.</p>\n{panels}\n{rest}</section>"
    )


def _window(window: Mapping[str, Any]) -> str:
    evidence = "".join(f"<li>{escape(line)}</li>" for line in window.get("evidence", []))
    reasons = f"<ul>{evidence}</ul>" if evidence else ""
    if window.get("is_defined") is False:
        return f"<h3>{escape(window['name'])}</h3>{reasons}"
    rows = "".join(
        f"<li><span class='rank-name'>{escape(row['client'])}</span>"
        f"<meter min='0' max='1' value='{float(row['probability']):.4f}' "
        f"aria-label='{escape(row['client'])}'></meter>"
        f"<span class='rank-number'>{100 * float(row['probability']):.0f} % "
        f"<span class='soft'>score {_score(row['score'])}</span></span></li>"
        for row in window["ranking"]
    )
    return f"<h3>{escape(window['name'])}</h3><ol class='ranking'>{rows}</ol>{reasons}"


def _score(value: float | None) -> str:
    return format_number(None if value is None else float(value))
