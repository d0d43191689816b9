"""How new data are watched, in one process and between parties."""

from __future__ import annotations

from dataclasses import dataclass

from fedgranger.option_fields import Options, choice, whole

SCORER_NAMES = ("unexplained", "surprise", "deviation", "paper")
"""Those of `rca.scorers.SCORERS`, which needs numerical libraries."""


@dataclass(frozen=True)
class WatchOptions(Options):
    """How new data are watched."""

    subject = "watch"
    scorer: str = choice(
        "unexplained", SCORER_NAMES, f"how clients are ranked: {', '.join(SCORER_NAMES)}"
    )
    steps: int = whole(50, "time steps that arrive at a time", least=1, word="batch")
    calm_steps: int = whole(50, "calm steps that end an alarm", least=1)
