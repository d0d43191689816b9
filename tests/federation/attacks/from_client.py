"""What an altered client sends to another client's parent process and to the server's."""

import socket

from nvflare.fuel.f3.cellnet.defs import CellChannel
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey as Key
from nvflare.private.admin_defs import Message as Admin
from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

from tests.federation.attacks.attempts import Attack

MAIN = CellChannel.CLIENT_MAIN
NET = "_net_manager"
CHANGING = {
    "train.delete_run", "train.shutdown", "train.restart", "train.deploy", "train.start_job",
    "train.configure_job_log", "sys.shell",
}  # fmt: skip
BODIES = {
    "scheduler.check_resource": {}, "scheduler.cancel_resource": {},
    "resource_manager.report_resources": {}, "sys.configure_site_log": "DEBUG",
}  # fmt: skip
NET_TOPICS = (
    "cells", "route", "peers", "conns", "url_use", "echo", "msg_stats", "list_pools",
    "comm_config", "config_vars", "process_info", "stop_cell",
)  # fmt: skip


def request(topic, body="", **headers):
    """A request as FLARE's administrator sends it."""
    message = Admin(topic, body)
    message.set_headers(headers)
    return message


def reading(victim):
    """Files of the victim, by every way that was found."""
    target, word = victim.name, victim.word
    cat = request("sys.shell", f"cat {victim.marker}")
    head = request("sys.shell", f"head -n 2 {victim.data}")
    yield Attack("read a private file", target, MAIN, "sys.shell", cat, _holds(word))
    yield Attack("read raw rows", target, MAIN, "sys.shell", head, _holds(victim.first_row))
    yield Attack("read a file under the server's topic", target, MAIN, "admin", cat, _holds(word))
    yield Attack(
        "read a file, signed rights claimed", target, MAIN, "sys.shell",
        request("sys.shell", f"cat {victim.marker}", USER_NAME="admin", USER_ROLE="project_admin"),
        _holds(word),
    )  # fmt: skip


def asking(victim):
    """Every topic of the client's parent that tells something, and the network agent's."""
    topics = {
        topic
        for processor in ClientRequestProcessors.request_processors
        for topic in processor.get_topics()
    }
    for topic in sorted(topics - CHANGING):
        yield Attack(
            f"ask {topic}", victim.name, MAIN, topic,
            request(topic, BODIES.get(topic, ""), job_id="x"), is_answered,
        )  # fmt: skip
    for topic in NET_TOPICS:
        payload = {"mode": "count"} if topic == "msg_stats" else "x"
        yield Attack(f"ask {NET} {topic}", victim.name, NET, topic, payload, is_answered)
    yield Attack(
        "ask for an auxiliary message", victim.name, CellChannel.AUX_COMMUNICATION, "x",
        request("x"), is_answered,
    )  # fmt: skip


def deleting(victim, tokens=("relay", "old")):
    """Folders of the victim: plainly, hidden in bulk messages, under forged names."""
    yield deletion("delete a folder", victim)
    for name, origin in (("the server", "server"), ("itself", victim.name)) if tokens else ():
        for token in tokens:
            yield deletion(
                f"delete a folder in the name of {name}, token {token}", victim,
                options={"origin": origin, "token": token},
            )  # fmt: skip
        yield deletion(
            f"delete a folder in the name of {name}, own token", victim, is_flares=True,
            options={"origin": origin},
        )  # fmt: skip
    for depth in (1, 2):
        yield deletion(
            f"delete a folder by a bulk message, depth {depth}", victim, how="bulk",
            options={"depth": depth}, named=(CellChannel.CELLNET, "bulk"),
        )  # fmt: skip


def connecting(victim, listener):
    """Make the victim connect to a place of the attacker's choice."""
    host, port = listener.getsockname()
    yield Attack(
        "make it connect elsewhere", victim.name, NET, "echo", "x", _is_visited(listener),
        options={"headers": {Key.CONN_URL: f"tcp://{host}:{port}"}},
    )  # fmt: skip


def ending(victim):
    """End the victim's process, every way in turn (the supervisor starts it again)."""
    for channel, topic, payload in (
        (MAIN, "train.shutdown", request("train.shutdown")),
        (MAIN, "train.restart", request("train.restart")),
    ):
        yield Attack(f"end it by {topic}", victim.name, channel, topic, payload, victim.is_ended())


def listening():
    """A socket that waits for a victim."""
    found = socket.create_server(("127.0.0.1", 0))
    found.settimeout(0.1)
    return found


def deletion(name, victim, **more):
    path = victim.decoy()
    payload = request("train.delete_run", job_id=path.name)
    return Attack(name, victim.name, MAIN, "train.delete_run", payload, _is_gone(path), **more)


def _holds(word):
    return lambda answer: f"the answer holds {word!r}" if word in answer["answer"] else ""


def is_answered(answer):
    is_good = answer["code"] == "ok" and not answer["is_error"]
    return f"answered: {answer['answer'][:80]}" if is_good else ""


def _is_gone(path):
    return lambda _: "" if path.exists() else f"{path.name} is gone"


def _is_visited(listener):
    found = []

    def proof(_):
        if not found:
            try:
                found.append(listener.accept()[0].close())
            except TimeoutError:
                return ""
        return "it connected"

    return proof
