"""Which messages a FLARE process lets in: the few a run needs, from whom they may come.

FLARE's processes answer many more topics than a run needs (files, shell, logs, restarts) and most
of them to anybody who can reach them; the server passes messages from client to client. Here every
process gets a list of its own, looked at before a message is decoded or passed on:

    process | came over | from | to | channel | topics

A name is that of the process ("server", "pump", "pump.JOB", "server.JOB", "_admin_..."); who came
over which connection is certified by mutual TLS, inside a machine too. Whatever is not listed is
refused and reported. The payload of an `admin` message names a further topic, which `commands`
checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

ROLES = ("server", "server-job", "client", "client-job")
JOB_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
ADMIN = re.compile(r"_admin_[0-9a-f-]{36}")

STREAM, DATA = "sm__STREAM", "sm__DATA"
"""A long message comes in pieces on this channel; its own channel and topic are further headers."""
PIECES = frozenset({"sm__ACK", "sm__ERROR"})
RUN = frozenset({"__end_run__", "__sync_runner__", "__job_heartbeat__", "__task_check__"})
BYE = ("cellnet.channel", frozenset({"bye"}))
STREAMED = (STREAM, PIECES)
REPLIES = ("return_only", None)

SERVER_COMMANDS = frozenset({"get_task", "submit_update"})
PARENT_COMMANDS = frozenset({"get_clients", "heartbeat", "update_run_status"})
SESSION = ("task", frozenset({"challenge", "register", "heart_beat", "quit", "report_job_failure"}))
OF_OWN_JOB = ("server_parent_listener", PARENT_COMMANDS)
ABORT = ("client_command", frozenset({"abort"}))
NEWS = ("admin", frozenset({"train.notify_job_status"}))
LONG = (REPLIES, STREAMED, BYE)
TO_CLIENT_JOB = (("aux_communication", RUN), ("collab", None), *LONG)
TO_SERVER_JOB = (("aux_communication", RUN), ("server_command", SERVER_COMMANDS), *LONG)
OF_ADMIN = (("hci_channel", None), ("aux_communication", None), ("download_service__", None))
Topics = frozenset[str] | None
"""None: all of a channel."""
Way = tuple[str, str, str, str]
"""Process, came over, from, to."""
RULES: Mapping[Way, tuple[tuple[str, Topics], ...]] = {
    # a client's parent process: its server, and its own jobs
    ("client", "server", "server", "client"): (("admin", frozenset({"admin"})), BYE),
    ("client", "client-job", "client-job", "client"): (NEWS, BYE),
    # a client's job: its parent, and the server's job of the same run
    ("client-job", "client", "client", "client-job"): (ABORT, BYE),
    ("client-job", "server", "server", "client-job"): (STREAMED, BYE),
    ("client-job", "server", "server-job", "client-job"): TO_CLIENT_JOB,
    # the server's parent process: sessions of clients and of the admin; jobs talk through it
    ("server", "client", "client", "server"): (SESSION, BYE),
    ("server", "client-job", "client-job", "server"): (BYE,),
    ("server", "client-job", "client-job", "server-job"): TO_SERVER_JOB,
    ("server", "admin", "admin", "server"): (SESSION, *OF_ADMIN, *LONG),
    ("server", "server-job", "server-job", "server"): (OF_OWN_JOB, *LONG),
    ("server", "server-job", "server-job", "client-job"): TO_CLIENT_JOB,
    # the server's job: its parent, and the clients' jobs of the same run
    ("server-job", "server", "server", "server-job"): (("server_command", None), *LONG),
    ("server-job", "server", "client-job", "server-job"): TO_SERVER_JOB,
}


class Envelope(NamedTuple):
    """What a message says of itself before it is opened.

    Attributes:
        kind: `req`, `reply` or `return`.
        channel: of the message, or of the long message that it is a piece of.
        topic: likewise.
        over: the process at the other end of the connection, as its certificate says.
        sender: the process it says it comes from.
        to: the process it is for.
        invites: it asks to open a further connection.
    """

    kind: str
    channel: str
    topic: str
    over: str
    sender: str
    to: str
    invites: bool


def envelope_of(headers: Mapping[str, Any] | None, over: str) -> Envelope:
    """Read a message's headers; what is not text becomes empty and is refused."""
    headers = headers if isinstance(headers, Mapping) else {}

    def text(key: str) -> str:
        value = headers.get(key, "")
        return value if isinstance(value, str) else ""

    channel, topic = text("cn__channel"), text("cn__topic")
    if (channel, topic) == (STREAM, DATA):
        channel, topic = text("sm__ch"), text("sm__tp")
    return Envelope(
        text("cn__msg_type"),
        channel,
        topic,
        over,
        text("cn__origin"),
        text("cn__destination"),
        headers.get("cn__conn_url") is not None,
    )


def reason_to_refuse(process: str, me: str, message: Envelope) -> str:
    """Say why a process, one of `ROLES` with its own name, must not let a message in or on.

    Empty: it may.
    """
    if message.invites:
        return "it asks for a connection of its own"
    over, sender, to = (_kind(name, process, me) for name in message[3:6])
    if not (over and sender and to):
        return "it comes from or goes to a party that has no business here"
    way = (process, over, sender, to)
    if way not in RULES:
        return "it takes a way that no message of a run takes"
    if process in ("server", "client") and message.sender != message.over:
        return "it names another sender than its connection"
    jobs = {name.partition(".")[2] for name in (me, *message[3:6])} - {""}
    if len(jobs) > 1:
        return "it crosses from one run to another"
    if message.kind in ("reply", "return"):
        return ""  # an answer nobody waits for is thrown away unread
    if message.kind != "req":
        return "it is neither a request nor an answer"
    channels = dict(RULES[way])
    if message.channel not in channels:
        return "a run has no such channel"
    topics = channels[message.channel]
    return "" if topics is None or message.topic in topics else "a run has no such topic"


def goes_astray(message: Envelope) -> bool:
    """Whether an honest job sent this, refused as it must be, with its parent already gone.

    FLARE then tries to reach the parent through the server; nobody need be told.
    """
    site, dot, _ = message.sender.partition(".")
    news = (message.channel, message.topic) == ("admin", "train.notify_job_status")
    return bool(dot) and news and message.to == site and message.over == message.sender


def _kind(name: str, process: str, me: str) -> str:
    """What sort of process a name is, seen from here; empty: none that may be met."""
    site, dot, job = name.partition(".")
    if dot and not JOB_ID.fullmatch(job):
        return ""
    if site == "server":
        return "server-job" if dot else "server"
    if ADMIN.fullmatch(name):
        return "admin"
    if not site or (process.startswith("client") and site != me.partition(".")[0]):
        return ""
    return "client-job" if dot else "client"
