"""What FLARE runs at the server: one object around the coordinator; it loads no client's code."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import jax
from nvflare.collab import collab
from nvflare.collab.api.context import get_call_context

from fedgranger.disk import write_atomically, write_text
from fedgranger.errors import FedGrangerError, RunError
from fedgranger.federation.agreed_options import FederationOptions, Plan, WatchOptions
from fedgranger.federation.coordinator import Asking, Coordinator
from fedgranger.federation.driving import Engine, ask_first, drive
from fedgranger.federation.outcome import to_result
from fedgranger.federation.protocol import RunStopped, server_protocol
from fedgranger.federation.store import DiskFiles, Store
from fedgranger.federation.watching import watch_protocol
from fedgranger.flare.engine import FlareEngine
from fedgranger.flare.job_files import OUTCOME, PROGRESS
from fedgranger.flare.settings import kept_result, state_folder
from fedgranger.rca.alarms import knowledge_of
from fedgranger.rca.ranking import rankings_text
from fedgranger.results import ROOT_CAUSE_FILE, Result
from fedgranger.run_folder import save_table

logger = logging.getLogger("fedgranger")


class FlareServer:
    """The server's job object: runs the coordinator and writes what it found."""

    @collab.main
    def run(self) -> str:
        """Drive one run to its end; a lost client ends the job so that it is submitted again."""
        given: dict[str, Any] = collab.get_app_prop("fedgranger")
        workspace, job = collab.workspace, collab.fl_ctx.get_job_id()
        kit = Path(workspace.get_root_dir())
        options = FederationOptions.from_mapping(given["options"])
        clients = tuple(given["clients"])
        plan = Plan(given["run"], clients, options, nonce=job)  # checks the run's name
        folder = Path(workspace.get_run_dir(job)) / "fedgranger"
        folder.mkdir(parents=True, exist_ok=True)
        store = Store(DiskFiles(state_folder(kit) / plan.run))
        proxies = {proxy.name: proxy for proxy in collab.clients if proxy.name in clients}
        lines: list[str] = []
        kept = kept_result(kit, plan.run)

        def log(sentence: str) -> None:
            lines.append(sentence)
            logger.warning(sentence)

        outcome: dict[str, Any] = {"status": "done", "sentence": ""}
        with jax.enable_x64(True):
            try:
                asking = _asking_of(given, kept)
                coordinator = Coordinator(plan, store, log=log, protocol=asking)
                _publish_progress(coordinator, lines)
                engine = FlareEngine(proxies, get_call_context(), lambda: bool(collab.is_aborted))
                if given["mode"] == "check":
                    outcome["ranges"] = ask_first(coordinator, engine)
                elif given["mode"] == "watch":
                    _watch(coordinator, engine, given, folder)
                else:
                    _run(coordinator, engine, given, folder, kept)
            except RunStopped as stop:
                outcome = {"status": "stopped", "sentence": str(stop)}
            except FedGrangerError as error:
                outcome = {"status": "refused", "sentence": str(error)}
        text = json.dumps({**outcome, "lines": lines})  # whoever started the job fetches it
        write_text(folder / OUTCOME, text)
        return outcome["status"]


def _publish_progress(coordinator: Coordinator, lines: list[str]) -> None:
    """Let whoever started the job ask how far it is."""

    def progress(_topic: str, _data: Any, _context: Any) -> dict[str, Any]:
        return {
            "phase": coordinator.phase,
            "round": coordinator.round_index,
            "lines": lines[-5:],
            "totals": coordinator.ledger.totals(),
        }

    collab.fl_ctx.get_engine().register_app_command(PROGRESS, progress)


def _asking_of(given: dict[str, Any], kept: Path) -> Asking:
    """What the server asks: a run, or a watch with what it kept of an earlier run."""
    if given["mode"] != "watch":
        return server_protocol
    if not kept.is_dir():
        raise RunError(
            f"the server keeps no result of run '{given['run']}'; run it again with this version"
        )
    return watch_protocol(knowledge_of(Result.load(kept)), WatchOptions(**given["watch"]))


def _run(
    coordinator: Coordinator, engine: Engine, given: dict[str, Any], folder: Path, kept: Path
) -> None:
    """Drive a run to its end; its result is kept here too, for a watch later."""
    started = time.time()
    found = drive(coordinator, engine, timeout=float(given["call_seconds"]))
    left_out = (*given["left_out"], *coordinator.dropped)
    result = to_result(coordinator, found, "flare", time.time() - started, left_out)
    result.save(kept, overwrite=True)
    result.save(folder, overwrite=True)
    table = coordinator.ledger.table()
    write_atomically(folder / "ledger.csv", lambda path: save_table(path, table))


def _watch(coordinator: Coordinator, engine: Engine, given: dict[str, Any], folder: Path) -> None:
    """Drive a watch to the end of the new data."""
    found = drive(coordinator, engine, timeout=float(given["call_seconds"]))
    rankings = [alarm.ranking for alarm in found.alarms]
    text = rankings_text(given["watch"]["scorer"], rankings)
    write_text(folder / ROOT_CAUSE_FILE, text)
    table = coordinator.ledger.table()
    write_atomically(folder / "watch_ledger.csv", lambda path: save_table(path, table))
