"""When an alarm begins and ends, and its ranking: the server's part, on messages alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedgranger.errors import RunError
from fedgranger.inference.reference import Reference
from fedgranger.messages import MonitorMessage
from fedgranger.rca.evidence import PER_STEP, Evidence, Report, combine, stack_reports
from fedgranger.rca.ranking import Ranking, rank
from fedgranger.rca.scorers import HORIZON
from fedgranger.results import Result


class Alarm(NamedTuple):
    """An anomaly that is under way.

    Attributes:
        step: at which it was noticed.
        ranking: so far.
        num_steps: that the ranking is of, from that step on.
        time: of the step, where it is known.
    """

    step: int
    ranking: Ranking
    num_steps: int
    time: Any = None


class Knowledge(NamedTuple):
    """What the server of a run knows, to judge the clients' messages.

    Attributes:
        reference: what it expects of the states in normal operation.
        strengths: [m, n], strength of n's influence on m.
        edges: the run's edges, for the sentences on a suspect.
    """

    reference: Reference
    strengths: np.ndarray
    edges: pd.DataFrame


def knowledge_of(result: Result) -> Knowledge:
    """What the server of a run knows, in one process as between parties.

    Raises:
        RunError: the run did not learn what is normal.
    """
    if result.reference is None:
        reason = result.manifest.normal.reason
        raise RunError(
            "this run has no model of normal operation"
            + (f" ({reason})" if reason else "; fit again with this version")
        )
    strengths = strength_matrix(result, result.reference.names)
    return Knowledge(result.reference, strengths, result.edges())


def strength_matrix(result: Result, clients: tuple[str, ...]) -> np.ndarray:
    """[m, n] = strength of n's influence on m: tested edges only, or FedGC's own without tests."""
    edges = result.edges()
    strengths = edges["strength"]
    if result.inference is not None:
        strengths = strengths.where(edges["is_edge"].fillna(False).astype(bool), 0.0)
    place = {name: k for k, name in enumerate(clients)}
    out = np.zeros((len(clients), len(clients)))
    for cause, effect, strength in zip(edges["cause"], edges["effect"], strengths, strict=True):
        if cause in place and effect in place:
            out[place[effect], place[cause]] = strength
    return out


class Alarms:
    """Feeds on the messages of consecutive steps; ranks the clients while an alarm is under way.

    An alarm begins when some client's smoothed surprise leaves its range, and ends when no client
    was out of range for `calm_steps` steps. How the steps are cut makes no difference.

    Args:
        knowledge: of the run.
        thresholds: upper end of each client's normal range, one number per client.
        scorer: how clients are ranked.
        calm_steps: calm steps that end an alarm.
    """

    def __init__(
        self,
        knowledge: Knowledge,
        thresholds: Mapping[str, float],
        *,
        scorer: str = "unexplained",
        calm_steps: int = 50,
    ) -> None:
        self._knowledge, self._thresholds = knowledge, thresholds
        self._scorer, self._calm_steps = scorer, calm_steps
        self._last: Report | None = None
        self._parts: list[Evidence] = []
        self._seen, self._calm = 0, 0
        self._alarm_step: int | None = None
        self._memory = np.ones(len(knowledge.reference.names))
        self._before = self._memory
        self._ranking: Ranking | None = None

    @property
    def alarm_step(self) -> int | None:
        """Step of the alarm that is under way, counted from the first message."""
        return self._alarm_step

    def feed(
        self,
        messages: Mapping[str, Report | MonitorMessage],
        starts: np.ndarray,
        times: np.ndarray | None = None,
        *,
        is_utc: bool = False,
    ) -> list[Alarm]:
        """Take the messages of the next steps; return the alarms under way at any of them.

        Args:
            messages: every client's, about the same steps; a client without one was not observed.
            starts: steps that do not follow their predecessor.
            times: of the steps, for the words of a ranking.
            is_utc: these are UTC, because the data named a zone.
        """
        evidence = replace(self._examine(messages, starts), times=times, is_utc=is_utc)
        found: list[Alarm] = []
        smoothed = evidence.smoothed(self._memory)
        before = np.concatenate([self._memory[None], smoothed[:-1]])
        for step, is_out in enumerate(np.any(smoothed > evidence.threshold, axis=1).tolist()):
            if self._alarm_step is None and is_out:
                self._alarm_step, self._calm = self._seen + step, 0
                self._before = before[step]
            if self._alarm_step is None:
                continue
            self._calm = 0 if is_out else self._calm + 1
            if len(self._parts) < HORIZON:  # later steps show where it has spread
                self._parts.append(evidence.steps(slice(step, step + 1)))
                self._ranking = None
            if self._calm >= self._calm_steps:
                found.append(self._alarm(self._alarm_step))
                self._alarm_step, self._ranking = None, None
                self._parts.clear()
        self._memory = smoothed[-1]
        self._seen += len(evidence)
        if self._alarm_step is not None:
            found.append(self._alarm(self._alarm_step))
        return found

    def _examine(
        self, messages: Mapping[str, Report | MonitorMessage], starts: np.ndarray
    ) -> Evidence:
        """Evidence of the next steps; the last step before them is their past."""
        reference = self._knowledge.reference
        new = whole = stack_reports(reference, messages)
        if self._last is not None:
            whole = Report(*(np.concatenate(pair) for pair in zip(self._last, new, strict=True)))
        past = len(whole.is_observed) - len(new.is_observed)
        begins = np.concatenate([np.ones(past, dtype=np.bool_), starts])
        self._last = Report(*(part[-1:] for part in new))
        return combine(reference, whole, self._thresholds, begins).steps(slice(past, None))

    def _alarm(self, step: int) -> Alarm:
        """The alarm's ranking, computed anew only while steps are added that count."""
        if self._ranking is None:
            joined = {
                name: np.concatenate([getattr(part, name) for part in self._parts])
                for name in PER_STEP
            }
            times = [part.times for part in self._parts if part.times is not None]
            evidence = replace(
                self._parts[0], **joined, times=np.concatenate(times) if times else None
            )
            when = evidence.when(0)
            self._ranking = rank(
                evidence,
                self._knowledge.strengths,
                edges=self._knowledge.edges,
                scorer=self._scorer,
                name=f"alarm at step {step}{when and f', {when}'}",
                start=self._before,
            )
        times = self._parts[0].times
        time = None if times is None else times[0]
        return Alarm(step, self._ranking, len(self._parts), time)
