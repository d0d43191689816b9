"""The door of every FLARE process: what a run needs comes in, everything else stays out."""

import json
import subprocess
import sys

import pytest

from fedgranger.errors import ConfigError, RunError
from fedgranger.flare.guard import (
    ROLES,
    RULES,
    Envelope,
    envelope_of,
    goes_astray,
    reason_to_refuse,
)
from fedgranger.flare.job_files import check_archive, check_job, write_job
from fedgranger.flare.rights import check_rights, restore_rights
from tests.federation.jobs import JOB, OTHER_JOB, packed

ADMIN = "_admin_0a1b2c3d-1111-4222-8333-0123456789ab"
NAMES = {
    "client": "pump",
    "client-job": f"pump.{JOB}",
    "server": "server",
    "server-job": f"server.{JOB}",
}


def judge(process, over, sender, to, channel, topic, kind="req", invites=False):
    message = Envelope(kind, channel, topic, over, sender, to, invites)
    return reason_to_refuse(process, NAMES[process], message)


# Recorded from an ordinary run of a federation without a guard.
ORDINARY = [
    ("client", "server", "server", "pump", "admin", "admin"),
    ("client", f"pump.{JOB}", f"pump.{JOB}", "pump", "admin", "train.notify_job_status"),
    ("client", f"pump.{JOB}", f"pump.{JOB}", "pump", "cellnet.channel", "bye"),
    ("client-job", "pump", "pump", f"pump.{JOB}", "client_command", "abort"),
    ("client-job", "server", f"server.{JOB}", f"pump.{JOB}", "aux_communication", "__end_run__"),
    ("client-job", "server", f"server.{JOB}", f"pump.{JOB}", "collab", "call"),
    ("client-job", "server", f"server.{JOB}", f"pump.{JOB}", "return_only", "task:x"),
    ("client-job", "server", f"server.{JOB}", f"pump.{JOB}", "sm__STREAM", "sm__ACK"),
    ("server", "pump", "pump", "server", "task", "register"),
    ("server", "pump", "pump", "server", "task", "heart_beat"),
    ("server", ADMIN, ADMIN, "server", "hci_channel", "command"),
    ("server", f"pump.{JOB}", f"pump.{JOB}", f"server.{JOB}", "server_command", "get_task"),
    ("server", f"server.{JOB}", f"server.{JOB}", f"pump.{JOB}", "collab", "call"),
    ("server", f"server.{JOB}", f"server.{JOB}", "server", "server_parent_listener", "heartbeat"),
    ("server-job", "server", f"pump.{JOB}", f"server.{JOB}", "server_command", "submit_update"),
    ("server-job", "server", "server", f"server.{JOB}", "server_command", "app_command"),
]


@pytest.mark.parametrize("message", ORDINARY, ids=lambda message: "-".join(message[::4]))
def test_what_a_run_needs_comes_in(message):
    assert judge(*message) == ""


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (("client", "server", "tank", "pump", "admin", "admin"), "no business"),
        (("client", "server", f"tank.{JOB}", "pump", "admin", "admin"), "no business"),
        (("client", "tank", "tank", "pump", "admin", "admin"), "no business"),
        (("client", "server", "server", "pump", "cellnet.channel", "bulk"), "no such topic"),
        (("client", "server", "server", "pump", "cellnet.channel", "stop"), "no such topic"),
        (("client", "server", "server", "pump", "aux_communication", "x"), "no such channel"),
        (("client", "server", "server", "pump", "client_command", "abort"), "no such channel"),
        (("client", "server", f"server.{JOB}", "pump", "admin", "admin"), "a way that no"),
        (("client", "server", "server", "tank", "admin", "admin"), "no business"),
        (("client", f"pump.{JOB}", "server", "pump", "admin", "admin"), "a way that no"),
        (("client-job", "server", f"tank.{JOB}", f"pump.{JOB}", "collab", "call"), "no business"),
        (("client-job", "server", "server", f"pump.{JOB}", "client_command", "abort"), "channel"),
        (("client-job", "pump", "pump", f"pump.{JOB}", "client_command", "shutdown"), "topic"),
        (
            ("client-job", "pump", "pump", f"pump.{JOB}", "client_command", "configure_job_log"),
            "topic",
        ),
        (
            ("client-job", "server", f"server.{OTHER_JOB}", f"pump.{JOB}", "collab", "call"),
            "one run to another",
        ),
        (("server", "pump", "pump", "tank", "admin", "admin"), "a way that no"),
        (("server", "pump", "server", "tank", "admin", "admin"), "a way that no"),
        (("server", "pump", "tank", "server", "task", "heart_beat"), "another sender"),
        (("server", f"pump.{JOB}", f"pump.{JOB}", f"tank.{JOB}", "collab", "call"), "a way"),
        (("server", "pump", "pump", "server", "server_parent_listener", "get_clients"), "channel"),
        (("server", "pump", f"server.{JOB}", "server", "server_parent_listener", "x"), "a way"),
        (
            ("server", f"pump.{JOB}", f"pump.{JOB}", f"server.{JOB}", "server_command", "abort"),
            "topic",
        ),
        (
            ("server-job", "server", f"pump.{JOB}", f"server.{JOB}", "server_command", "shutdown"),
            "no such topic",
        ),
        (("server", "pump", "pump", "server", "hci_channel", "command"), "no such channel"),
        (("client", "server", "server", "pump.local", "admin", "admin"), "no business"),
        (("client", "", "server", "pump", "admin", "admin"), "no business"),
    ],
)
def test_everything_else_stays_out(message, reason):
    assert reason in judge(*message)


def test_a_piece_of_a_long_message_is_judged_by_that_message():
    headers = {
        "cn__msg_type": "req",
        "cn__channel": "sm__STREAM",
        "cn__topic": "sm__DATA",
        "cn__origin": "server",
        "cn__destination": "pump",
        "sm__ch": "client_command",
        "sm__tp": "shutdown",
    }
    found = envelope_of(headers, "server")
    assert (found.channel, found.topic) == ("client_command", "shutdown")
    assert "no such channel" in reason_to_refuse("client", "pump", found)


def test_headers_that_are_not_text_are_refused():
    for headers in (None, {}, {"cn__origin": ["server"], "cn__msg_type": 3}, {"cn__topic": None}):
        assert reason_to_refuse("client", "pump", envelope_of(headers, "server"))


def test_answers_come_back_only_on_ways_of_a_run():
    assert judge("client", "server", "server", "pump", "task", "register", kind="reply") == ""
    assert judge("client", "server", "tank", "pump", "task", "register", kind="reply")
    assert judge("client", "server", "server", "pump", "admin", "admin", kind="other")


def test_an_invitation_to_connect_elsewhere_is_refused():
    assert "connection of its own" in judge(*ORDINARY[0], invites=True)


def test_only_a_jobs_news_to_its_own_parent_are_dropped_without_a_line():
    news = ("admin", "train.notify_job_status")
    for sender, to, quiet in ((f"pump.{JOB}", "pump", True), (f"pump.{JOB}", "tank", False)):
        message = Envelope("req", *news, f"pump.{JOB}", sender, to, False)
        assert reason_to_refuse("server", "server", message)
        assert goes_astray(message) is quiet
    forged = Envelope("req", *news, f"pump.{JOB}", f"tank.{JOB}", "tank", False)
    assert not goes_astray(forged)


def test_no_rule_lets_a_client_reach_another_client():
    """The list itself: every way that touches a client's process has the server or itself in it."""
    assert {process for process, *_ in RULES} == set(ROLES)
    for process, _, sender, to in RULES:
        if to.startswith("client") and process.startswith("server"):
            assert sender == "server-job"
    to_client = [channels for (process, *_), channels in RULES.items() if process == "client"]
    reached = {channel for channels in to_client for channel, _ in channels}
    assert reached == {"admin", "cellnet.channel"}


SETTINGS = {
    "run": "r",
    "mode": "run",
    "clients": ["a", "b"],
    "left_out": [],
    "call_seconds": 60.0,
    "options": {},
}


def change(path, **values):
    content = json.loads(path.read_text())
    content.update(values)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("alter", "sentence"),
    [
        (lambda app: (app / "custom").mkdir() or (app / "custom/x.py").write_text(""), "'custom/x"),
        (lambda app: (app / "config/comm_config.json").write_text("{}"), "comm_config.json"),
        (lambda app: (app / "a/b").mkdir(parents=True) or (app / "a/b/.__nvfl_sig.json").touch(),
         "a/b"),
        (lambda app: change(app / "config/config_fed_client.json", components=[
            {"id": "_client", "path": "fedgranger.cli.app.app", "args": {"args": ["demo"]}}]),
         "a client for something else"),
        (lambda app: change(app / "config/config_fed_client.json", task_data_filters=[{}]),
         "a client for something else"),
        (lambda app: change(app / "config/config_fed_server.json", components=[
            {"id": "_server", "path": "subprocess.Popen", "args": {"args": ["true"]}}]),
         "the server for something else"),
        (lambda app: (app / "config/config_fed_client.json").write_text("[" * 100_000),
         "cannot be read"),
        (lambda app: (app / "config/config_fed_server.json").unlink(), "no proper file"),
        (lambda app: write_job(app.parents[1], SETTINGS | {"options": {"x": "{$HOME}"}}),
         "the server for something else"),
        (lambda app: write_job(app.parents[1], SETTINGS | {"clients": ["{$HOME}"]}),
         "the server for something else"),
        (lambda app: write_job(app.parents[1], SETTINGS | {"mode": "other"}),
         "the server for something else"),
    ],
)  # fmt: skip
def test_a_job_that_is_not_a_run_is_refused(tmp_path, alter, sentence):
    app = write_job(tmp_path, SETTINGS) / "app"
    check_job(app)
    (app / ".__nvfl_sig.json").write_text("{}")
    check_job(app)
    alter(app)
    with pytest.raises(ConfigError, match=sentence):
        check_job(app)


RUN_FILES = ("config/config_fed_client.json", "config/config_fed_server.json")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (packed(*RUN_FILES, "custom/sitecustomize.py"), "'custom/sitecustomize.py' that no run"),
        (packed(*RUN_FILES, "../../local/x"), "'../../local/x' that no run has"),
        (packed(*RUN_FILES, "custom/"), "'custom/' that no run has"),
        (packed(*RUN_FILES, size=2**21), "larger than a run's"),
        (b"PK\x03\x04 torn", "cannot be unpacked"),
        (None, "cannot be unpacked"),
        ("text", "cannot be unpacked"),
    ],
)
def test_a_packed_job_is_looked_at_before_it_is_unpacked(content, sentence):
    check_archive(packed("config/", *RUN_FILES, ".__nvfl_sig.json", "config/.__nvfl_sig.json"))
    with pytest.raises(ConfigError, match=sentence):
        check_archive(content)


@pytest.mark.parametrize("is_server", [False, True])
def test_rights_are_restored_and_checked(tmp_path, is_server):
    (tmp_path / "local").mkdir()
    names = restore_rights(tmp_path, is_server=is_server)
    assert "authorization.json.default" in names
    assert restore_rights(tmp_path, is_server=is_server) == []
    check_rights(tmp_path, is_server=is_server)
    rights = json.loads((tmp_path / "local/authorization.json").read_text())["permissions"]
    assert {right for role in rights.values() for right in (role["byoc"], role["shell_commands"])} \
        == {"none"}  # fmt: skip
    for role in ("lead", "org_admin", "member"):
        assert set(rights[role].values()) == {"none"}
    for name in names:
        path = tmp_path / "local" / name
        assert path.stat().st_mode & 0o077 == 0
        kept = path.read_text()
        path.write_text(kept.replace("none", "any").replace("mtls", "clear") + " ")
        if json.loads(path.read_text()) != json.loads(kept):
            with pytest.raises(RunError, match=name):
                check_rights(tmp_path, is_server=is_server)
        path.unlink()
        with pytest.raises(RunError, match="is missing or was changed"):
            check_rights(tmp_path, is_server=is_server)
        assert restore_rights(tmp_path, is_server=is_server) == [name]


@pytest.mark.parametrize("role", ["client", "client-job"])
def test_a_process_without_its_rights_does_not_start(tmp_path, role):
    (tmp_path / "local").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "fedgranger.flare.entry", role, "-m", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "authorization.json: is missing or was changed" in done.stderr
    assert "Traceback" not in done.stderr
