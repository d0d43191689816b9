"""The history of incidents of a run: one line of JSON per analysed window or incident.

What is analysed again, because more of its data have arrived, replaces what was known of it and of
alarms that turned out to belong to it; nothing else is ever overwritten.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedgranger.disk import write_text
from fedgranger.errors import RunError
from fedgranger.rca.ranking import Ranking
from fedgranger.results import INCIDENTS_FILE
from fedgranger.text import utc_stamp


def read_incidents(run: Path) -> list[dict[str, Any]]:
    """All incidents of a run, oldest first.

    Raises:
        RunError: the file is damaged.
    """
    path = run / INCIDENTS_FILE
    if not path.exists():
        return []
    try:
        found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for entry in found:
            _ = entry["analysed"], entry["data"], entry["name"], entry["ranking"]
    except (ValueError, TypeError, KeyError) as error:
        raise RunError(
            f"{path}: cannot be read ({error}); move it away to begin a new history"
        ) from None
    return found


def add_incidents(run: Path, data: str, rankings: Sequence[Ranking]) -> None:
    """Add rankings of these data; one of the same name and data replaces the older one."""
    if not rankings:
        return
    new = {ranking.name: ranking for ranking in rankings}
    known = {*new, *(name for ranking in rankings for name in ranking.again)}
    kept = [
        entry
        for entry in read_incidents(run)
        if entry["data"] != data or entry["name"] not in known
    ]
    stamp = utc_stamp()
    kept += [
        {"analysed": stamp, "data": data, "scorer": ranking.scorer, **ranking.to_mapping()}
        for ranking in new.values()
    ]
    text = "".join(json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n" for entry in kept)
    write_text(run / INCIDENTS_FILE, text)
