"""What FLARE runs at a client: one object around the party that answers for the site."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from functools import partial
from pathlib import Path

import jax
from nvflare.collab import collab

from fedgranger.errors import FedGrangerError
from fedgranger.federation.codec import decode
from fedgranger.federation.party import Party
from fedgranger.federation.policy import POLICY_FILE, UNLIMITED, SitePolicy, read_policy
from fedgranger.federation.preparation import prepare_party, seeded_preparation
from fedgranger.federation.questions import Site
from fedgranger.federation.requests import CANNOT, refuse
from fedgranger.federation.secret import read_secret
from fedgranger.federation.store import DiskFiles, Store
from fedgranger.federation.watcher import Watcher
from fedgranger.flare.own_data import read_series
from fedgranger.flare.processes import try_lock
from fedgranger.flare.settings import (
    add_alarm,
    audit_log,
    read_settings,
    read_simulation,
    records_folder,
    site_log,
    state_folder,
    write_edges,
)

SERVER = "server"
"""What FLARE calls the server's job object."""
NOT_THE_SERVER = "only the server may call a client"


class FlareClient:
    """A client's job object; everything it knows of its site comes from its own kit."""

    def __init__(self) -> None:
        self._party: Party | None = None
        self._lock = threading.Lock()
        self._problem = ""

    @collab.publish
    def ping(self) -> str:
        """Say that the process is there."""
        if not _is_server("ping", b""):
            raise PermissionError(NOT_THE_SERVER)
        return "here"

    @collab.publish
    def handle(self, payload: bytes) -> bytes:
        """Answer a request of the server; a repeated one waits for the first."""
        if not _is_server("handle", payload):
            return _cannot(payload, "invalid", NOT_THE_SERVER)
        with self._lock, jax.enable_x64(True):
            try:
                if self._party is None and not self._problem:
                    if not self._is_alone():
                        return _cannot(payload, "waiting", "another run's process is at work there")
                    self._party = _party(state_folder(_kit()))
            except Exception as error:  # whatever it is, the server receives nothing of it
                self._note(error)
            if self._party is None:
                return _cannot(payload, "data", CANNOT)
            return self._party.handle(payload)

    def _is_alone(self) -> bool:
        """Hold the site's records until this object or its process ends: one run at a time."""
        path = state_folder(_kit()) / f"{collab.site_name}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        if not try_lock(descriptor):
            os.close(descriptor)
            return False
        weakref.finalize(self, os.close, descriptor)
        return True

    def _note(self, error: Exception) -> None:
        ours = isinstance(error, FedGrangerError | OSError)
        self._problem = str(error) if ours else repr(error)
        with contextlib.suppress(OSError):
            site_log(state_folder(_kit()), self._problem)
            audit_log(_kit()).add("refused", code="data", reason="the site cannot take part")


def _party(folder: Path) -> Party:
    """Build the party from what lies in the kit; in FLARE's simulator, from its folder."""
    name, kit = collab.site_name, _kit()
    settings, simulated = read_settings(kit, name), read_simulation(kit)
    policy = SitePolicy(**UNLIMITED) if simulated else read_policy(kit / POLICY_FILE)
    series, notes = read_series(name, settings, policy)
    for note in notes:
        site_log(folder, note)

    site = Site(
        Store(DiskFiles(records_folder(kit, name))),
        policy,
        read_secret(folder / "secret"),
        time.time,
        lambda sentence: site_log(folder, sentence),
    )
    read = (lambda: read_series(name, settings, policy, is_new=True)[0]) if settings.watch else None
    watcher = Watcher(read, site, lambda alarm: add_alarm(folder, alarm))
    prepare = prepare_party if simulated is None else seeded_preparation(simulated)
    audit = audit_log(kit).add
    return Party(
        series, site, prepare, audit=audit, on_finish=partial(write_edges, folder), watcher=watcher
    )


def _kit() -> Path:
    return Path(collab.workspace.get_root_dir())


def _is_server(method: str, payload: bytes) -> bool:
    """Whether FLARE says that the server calls; anybody else is written down."""
    caller = collab.caller
    if caller == SERVER:
        return True
    size = len(payload) if isinstance(payload, bytes) else 0
    facts = {"caller": str(caller), "method": method, "size": size, "reason": NOT_THE_SERVER}
    with contextlib.suppress(OSError):
        audit_log(_kit()).add("refused", **facts)
    site_log(state_folder(_kit()), f"'{str(caller)[:100]}' called {method}; only the server may")
    return False


def _cannot(payload: bytes, code: str, sentence: str) -> bytes:
    """A refusal that says nothing about the site's files."""
    try:
        run = decode(payload).run
    except FedGrangerError:
        run = ""
    return refuse(payload, run, collab.site_name, code, sentence)
