"""How a party is, from the files in its own kit: for service managers and containers."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from fedgranger.flare.news import GOOD_STATES
from fedgranger.flare.processes import is_running

STALE_SECONDS = 60.0
SMALLEST_FREE_BYTES = 50_000_000


class Health(NamedTuple):
    """A party's health.

    Attributes:
        is_good: it runs, is connected (a server: listens), and can write to its disk.
        sentence: how it stands, or what is wrong first.
        is_running: a supervisor looks after it.
        state: of its `Standing`, "" when not known.
        beat_seconds: how long ago the supervisor wrote down how it stands, if ever.
        free_bytes: on the kit's disk.
    """

    is_good: bool
    sentence: str
    is_running: bool
    state: str
    beat_seconds: float | None
    free_bytes: int


def read_health(kit: Path) -> Health:
    """Read it; asks nobody."""
    running, free = is_running(kit), shutil.disk_usage(kit).free
    try:
        status = json.loads((kit / "fedgranger-state" / "supervisor.json").read_text("utf-8"))
        state, sentence = str(status["state"]), str(status["sentence"])
        beat = max(time.time() - float(status["beat"]), 0.0)
    except (OSError, ValueError, KeyError, TypeError):
        state, sentence, beat = "", "", None
    if not running:
        problem = "is not started; use 'federation start'"
    elif free < SMALLEST_FREE_BYTES:
        problem = f"its disk is full ({free / 1e6:.0f} MB free); make room"
    elif beat is None or beat > STALE_SECONDS:
        when = "ever" if beat is None else f"for {beat:.0f} s"
        problem = f"its supervisor has not said anything {when}; start it again"
    elif state not in GOOD_STATES:
        problem = sentence
    else:
        return Health(True, sentence, running, state, beat, free)
    return Health(False, problem, running, state, beat, free)
