"""FLARE's processes with a guard at the door: patched before they start, in `entry`.

FLARE makes its cells (its network nodes) deep inside its own code; the classes below take the
place of the originals, so that no cell of the process exists without a guard, not for a moment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from nvflare.fuel.f3 import communicator
from nvflare.fuel.f3.cellnet import cell
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.drivers import aio_grpc_driver, grpc_driver, socket_conn
from nvflare.fuel.f3.drivers.connector_info import Mode
from nvflare.fuel.f3.endpoint import EndpointState
from nvflare.fuel.f3.sfm.conn_manager import ConnManager
from nvflare.fuel.f3.sfm.constants import HandshakeKeys
from nvflare.fuel.utils.admin_name_utils import is_valid_admin_client_name
from nvflare.private.admin_defs import Message, error_reply, ok_reply
from nvflare.private.defs import RequestHeader, new_cell_message
from nvflare.private.fed.app.client import client_train
from nvflare.private.fed.client.admin import FedAdminAgent

from fedgranger.errors import ConfigError
from fedgranger.flare.guard import JOB_ID, envelope_of, goes_astray, reason_to_refuse
from fedgranger.flare.identity import ADMIN_NAME
from fedgranger.flare.job_files import check_archive
from fedgranger.flare.rights import LARGEST_MESSAGE

Report = Callable[..., object]

OF_OWN_JOB = "train.notify_job_status"
NAMING_A_RUN = frozenset({"train.deploy", "train.start_job", "train.abort", OF_OWN_JOB})
NOTICE = "fedgranger.second_session"
COMMANDS = NAMING_A_RUN | {"scheduler.check_resource", "scheduler.cancel_resource", NOTICE}
"""What a server may ask of a client's parent process; FLARE knows about twenty more."""
SILENT_SECONDS = 15.0
"""A connection that was quiet for longer may be replaced by a new one; clients beat every 4 s."""
REPEAT_SECONDS = 60.0
LARGEST_LINES = 300  # a minute, and process
LARGEST_FRAME = LARGEST_MESSAGE + 2**21  # with its headers


def guard_cells(process: str, report: Report, on_server: Callable[[bool], None]) -> None:
    """Let every cell that this process will make refuse what `guard` does not list.

    `report(event, **facts)` receives every refusal, the same one once a minute; `on_server` when
    the connection to the server comes up or goes down.
    """
    seldom = _Seldom(report)
    cells: list[CoreCell] = []

    class GuardedCell(CoreCell):
        """Looks at every message before anything else does."""

        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            cells.append(self)

        def process_message(
            self, endpoint: Any, connection: Any, app_id: int, message: Any
        ) -> None:
            """Drop what may not come in; an answer would only help whoever tries."""
            found = envelope_of(message.headers, endpoint.name)
            reason = reason_to_refuse(process, self.my_info.fqcn, found)
            if reason:
                if goes_astray(found):
                    return
                seldom(
                    "refused",
                    reason=reason,
                    sender=found.sender,
                    over=found.over,
                    to=found.to,
                    channel=found.channel,
                    topic=found.topic,
                )
                return
            super().process_message(endpoint, connection, app_id, message)

        def state_change(self, endpoint: Any) -> None:
            """Pass on that the server came or went."""
            super().state_change(endpoint)
            if endpoint.name == "server":
                on_server(endpoint.state == EndpointState.READY)

    class OneSession(ConnManager):
        """A party that is connected is not displaced by a second process with the same kit."""

        def update_endpoint(self, sfm_conn: Any, data: dict) -> None:
            """Close the newcomer's connection while the first one is alive."""
            name = FQCN.normalize(str(data.get(HandshakeKeys.ENDPOINT_NAME, "")))
            refusal = self._impostor(sfm_conn, name)
            if refusal:
                seldom("refused", reason=refusal, sender=name, channel="", topic="")
                sfm_conn.conn.close()
                raise CommError(CommError.BAD_DATA, f"'{name}': {refusal}")
            present = self.sfm_endpoints.get(name)
            others = [
                other
                for other in (present.connections if present else [])
                if other is not sfm_conn and time.time() - other.last_activity < SILENT_SECONDS
            ]
            if others:
                came_from = sfm_conn.conn.get_conn_properties().get("peer_addr", "")
                is_news = seldom("second session", reason="it is connected already", sender=name,
                                 address=str(came_from).rpartition(":")[0])  # fmt: skip
                sfm_conn.conn.close()
                if process == "server" and is_news:
                    threading.Thread(target=_warn, args=(cells[:1], name), daemon=True).start()
                raise CommError(CommError.BAD_DATA, f"'{name}' is connected already")
            super().update_endpoint(sfm_conn, data)

        def _impostor(self, sfm_conn: Any, name: str) -> str:
            """Why a connection may not have the name that it claims."""
            if sfm_conn.conn.connector.mode != Mode.PASSIVE:
                return ""
            shown = sfm_conn.conn.get_conn_properties().get("peer_cn")
            if is_valid_admin_client_name(name):
                return "" if shown == ADMIN_NAME else "only the admin has such a name"
            try:
                self.identity_resolver.require_match(name, shown, "it")
            except ValueError:
                return "its certificate has another name"
            return ""

    cell.CoreCell = GuardedCell  # type: ignore[misc]
    communicator.ConnManager = OneSession  # type: ignore[misc]
    _survive_garbage(seldom)
    _limit_frames()


def _survive_garbage(report: Report) -> None:
    """A long message that cannot be decoded ends nothing; FLARE's server job would end itself."""
    original = cell.Adapter.call

    def call(self: Any, future: Any, *words: Any, **options: Any) -> None:
        try:
            original(self, future, *words, **options)
        except Exception:
            found = envelope_of(future.headers, "")
            report("refused", reason="it cannot be read", sender=found.sender, to=found.to,
                   channel=found.channel, topic=found.topic)  # fmt: skip

    cell.Adapter.call = call  # type: ignore[method-assign]
    cell._is_server_job_cell = lambda _: False


def _limit_frames() -> None:
    """No single frame is larger than a message may be; FLARE takes up to 2 GB at once."""
    socket_conn.MAX_FRAME_SIZE = LARGEST_FRAME
    for driver in (grpc_driver, aio_grpc_driver):
        driver.GRPC_DEFAULT_OPTIONS[:] = [
            (name, LARGEST_FRAME if name == "grpc.max_receive_message_length" else value)
            for name, value in driver.GRPC_DEFAULT_OPTIONS
        ]


def _warn(own: list[CoreCell], name: str) -> None:
    """Tell a client that a second process with its kit has tried to connect."""
    for mine in own:
        mine.fire_and_forget("admin", "admin", name, new_cell_message({}, Message(NOTICE, "")))


class _Seldom:
    """Report the same thing once a minute, with how often it happened: logs stay small."""

    def __init__(self, report: Report) -> None:
        self._report, self._lock = report, threading.Lock()
        self._known: dict[tuple, list[float]] = {}
        self._since, self._lines = time.monotonic(), 0

    def __call__(self, event: str, **facts: str) -> bool:
        """Whether it was written down."""
        key, now = (event, *facts.values()), time.monotonic()
        with self._lock:
            last = self._known.get(key)
            if last is not None and now - last[0] < REPEAT_SECONDS:
                last[1] += 1
                return False
            if now - self._since > REPEAT_SECONDS:
                self._since, self._lines = now, 0
            self._lines += 1
            if self._lines > LARGEST_LINES:
                return False
            if len(self._known) > 1000:  # made-up names must not fill the memory
                self._known.clear()
            self._known[key] = [now, 0]
            times = 1 + int(last[1]) if last else 1
            if self._lines == LARGEST_LINES:
                event, facts = "refused", {"reason": "more than can be written down this minute"}
        self._report(event, **facts, times=times)
        return True


def guard_commands(report: Report, on_notice: Callable[[], None]) -> None:
    """Leave FLARE's client only the commands of a run, for runs with a proper name.

    `on_notice` is called when the server says that a second process with this kit was there.
    """
    turn, seldom = threading.Lock(), _Seldom(report)

    class GuardedAgent(FedAdminAgent):
        """Answers the server's commands."""

        def _dispatch_request(self, request: Any) -> Any:
            command = request.payload
            sender = str(request.get_header(MessageHeaderKey.ORIGIN, ""))
            reason = _reason_to_refuse(command, sender)
            if reason:
                topic = str(getattr(command, "topic", ""))
                seldom("refused", reason=reason, sender=sender, channel="admin", topic=topic)
                return new_cell_message({}, error_reply("refused"))
            if command.topic == NOTICE:
                on_notice()
                return new_cell_message({}, ok_reply())
            if command.topic not in ("train.deploy", "train.start_job"):
                return super()._dispatch_request(request)
            with turn:  # a job is started when it is whole, or not at all
                return super()._dispatch_request(request)

    client_train.FedAdminAgent = GuardedAgent  # type: ignore[misc]


def _reason_to_refuse(command: Any, sender: str) -> str:
    if not isinstance(command, Message) or command.topic not in COMMANDS:
        return "a run has no such command"
    if (command.topic == OF_OWN_JOB) != ("." in sender):
        return "it comes from a process that does not give this command"
    job = command.get_header(RequestHeader.JOB_ID, None)
    is_name = isinstance(job, str) and JOB_ID.fullmatch(job)
    if not is_name and (job or command.topic in NAMING_A_RUN):
        return "it does not name a run"  # FLARE takes it for the name of a folder
    meta = command.get_header(RequestHeader.JOB_META, None)
    if meta is not None and (not isinstance(meta, dict) or meta.get("job_id") != job):
        return "it describes another run than it names"
    if command.topic == "train.deploy":
        try:
            check_archive(command.body)
        except ConfigError as error:
            return str(error)
    return ""
