"""Alarms as a site keeps them: one file that its own people and programs read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedgranger.federation.watcher import with_alarm
from fedgranger.flare.private_files import write_private

ALARMS_FILE = "alarms.json"
KEPT_ALARMS = 1000


def add_alarm(folder: Path, alarm: dict[str, Any]) -> None:
    """Write an alarm down; the same one again, with a later ranking, takes its place."""
    known = with_alarm(read_alarms(folder), alarm)[-KEPT_ALARMS:]
    text = json.dumps(known, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_private(folder / ALARMS_FILE, text.encode())


def read_alarms(folder: Path) -> list[dict[str, Any]]:
    """All alarms that a site was told; none when there is no file or it cannot be read."""
    try:
        found = json.loads((folder / ALARMS_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return []
    return found if isinstance(found, list) else []
