"""What crossed the wire: bytes and messages per party and round, and what was refused."""

from __future__ import annotations

from collections import Counter
from statistics import median

import pandas as pd

COUNTS = ("messages_down", "bytes_down", "messages_up", "bytes_up")


class Ledger:
    """Counts kept by the server; what a restart repeats is counted again, because it was sent."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], dict[str, int]] = {}
        self.refused: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()
        self._seconds: dict[str, list[float]] = {}

    def took(self, phase: str, seconds: float) -> None:
        """An exchange with all clients lasted so long, their own work included."""
        self._seconds.setdefault(phase, []).append(seconds)

    def timings(self) -> dict[str, float]:
        """Seconds spent on exchanges, and the median of those with states and gradients."""
        every = [value for values in self._seconds.values() for value in values]
        steps = self._seconds.get("step", [])
        return {
            "seconds_exchanges": round(sum(every), 3),
            "num_exchanges": len(every),
            "seconds_per_round": round(median(steps), 4) if steps else 0.0,
        }

    def count(self, direction: str, client: str, phase: str, round_index: int, size: int) -> None:
        """A request left the server (`down`), or an answer arrived that was used (`up`)."""
        counts = self._counts.setdefault((client, phase, round_index), dict.fromkeys(COUNTS, 0))
        counts[f"messages_{direction}"] += 1
        counts[f"bytes_{direction}"] += size

    def table(self) -> pd.DataFrame:
        """One row per client, phase and round."""
        rows = [(*key, *counts.values()) for key, counts in self._counts.items()]
        return pd.DataFrame(rows, columns=["client", "phase", "round", *COUNTS])

    def totals(self) -> dict[str, dict[str, int]]:
        """Sums per client, with answers refused and repeated."""
        out: dict[str, dict[str, int]] = {}
        for (client, _, _), counts in self._counts.items():
            total = out.setdefault(client, dict.fromkeys(COUNTS, 0))
            for name, count in counts.items():
                total[name] += count
        for client, total in out.items():
            total["refused"], total["repeated"] = self.refused[client], self.repeated[client]
        return out
