"""Bytes on the wire: what the messages of a run have without envelopes, and what really crossed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from statistics import median

import pandas as pd

from fedgranger.config import RunConfig
from fedgranger.manifest_types import SentFacts
from fedgranger.messages import CONTENTS

BYTES = {"f8": 8, "i8": 8, "u1": 1, float: 8, int: 8, bool: 1}
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

    def totals(self) -> dict[str, SentFacts]:
        """Sums per client, with answers refused and repeated."""
        out: dict[str, dict[str, int]] = {}
        for (client, _, _), counts in self._counts.items():
            total = out.setdefault(client, dict.fromkeys(COUNTS, 0))
            for name, count in counts.items():
                total[name] += count
        return {
            name: SentFacts(**total, refused=self.refused[name], repeated=self.repeated[name])
            for name, total in out.items()
        }


def payload_bytes(kind: str, values: Iterable[str] = (), **axes: int) -> int:
    """Bytes of a message's arrays, with axes of these lengths, and of some of its values.

    Example:
        >>> payload_bytes("message", time=1, client_state=2)
        33
    """
    content = CONTENTS[kind]
    arrays = (
        BYTES[code] * math.prod(axes[axis] for axis in names.split())
        for code, names in content.arrays.values()
    )
    return sum(arrays) + sum(BYTES[content.values[name]] for name in values)


def bytes_for_tests(state_dim: int, num_periods: int, num_steps: int) -> int:
    """Payload bytes of the states of so many time steps, and of what is said before them."""
    values = CONTENTS["hello"].values
    hello = payload_bytes("hello", values, client_state=state_dim, period=num_periods)
    return hello + payload_bytes("states", time=num_steps, client_state=state_dim)


def run_bytes(
    config: RunConfig,
    state_dim: int,
    num_periods: int,
    num_steps: int,
    rounds: int,
    rounds_per_pass: int,
) -> SentFacts:
    """What a client with so many states sends and gets: per training step, and in all."""
    up = payload_bytes("message", time=1, client_state=state_dim)
    down = payload_bytes("step", time=1, client_state=state_dim)
    hello = payload_bytes("model", client_state=state_dim)
    for_tests = bytes_for_tests(state_dim, num_periods, num_steps) if config.test != "none" else 0
    if config.solver == "none":
        up = down = hello = 0
    num_pairs, filtered = num_steps - 1, 8 * state_dim
    if config.training_solver == "newton":  # filtered states only once; one more message up
        passes = rounds
        up_training = filtered * num_pairs + (up - filtered) * (passes + 1) * num_pairs
    elif config.training_solver == "neural":  # the last round is not answered
        passes = config.most_passes if rounds else 0
        up_training = up * passes * num_pairs
    else:
        passes = rounds // rounds_per_pass
        report = payload_bytes("message", ("change", "size"), time=0, client_state=0)
        up_training = (up * num_pairs + report) * passes
    return SentFacts(
        once=hello,
        edge_tests=for_tests,
        up_per_step=up,
        down_per_step=down,
        bytes_up=hello + for_tests + up_training,
        bytes_down=down * passes * num_pairs,
    )
