"""One method on one panel made from recordings, in which the truth is known by design."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedgranger.data.panel import Panel
from fedgranger.errors import ConfigError
from fedgranger_research.baselines.method_list import find_methods
from fedgranger_research.baselines.method_trials import score_trial
from fedgranger_research.baselines.problems import Problem
from fedgranger_research.baselines.recorded_problems import problem_of_control
from fedgranger_research.recordings.panels import (
    add_edge,
    default_steps,
    null_control,
    odd_control,
)
from fedgranger_research.recordings.reading import read_recordings
from fedgranger_research.recordings.trial import ABSENT, ADDED
from fedgranger_research.reproduction.method_settings import method_key
from fedgranger_research.reproduction.runner import Report

ADDED_SIZE = 0.5
"""Of an added edge, in standard deviations of the effect's innovation."""
KINDS = {"null": "no edge", "odd": "one odd client", "added": "one edge added"}
"""Of panels, and how they are shown."""


class Recordings(NamedTuple):
    """Where recordings are, as for `fedgranger study recordings`."""

    path: Path
    partition: Path | None = None
    unit_column: str | None = None

    def files(self) -> list[Path]:
        """All files that are read."""
        own = [self.path] if self.path.is_file() else sorted(self.path.rglob("*"))
        extra = [] if self.partition is None else [self.partition]
        return [file for file in (*own, *extra) if file.is_file()]


@dataclass(frozen=True)
class ControlSetting:
    """A method, recordings, and which panel is made of them (`recordings.panels`)."""

    method: str
    source: Recordings
    kind: str
    seed: int
    added: Path | None = None
    axis: str = "recordings"

    def __post_init__(self) -> None:
        """Refuse unknown kinds."""
        if self.kind not in KINDS:
            raise ConfigError(f"kind is '{self.kind}'; choose one of {', '.join(KINDS)}")

    @property
    def value(self) -> str:
        """As it is shown."""
        return KINDS[self.kind]

    @property
    def label(self) -> str:
        """Short name for files."""
        return f"method-{self.method}-{self.kind}-{self.seed}"

    @property
    def work(self) -> int:
        """One unit each."""
        return 1

    def key(self) -> dict[str, Any]:
        """What the outcome depends on; files that change are noticed by size and time."""
        stamp = [
            (file.name, file.stat().st_size, int(file.stat().st_mtime))
            for file in self.source.files()
        ]
        own = method_key(self.method, self.added)
        return own | {
            "kind": self.kind,
            "seed": self.seed,
            "files": stamp,
            "unit": self.source.unit_column,
        }

    def run(self, report: Report = lambda *_: None) -> pd.DataFrame:
        """One row per level."""
        method = find_methods([self.method], self.added)[self.method]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            problem = _problem(self.source, self.kind, self.seed)
            rows = score_trial(self.method, method, problem)
        report(self.label, 1, 1)
        return pd.DataFrame(rows).assign(seed=self.seed)


@functools.lru_cache(maxsize=2)
def _problem(source: Recordings, kind: str, seed: int) -> Problem:
    """Methods come one after the other on the same panel, which is longer to make than to test."""
    units = _units(source)
    steps = default_steps(units, len(next(iter(units.values())).names))
    rng = np.random.default_rng([list(KINDS).index(kind), seed])
    make = odd_control if kind == "odd" else null_control
    control = make(units, steps, kind, rng)
    if kind == "added":
        control = add_edge(control, ADDED_SIZE, kind, rng)
    pairs = {
        word: {pair for pair, known in control.truths.items() if known == word}
        for word in (ABSENT, ADDED)
    }
    return problem_of_control(control.arrays, pairs[ABSENT], pairs[ADDED])


@functools.cache
def _units(source: Recordings) -> dict[str, Panel]:
    return read_recordings(
        source.path, partition=source.partition, unit_column=source.unit_column, missing="mask"
    )
