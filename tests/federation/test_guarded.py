"""FLARE's own classes behind the guard: who may connect under which name, what is written down."""

import copy
import time

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare'")

from nvflare.fuel.f3 import communicator
from nvflare.fuel.f3.cellnet import cell
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.drivers import aio_grpc_driver, grpc_driver, socket_conn
from nvflare.fuel.f3.drivers.connector_info import Mode
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.private.admin_defs import Message

from fedgranger.flare import guarded
from fedgranger.flare.components import OnlyRuns
from fedgranger.flare.identity import ADMIN_NAME
from tests.federation.jobs import JOB, OTHER_JOB, packed

ADMIN = "_admin_0a1b2c3d-1111-4222-8333-0123456789ab"


class Connection:
    """What FLARE's server knows of a connection that came in over mutual TLS."""

    def __init__(self, common_name):
        params = {"scheme": "grpc", "secure": True, "admin_listener": "true"}
        self.connector = type("Connector", (), {"mode": Mode.PASSIVE, "params": params})()
        self.conn, self.sfm_endpoint, self.is_closed = self, None, False
        self.last_activity = time.time()
        self._properties = {"peer_cn": common_name, "peer_addr": "192.0.2.1:40000"}

    def get_conn_properties(self):
        return self._properties

    def get_name(self):
        return "connection"

    def close(self):
        self.is_closed = True


@pytest.fixture
def door(monkeypatch):
    """A guarded server: its connections, its log, whom it warned; FLARE is put back afterwards."""
    for owner, name in (
        (cell, "CoreCell"), (cell, "_is_server_job_cell"), (cell.Adapter, "call"),
        (communicator, "ConnManager"), (socket_conn, "MAX_FRAME_SIZE"),
        (grpc_driver, "GRPC_DEFAULT_OPTIONS"), (aio_grpc_driver, "GRPC_DEFAULT_OPTIONS"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, copy.copy(getattr(owner, name)))
    log, warned = [], []
    monkeypatch.setattr(guarded, "_warn", lambda _, name: warned.append(name))
    guarded.guard_cells("server", lambda event, **facts: log.append((event, facts)), lambda _: None)
    manager = communicator.ConnManager(Endpoint("server"))
    monkeypatch.setattr(guarded.threading, "Thread", NotLater)
    yield manager, log, warned
    manager.conn_mgr_executor.shutdown()
    manager.frame_mgr_executor.shutdown()


class NotLater:
    """A thread that is done when it starts."""

    def __init__(self, target, args, daemon):
        self.start = lambda: target(*args)


def connect(door, name, common_name):
    connection = Connection(common_name)
    door[0].update_endpoint(connection, {"endpoint_name": name})
    return connection


def test_a_second_session_is_refused_and_the_first_is_told(door):
    first = connect(door, "pump", "pump")
    for name in ("pump", " pump", "pump ", "pump."):
        with pytest.raises(CommError):
            connect(door, name, "pump")
    assert not first.is_closed
    _, log, warned = door
    assert [event for event, _ in log] == ["second session"]
    assert log[0][1]["address"] == "192.0.2.1"
    assert warned == ["pump"]  # once, however often it is tried


def test_a_silent_session_may_be_replaced(door):
    first = connect(door, "pump", "pump")
    first.last_activity -= 2 * guarded.SILENT_SECONDS
    connect(door, "pump", "pump")


def test_another_clients_claim_raises_no_alarm_at_the_client(door):
    connect(door, "pump", "pump")
    for name in ("pump", "pump ", "pump.x", f"server.{JOB}"):
        with pytest.raises(CommError):
            connect(door, name, "tank")
    _, log, warned = door
    assert {(event, facts["reason"]) for event, facts in log} == {
        ("refused", "its certificate has another name")
    }
    assert warned == []


def test_only_the_admin_has_a_name_of_the_admin(door):
    for common_name in ("tank", "", None, "N/A"):
        with pytest.raises(CommError):
            connect(door, ADMIN, common_name)
    connect(door, ADMIN, ADMIN_NAME)
    assert {facts["reason"] for _, facts in door[1]} == {"only the admin has such a name"}


def test_a_flood_of_refusals_is_cut_and_said_so():
    lines = []
    seldom = guarded._Seldom(lambda event, **facts: lines.append((event, facts)))
    assert seldom("refused", reason="same")
    assert not seldom("refused", reason="same")
    for k in range(1000):
        seldom("refused", reason=f"made up {k}")
    assert len(lines) == guarded.LARGEST_LINES
    assert "more than can be written down" in lines[-1][1]["reason"]


def deploy(body, job=JOB, described=JOB):
    message = Message("train.deploy", body)
    message.set_headers({"job_id": job, "job_meta": {"job_id": described}})
    return message


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (deploy(packed("config/config_fed_client.json")), ""),
        (deploy(packed("custom/sitecustomize.py")), "that no run has"),
        (deploy(packed(), described=OTHER_JOB), "another run than it names"),
        (deploy(packed(), job="local"), "does not name a run"),
        (deploy(packed(), job="local", described="local"), "does not name a run"),
        (Message("sys.shell", "cat x"), "no such command"),
        ("sys.shell", "no such command"),
    ],
)
def test_commands_of_a_server(command, sentence):
    found = guarded._reason_to_refuse(command, "server")
    assert sentence in found
    assert bool(found) == bool(sentence)


def test_a_job_that_is_no_run_is_in_the_log(tmp_path, monkeypatch):
    lines = []
    monkeypatch.setattr(OnlyRuns, "report", lambda event, **facts: lines.append((event, facts)))
    (tmp_path / "custom").mkdir()
    (tmp_path / "custom" / "x.py").write_text("")
    assert "that no run has" in OnlyRuns().validate(str(tmp_path))[0]
    assert lines == [
        ("refused", {"reason": "the job brings a file 'custom/x.py' that no run has",
                     "request": "job"}),
    ]  # fmt: skip
