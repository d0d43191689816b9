"""What FLARE runs: one object at the server, one at every client, around the parties' machines."""

from __future__ import annotations

import json
import logging
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
from nvflare.collab import collab
from nvflare.collab.api.context import get_call_context

from fedgranger.data.reading import read_client
from fedgranger.errors import FedGrangerError
from fedgranger.runtime.federated.codec import Packet, decode, digest, encode
from fedgranger.runtime.federated.options import FederationOptions
from fedgranger.runtime.federated.party import Party
from fedgranger.runtime.federated.preparation import prepare_party
from fedgranger.runtime.federated.store import DiskFiles, Store
from fedgranger.runtime.federated.timing import LocalSeries
from fedgranger.runtime.flare.engine import FlareEngine
from fedgranger.runtime.flare.session import OUTCOME, PROGRESS
from fedgranger.runtime.flare.settings import read_settings, state_folder

if TYPE_CHECKING:
    from fedgranger.runtime.federated.coordinator import Coordinator

__all__ = ["FlareClient", "FlareServer"]

logger = logging.getLogger("fedgranger")


class FlareClient:
    """A client's job object; everything it knows of its site comes from its own kit."""

    def __init__(self) -> None:
        self._party: Party | None = None
        self._lock = threading.Lock()
        self._problem = ""

    @collab.publish
    def ping(self) -> str:
        """Say that the process is there."""
        return "here"

    @collab.publish
    def handle(self, payload: bytes) -> bytes:
        """Answer a request; a repeated one waits for the first."""
        with self._lock, jax.enable_x64(True):
            if self._party is None and not self._problem:
                self._party = self._make_party()
            if self._party is None:
                return _cannot(payload, collab.site_name)
            return self._party.handle(payload)

    def _make_party(self) -> Party | None:
        kit = Path(collab.workspace.get_root_dir())
        folder = state_folder(kit)

        def log(sentence: str) -> None:
            with (folder / "log.txt").open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}\n")

        def finish(edges: str) -> None:
            rows = ["cause,effect,p_value,strength"]
            rows += [",".join(map(str, row)) for row in json.loads(edges)]
            (folder / "edges.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")

        try:
            settings = read_settings(kit, collab.site_name)
            data, times, notes = read_client(
                collab.site_name,
                Path(settings.data),
                time_column=settings.time_column,
                missing=settings.missing,
                constant=settings.constant,
            )
            for note in notes:
                log(note)
            series = LocalSeries(data, times, settings.interval)
            return Party(series, Store(DiskFiles(folder)), prepare_party, time.time, log, finish)
        except (FedGrangerError, OSError) as error:
            self._problem = str(error)
            log(self._problem)
            return None


def _cannot(payload: bytes, site: str) -> bytes:
    """A refusal that says nothing about the site's files."""
    try:
        run = decode(payload).run
    except FedGrangerError:
        run = ""
    values = {"code": "data", "sentence": "it cannot take part; its own log says why"}
    return encode(Packet("refusal", run, site, values, {}, digest(payload)))


class FlareServer:
    """The server's job object: runs the coordinator and writes what it found."""

    @collab.main
    def run(self) -> str:
        """Drive one run to its end; a lost client ends the job so that it is submitted again."""
        # 60 MB of statistics that no client needs
        from fedgranger.runtime.federated.coordinator import Coordinator, drive
        from fedgranger.runtime.federated.outcome import to_result
        from fedgranger.runtime.federated.protocol import Plan, Stopped

        given: dict[str, Any] = collab.get_app_prop("fedgranger")
        workspace = collab.workspace
        job = collab.fl_ctx.get_job_id()
        folder = Path(workspace.get_run_dir(job)) / "fedgranger"
        folder.mkdir(parents=True, exist_ok=True)
        options = FederationOptions.from_mapping(given["options"])
        clients = tuple(given["clients"])
        plan = Plan(given["run"], clients, options, nonce=job)
        store = Store(DiskFiles(state_folder(Path(workspace.get_root_dir())) / given["run"]))
        proxies = {proxy.name: proxy for proxy in collab.clients if proxy.name in clients}
        lines: list[str] = []
        started = time.time()

        def log(sentence: str) -> None:
            lines.append(sentence)
            logger.warning(sentence)

        with jax.enable_x64(True):
            coordinator = Coordinator(plan, store, log=log)

            def progress(_topic: str, _data: Any, _context: Any) -> dict[str, Any]:
                return {
                    "phase": coordinator.phase,
                    "round": coordinator.round_index,
                    "lines": lines[-5:],
                    "totals": coordinator.ledger.totals(),
                }

            collab.fl_ctx.get_engine().register_app_command(PROGRESS, progress)
            engine = FlareEngine(proxies, get_call_context(), lambda: bool(collab.is_aborted))
            outcome: dict[str, Any] = {"status": "done", "sentence": ""}
            try:
                if given["mode"] == "check":
                    outcome["ranges"] = _ask_ranges(coordinator, engine)
                else:
                    found = drive(coordinator, engine, timeout=float(given["call_seconds"]))
                    left_out = (*given["left_out"], *coordinator.dropped)
                    seconds = time.time() - started
                    result = to_result(coordinator, found, "flare", seconds, left_out)
                    result.save(folder)
                    coordinator.ledger.table().to_csv(folder / "ledger.csv", index=False)
            except Stopped as stop:
                outcome = {"status": "stopped", "sentence": str(stop)}
            except FedGrangerError as error:
                outcome = {"status": "refused", "sentence": str(error)}
        outcome["lines"] = lines
        (folder / OUTCOME).write_text(json.dumps(outcome), encoding="utf-8")
        return outcome["status"]


def _ask_ranges(coordinator: Coordinator, engine: FlareEngine) -> dict[str, Any]:
    """The first question only: what every client says of its time axis, clock and version."""
    found: dict[str, Any] = {}
    for _ in range(3):
        asked = {k: v for k, v in coordinator.requests().items() if k not in found}
        if not asked:
            break
        before = time.time()
        for client, payload in engine.exchange(asked, 30.0):
            packet = decode(payload)
            found[client] = {**packet.values, "kind": packet.kind, "asked": before}
    return found
