"""What the server's job does: a run, a watch over new data, or the first question only."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from fedgranger.errors import RunError
from fedgranger.federation.codec import decode
from fedgranger.federation.coordinator import Asking, Coordinator, Engine, drive
from fedgranger.federation.outcome import to_result
from fedgranger.federation.protocol import server_protocol
from fedgranger.federation.validation import check_answer, check_sender
from fedgranger.federation.watching import WatchOptions, watch_protocol
from fedgranger.flare.session import OUTCOME
from fedgranger.rca.new_data import knowledge_of
from fedgranger.rca.ranking import rankings_text
from fedgranger.results import ROOT_CAUSE_FILE, Result

__all__ = ["ask_ranges", "asking_of", "end", "make_run", "make_watch"]


def end(folder: Path, outcome: dict[str, Any], lines: list[str]) -> str:
    """Leave what whoever started the job fetches."""
    (folder / OUTCOME).write_text(json.dumps({**outcome, "lines": lines}), encoding="utf-8")
    return outcome["status"]


def asking_of(given: dict[str, Any], kept: Path) -> Asking:
    """What the server asks: a run, or a watch with what it kept of an earlier run."""
    if given["mode"] != "watch":
        return server_protocol
    if not kept.is_dir():
        raise RunError(
            f"the server keeps no result of run '{given['run']}'; run it again with this version"
        )
    return watch_protocol(knowledge_of(Result.load(kept)), WatchOptions(**given["watch"]))


def make_run(
    coordinator: Coordinator, engine: Engine, given: dict[str, Any], folder: Path, kept: Path
) -> None:
    """Drive a run to its end; its result is kept here too, for a watch later."""
    started = time.time()
    found = drive(coordinator, engine, timeout=float(given["call_seconds"]))
    left_out = (*given["left_out"], *coordinator.dropped)
    result = to_result(coordinator, found, "flare", time.time() - started, left_out)
    result.save(kept)
    result.save(folder)
    coordinator.ledger.table().to_csv(folder / "ledger.csv", index=False)


def make_watch(
    coordinator: Coordinator, engine: Engine, given: dict[str, Any], folder: Path
) -> None:
    """Drive a watch to the end of the new data."""
    found = drive(coordinator, engine, timeout=float(given["call_seconds"]))
    rankings = [alarm.ranking for alarm in found.alarms]
    text = rankings_text(given["watch"]["scorer"], rankings)
    (folder / ROOT_CAUSE_FILE).write_text(text, encoding="utf-8")
    coordinator.ledger.table().to_csv(folder / "watch_ledger.csv", index=False)


def ask_ranges(coordinator: Coordinator, engine: Engine) -> dict[str, Any]:
    """The first question only: what every client says of its time axis, clock and version."""
    found: dict[str, Any] = {}
    for _ in range(3):
        asked = {k: v for k, v in coordinator.requests().items() if k not in found}
        if not asked:
            break
        before = time.time()
        for client, payload in engine.exchange(asked, 30.0):
            packet = decode(payload)
            check_sender(packet, coordinator.plan.run, client)
            if packet.kind != "refusal":
                check_answer("offer", {}, None, packet)
            found[client] = {
                **packet.values,
                **{name: array.tolist() for name, array in packet.arrays.items()},
                "kind": packet.kind,
                "asked": before,
            }
    return found
