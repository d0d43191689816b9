"""One method on one data set as a piece of work whose outcome is kept."""

from __future__ import annotations

import functools
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fedgranger_research.baselines.method_list import find_methods
from fedgranger_research.baselines.method_trials import score_trial
from fedgranger_research.baselines.problems import Problem, Scenario, draw_problem
from fedgranger_research.reproduction.runner import Report


def method_key(name: str, added: Path | None) -> dict[str, Any]:
    """What an outcome depends on by the method: its name, its options, the text of a user's file.

    A method of this package that changes in any other way comes with another version of it.
    """
    defaults = find_methods([name], added)[name].defaults
    text = "" if added is None else added.read_text(encoding="utf-8")
    options = {key: repr(value) for key, value in sorted(defaults.items())}
    return {"method": name, "options": options, "added": text}


@dataclass(frozen=True)
class MethodSetting:
    """A method, how data are made, and their seed.

    Attributes:
        method: its name.
        scenario: how data are made.
        seed: of the system and of the noise.
        axis: what is varied; empty in the paper's setting.
        value: as it is shown.
        added: a file with more methods.
    """

    method: str
    scenario: Scenario
    seed: int
    axis: str = ""
    value: str = ""
    added: Path | None = None

    @property
    def label(self) -> str:
        """Short name for files."""
        return f"method-{self.method}-{self.seed}"

    @property
    def work(self) -> int:
        """One unit each."""
        return 1

    def key(self) -> dict[str, Any]:
        """What the outcome depends on: the method's options and the text of an added file too."""
        own = method_key(self.method, self.added)
        return own | {"data": asdict(self.scenario), "seed": self.seed}

    def run(self, report: Report = lambda *_: None) -> pd.DataFrame:
        """One row per level."""
        method = find_methods([self.method], self.added)[self.method]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = score_trial(self.method, method, _problem(self.scenario, self.seed))
        report(self.label, 1, 1)
        return pd.DataFrame(rows).assign(seed=self.seed)


@functools.lru_cache(maxsize=2)
def _problem(scenario: Scenario, seed: int) -> Problem:
    """Methods come one after the other on the same data."""
    return draw_problem(scenario, seed)
