"""Rank the clients for a window, with the ranking's certainty and its reasons."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fedgranger.errors import DataError
from fedgranger.option_fields import check_choice
from fedgranger.rca.evidence import Evidence
from fedgranger.rca.ranking_words import FEWEST_STEPS, horizon_sentence, sentences
from fedgranger.rca.scorers import (
    HORIZON,
    LEAST_UNEXPLAINED,
    SCORERS,
    WHOLE_WINDOW,
    is_defined,
    mean_known,
    unexplained_share,
)

DRAWS = 400
TEXT_COLUMNS = ("client", "explained_by", "sensors")


@dataclass(frozen=True, eq=False)
class Ranking:
    """Suspects for one window, most likely first.

    Attributes:
        name: of the window.
        scorer: how it was scored.
        table: client, score, ci_low, ci_high, probability (share of the resamples of the
            window's steps in which the client comes first, ties shared), surprise (mean),
            explained (share of its error that others explain), explained_by, onset (first step
            out of its range, counted from the window's start; empty if never), sensors (the most
            surprising ones, where they are known).
        is_defined: False when the scores do not separate the clients.
        evidence: sentences on the first suspect.
        since: time by which a sensor had left its usual level, where it is before the alarm.
        again: names of later alarms of the same incident.
    """

    name: str
    scorer: str
    table: pd.DataFrame
    is_defined: bool
    evidence: tuple[str, ...]
    since: Any = None
    again: tuple[str, ...] = ()

    @property
    def first(self) -> str:
        """The main suspect."""
        return str(self.table["client"].iloc[0])

    @property
    def is_calm(self) -> bool:
        """No client left its normal range."""
        return bool(np.isnan(self.table["onset"].to_numpy()).all())

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for `rca.json`."""
        rows = [
            {key: _plain(value) for key, value in row.items()}
            for row in self.table.to_dict("records")
        ]
        incident = {"since": self.since, "again": list(self.again)}
        return {
            "name": self.name,
            "is_defined": self.is_defined,
            "ranking": rows,
            "evidence": list(self.evidence),
            **{key: value for key, value in incident.items() if value not in (None, [])},
        }


def with_sensors(ranking: Ranking, sensors: Mapping[str, Sequence[tuple[str, float]]]) -> Ranking:
    """Name each client's most surprising sensors, with how many times their usual energy."""
    words = {
        name: ", ".join(f"{sensor} (× {size:.3g})" for sensor, size in parts)
        for name, parts in sensors.items()
    }
    column = [words.get(name) for name in ranking.table["client"]]
    evidence = list(ranking.evidence)
    if ranking.is_defined and words.get(ranking.first):
        text = words[ranking.first]
        place = 2 if ranking.is_calm else 1
        evidence.insert(place, f"Its most surprising sensors, × their usual energy: {text}.")
    table = ranking.table.assign(sensors=column)
    return replace(ranking, table=table, evidence=tuple(evidence))


def read_rankings(text: str) -> list[Ranking]:
    """Undo `rankings_text`."""
    content = json.loads(text)
    found = []
    for window in content["windows"]:
        table = pd.DataFrame(window["ranking"])
        numbers = {name: float for name in table.columns if name not in TEXT_COLUMNS}
        found.append(
            Ranking(
                window["name"],
                content["scorer"],
                table.astype(numbers),
                window["is_defined"],
                tuple(window["evidence"]),
            )
        )
    return found


def rankings_text(
    scorer: str,
    rankings: Sequence[Ranking],
    excursions: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """The text of `rca.json`; `excursions` of sensors are known in one process only."""
    windows = [ranking.to_mapping() for ranking in rankings]
    content: dict[str, Any] = {"scorer": scorer, "windows": windows}
    if excursions is not None:
        content["excursions"] = list(excursions)
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    """A value that JSON can hold: what is not finite becomes null."""
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return None if value is None or value is pd.NA else value


def rank(
    evidence: Evidence,
    strengths: np.ndarray,
    *,
    edges: pd.DataFrame | None = None,
    scorer: str = "unexplained",
    name: str = "window",
    start: np.ndarray | float = 1.0,
    seed: int = 0,
) -> Ranking:
    """Score the clients over the steps of a window.

    Args:
        evidence: the window's steps, from the moment things went wrong; of a long window the
            scorers that look for an origin use the first 200, and the ranking says so.
        strengths: [m, n], strength of n's influence on m, clients in the order of the evidence.
        edges: tested edges, which show where the suspect's influence goes.
        scorer: one of `SCORERS`.
        name: of the window.
        start: smoothed surprise just before the window.
        seed: of the resampling.

    Raises:
        DataError: the window is empty or nothing in it was observed.
    """
    check_choice("scorer", scorer, tuple(SCORERS))
    if len(evidence) == 0 or np.isnan(evidence.surprise).all():
        raise DataError(f"{name}: no step was observed; give a window with data")
    scores = SCORERS[scorer](evidence, strengths)
    is_clear = is_defined(scores)
    draws = _resampled(evidence, strengths, scorer, seed)
    first = draws == draws.max(axis=1, keepdims=True)
    probability = (first / first.sum(axis=1, keepdims=True)).mean(axis=0)
    ends = np.quantile(draws, (0.025, 0.975), axis=0, method="nearest")
    if is_clear and len(evidence) < FEWEST_STEPS:
        probability, ends = np.full(len(scores), np.nan), np.full(ends.shape, np.nan)
    early = evidence.steps(slice(0, HORIZON))
    table = pd.DataFrame(
        {
            "client": evidence.clients,
            "score": scores,
            "ci_low": ends[0],
            "ci_high": ends[1],
            "probability": probability,
            "surprise": mean_known(early.surprise),
            "explained": np.clip(1 - unexplained_share(early), 0.0, 1 - LEAST_UNEXPLAINED),
            "explained_by": [None if n < 0 else evidence.clients[n] for n in _main_cause(early)],
            "onset": onsets(evidence, start),
        }
    )
    table = table.sort_values(["score", "probability"], ascending=False, kind="stable")
    table = table.reset_index(drop=True)
    words = sentences(table, edges, is_clear, evidence)
    if is_clear and scorer not in WHOLE_WINDOW and len(evidence) > HORIZON:
        words = (*words, horizon_sentence(evidence, HORIZON))
    return Ranking(name, scorer, table, is_clear, words)


def onsets(evidence: Evidence, start: np.ndarray | float = 1.0) -> np.ndarray:
    """First step out of a client's range; NaN when there is none."""
    out = evidence.smoothed(start) > evidence.threshold
    return np.where(out.any(axis=0), np.argmax(out, axis=0).astype(np.float64), np.nan)


def _resampled(evidence: Evidence, strengths: np.ndarray, scorer: str, seed: int) -> np.ndarray:
    """Scores of circular block resamples of the steps that count, (draw, client)."""
    rng = np.random.default_rng(seed)
    used = evidence if scorer in WHOLE_WINDOW else evidence.steps(slice(0, HORIZON))
    num = len(used)
    block = max(1, round(num ** (1 / 3)))
    count = -(-num // block)
    starts = rng.integers(0, num, (DRAWS, count))
    steps = (starts[:, :, None] + np.arange(block)[None, None]).reshape(DRAWS, -1)[:, :num] % num
    bare = replace(used, without=np.zeros((num, 0, 0)))
    return np.stack([SCORERS[scorer](bare.steps(rows), strengths) for rows in steps])


def _main_cause(early: Evidence) -> np.ndarray:
    """Per client the other one without whom its error would grow most; −1 for none."""
    gain = mean_known(early.without - early.cross[:, :, None])
    np.fill_diagonal(gain, np.nan)
    gain = np.where(np.isnan(gain), -np.inf, gain)
    best = np.argmax(gain, axis=1)
    return np.where(gain[np.arange(len(gain)), best] > 0, best, -1)
