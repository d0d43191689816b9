"""What a site has been asked about its data, kept so that nobody can ask for more in small pieces.

A question is everything that decides what a client's states are: the options of its states, the
local model that its site declares, the period, and with rounds also the options of the rounds.
Every further question shows other linear combinations of the same sensors, so a site answers a
fixed number of them per data set; the same question again gets the same bits. Of FedGC's rounds
every new θ counts. The record survives restarts and other runs; one that is damaged allows nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedgranger.client.params import LocalModel
from fedgranger.data.time_axis import TimeGrid
from fedgranger.federation.agreed_options import ClientOptions
from fedgranger.federation.policy import PolicyError, SitePolicy
from fedgranger.federation.store import Store
from fedgranger.text import counted

RECORD = "questions"
WAITING = "waiting"
"""Record of the runs that wait for the site's word: run -> question, options and period."""
ALLOWED = "allowed"
"""Record of the runs that the site has allowed: run -> question."""
DAY_SECONDS = 86_400.0
KEPT_WAITING = 100


class Site(NamedTuple):
    """What every answer of a site depends on.

    Attributes:
        store: its disk.
        policy: what it lets out.
        secret: random bytes that never leave it.
        clock: seconds since 1970.
        log: receives what the people at the site should know.
    """

    store: Store
    policy: SitePolicy
    secret: bytes
    clock: Callable[[], float]
    log: Callable[[str], None] = lambda _: None


class WaitingError(PolicyError):
    """The run waits until somebody at the site allows it."""


def question_of(
    options: ClientOptions,
    grid: TimeGrid,
    largest_state_dim: int,
    model: LocalModel | None = None,
) -> str:
    """Name a question by its content; limits above the site's own make no difference.

    `model` is the one that the site declares.
    """
    states = options.states
    if states["state_dim"] == "auto":
        states["max_state_dim"] = min(states["max_state_dim"], largest_state_dim)
    else:
        states["max_state_dim"] = 0
    content = [states, options.rounds, [str(part) for part in grid]]
    content += [options.noise] if options.noise else []
    name = hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=8)
    for matrix in () if model is None else model.matrices:
        name.update(np.ascontiguousarray(matrix).tobytes())
    return name.hexdigest()


class Questions:
    """The record of one site and one data set, which has this hash."""

    def __init__(self, store: Store, policy: SitePolicy, data_hash: str) -> None:
        self._store, self._policy, self._data = store, policy, data_hash

    def check(self, run: str, question: str, details: Mapping[str, str], now: float) -> None:
        """Refuse what goes beyond the policy, before anything is computed.

        Raises:
            PolicyError: the policy does not allow it.
            WaitingError: the site has not allowed the run yet.
        """
        asked, _, runs = self._load()
        if question not in asked:
            self._check_number(asked)
        today = _recent(runs, now)
        is_new = run not in today or (question not in asked and _failed(question) not in today)
        if is_new and len(today) >= self._policy.runs_per_day:
            raise PolicyError(
                f"its policy allows {counted(self._policy.runs_per_day, 'run')} within 24 hours; "
                "try later"
            )
        if self._policy.ask and self._record(ALLOWED).get(run) != question:
            self._announce(run, {"question": question, **details})
            raise WaitingError("its site has not allowed this run yet")

    def take(self, run: str, question: str, now: float) -> None:
        """Write down that a question is about to be answered; returns when it is on the disk."""
        asked, shown, runs = self._load()
        recent = _recent(runs, now)
        if question in asked and run in recent:
            return
        if question not in asked:  # another process may have been quicker
            self._check_number(asked)
            asked = [*asked, question]
        self._save(asked, shown, {run: now, **recent})

    def _check_number(self, asked: list[str]) -> None:
        if len(asked) >= self._policy.questions:
            raise PolicyError(
                f"its policy answers {counted(self._policy.questions, 'question')} about the "
                "same data and "
                "this would be another; ask with the same options and period as before, or let the "
                "site raise 'questions' in its policy.toml"
            )

    def fail(self, question: str, now: float) -> None:
        """Write down that a question could not be answered: that it cannot be tells something too.

        It counts like a run, so that nobody learns of the data by asking what fails.
        """
        asked, shown, runs = self._load()
        self._save(asked, shown, {_failed(question): now, **_recent(runs, now)})

    def show(self, augmentation: np.ndarray) -> None:
        """Write down that states corrected with this θ are about to leave.

        Raises:
            PolicyError: the policy's rounds are used up, and this θ was not shown before.
        """
        asked, shown, runs = self._load()
        content = np.ascontiguousarray(augmentation).tobytes()
        name = hashlib.blake2b(content, digest_size=8).hexdigest()
        if name in shown:
            return
        if len(shown) >= self._policy.rounds:
            raise PolicyError(
                f"its policy allows {counted(self._policy.rounds, 'round')} of FedGC, used up by "
                "now"
            )
        self._save(asked, [*shown, name], runs)

    def _announce(self, run: str, details: dict[str, str]) -> None:
        waiting = self._record(WAITING)
        if waiting.get(run) != details:
            kept = dict(list(waiting.items())[-KEPT_WAITING:])
            self._store.save(WAITING, {"runs": {**kept, run: details}}, {})

    def _record(self, name: str) -> dict[str, Any]:
        record = self._store.load(name)
        return {} if record is None else dict(record[0]["runs"])

    def _load(self) -> tuple[list[str], list[str], dict[str, float]]:
        """Questions about these data, θs shown of them, and when which run began."""
        values = self._everything()
        mine = values["data"].get(self._data, {"asked": [], "shown": []})
        return list(mine["asked"]), list(mine["shown"]), dict(values["runs"])

    def _save(self, asked: list[str], shown: list[str], runs: dict[str, float]) -> None:
        data = {**self._everything()["data"], self._data: {"asked": asked, "shown": shown}}
        self._store.save(RECORD, {"data": data, "runs": runs}, {})

    def _everything(self) -> dict[str, Any]:
        """The record of all data sets."""
        damaged = PolicyError(
            "its record of earlier questions is damaged, so it answers none; its site must "
            "restore the record from a backup"
        )
        record = self._store.load(RECORD, if_damaged=damaged)
        return {"data": {}, "runs": {}} if record is None else record[0]


def _recent(runs: dict[str, float], now: float) -> dict[str, float]:
    return {name: at for name, at in runs.items() if now - at < DAY_SECONDS}


def _failed(question: str) -> str:
    return f"failed {question}"  # no run has a name with a space
