"""What a client demands of a request before it allocates, computes or writes anything.

A request that it does not answer it refuses, with a code and one sentence.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from fedgranger.data.common_axis import LARGEST_MULTIPLE, is_covered
from fedgranger.data.time_axis import TimeGrid, TimeRange
from fedgranger.errors import FedGrangerError
from fedgranger.federation.agreed_options import is_client_name
from fedgranger.federation.codec import MessageError, Packet, digest, encode
from fedgranger.federation.policy import PolicyError
from fedgranger.federation.questions import WaitingError
from fedgranger.federation.release_ledger import BudgetError
from fedgranger.federation.time_fields import read_fraction, read_stretches

CANNOT = "it cannot take part; its own log says why"
LARGEST_EPOCH_JUMP = 10_000
"""A server starts again with the next epoch; another client may have seen more starts."""
ALARM_KEYS = frozenset({"step", "time", "num_steps", "name", "is_defined", "ranking", "evidence"})
ROW_NAMES = {"client", "explained_by"}
ROW_NUMBERS = {"score", "ci_low", "ci_high", "probability", "surprise", "explained", "onset"}
"""What an alarm says of a suspect."""
LONGEST_SENTENCE = 1000


class RefusalError(FedGrangerError):
    """Why a request is not answered; `code` says how the server has to take it."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def reason_of(error: Exception, run: str, log: Callable[[str], None]) -> tuple[str, str]:
    """Code and sentence with which a request is refused that led to an error.

    What is wrong with the site's data is said in its own log and not to the server: a sentence can
    hold a sensor's name or a value.
    """
    if isinstance(error, RefusalError):
        return error.code, str(error)
    if isinstance(error, WaitingError):
        log(
            f"run '{run}' waits for your word: 'fedgranger federation allow KIT {run}' shows what "
            "it asks for and lets it go on"
        )
        return "waiting", str(error)
    if isinstance(error, BudgetError):
        log(f"run '{run[:63]}' gets no more answers: {error}")
        return "budget", str(error)
    if isinstance(error, PolicyError):
        log(f"run '{run[:63]}' was refused: {error}")
        return "policy", str(error)
    if isinstance(error, MessageError):
        return "invalid", str(error)
    if isinstance(error, OSError):
        log(f"the disk failed: {error}")
        return "disk", "its disk failed; its own log says how"
    log(str(error) if isinstance(error, FedGrangerError) else repr(error))
    return "data", CANNOT


def refuse(payload: object, run: str, client: str, code: str, sentence: str) -> bytes:
    """The answer to a request that is refused."""
    answers = digest(payload) if isinstance(payload, bytes) else ""
    values = {"code": code, "sentence": sentence}
    return encode(Packet("refusal", run, client, values, {}, answers))


def read_grid(packet: Packet, mine: TimeRange, epoch: int) -> tuple[TimeGrid, int, int]:
    """The time axis, epoch and round of a `begin` or `follow`, within the client's own data.

    The axis may leave out steps at which the client has no rows, never some of its rows: a server
    cannot choose rows to look at.

    Raises:
        MessageError: it asks for time that the client does not have.
    """
    values = packet.values
    first, interval = read_fraction(values["first"]), read_fraction(values["interval"])
    stretches = read_stretches(packet.arrays["stretches"])
    grid = TimeGrid(str(values["time_kind"]), first, interval, stretches)
    multiple = interval / mine.interval
    is_multiple = 1 <= round(multiple) <= LARGEST_MULTIPLE
    is_multiple &= abs(multiple - round(multiple)) <= multiple / 10**6
    if grid.time_kind != mine.time_kind or not is_multiple:
        raise MessageError("the request samples time in another way than the client")
    span = (mine.last - first) / interval
    is_inside = first >= mine.first - mine.interval / 2 and stretches[-1][1] <= span + 2
    if not is_inside or grid.num_steps < 2:
        raise MessageError("the request asks for time outside the client's data")
    if not is_covered(mine, grid):
        raise MessageError("the request leaves out rows of the client's data")
    wanted, round_index = int(values["epoch"]), int(values.get("round", 0))
    if not 0 <= wanted <= epoch + LARGEST_EPOCH_JUMP or round_index < 0:
        raise MessageError("the request's epoch or round is out of range")
    return grid, wanted, round_index


TestedPair = tuple[str, str, float, float, bool | None]
"""Cause, effect, p-value, strength and whether it is an edge; NaN and None: not tested."""


def read_edges(text: str) -> list[TestedPair]:
    """The pairs of a `finish`."""
    try:
        rows = json.loads(text)
        found = [
            (cause, effect, _number(p), _number(size), {True: True, False: False, None: None}[edge])
            for cause, effect, p, size, edge in rows
        ]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise MessageError("the edges cannot be read") from None
    for cause, effect, *_ in found:
        for name in (cause, effect):
            if not is_client_name(name):
                raise MessageError("the edges name a client that cannot be one")
    return found


def read_alarm(text: str) -> dict[str, Any]:
    """An alarm: when it began, the suspects and the evidence, all of it checked."""
    try:
        alarm = json.loads(text)
        is_alarm = isinstance(alarm, dict) and set(alarm) == ALARM_KEYS and _are_fields(alarm)
    except (ValueError, TypeError, RecursionError):
        is_alarm, alarm = False, {}
    if not is_alarm:
        raise MessageError("the alarm cannot be read")
    for row in alarm["ranking"]:
        named = [row["client"], *([] if row["explained_by"] is None else [row["explained_by"]])]
        if not all(map(is_client_name, named)):
            raise MessageError("the alarm names a client that cannot be one")
    for sentence in (alarm["name"], alarm["time"], *alarm["evidence"]):
        is_text = isinstance(sentence, str) and len(sentence) <= LONGEST_SENTENCE
        if not is_text or not sentence.isprintable():
            raise MessageError("the alarm holds a sentence that cannot be shown")
    return alarm


def _are_fields(alarm: dict[str, Any]) -> bool:
    """Whether the fields of an alarm are of the types that they should be."""
    kinds = {"step": int, "num_steps": int, "is_defined": bool, "ranking": list, "evidence": list}
    if any(type(alarm[name]) is not kind for name, kind in kinds.items()) or not alarm["ranking"]:
        return False
    rows = alarm["ranking"]
    if not all(isinstance(row, dict) and set(row) == ROW_NAMES | ROW_NUMBERS for row in rows):
        return False
    for row in rows:
        for key in ROW_NUMBERS:
            _number(row[key])
    return True


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(value)
    return float(value)
