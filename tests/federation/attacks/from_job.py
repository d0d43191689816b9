"""What an altered client sends while a run goes on: to the jobs of the server and of others."""

from nvflare.apis.shareable import Shareable
from nvflare.fuel.f3.cellnet.defs import CellChannel
from nvflare.private.defs import CellMessageHeaderKeys as Auth

from tests.federation.attacks.attempts import Attack
from tests.federation.attacks.from_client import MAIN, is_answered, request

PARENT = CellChannel.SERVER_PARENT_LISTENER
COMMAND = CellChannel.SERVER_COMMAND


def asking(victim, job):
    """Questions that change nothing."""
    about = {"headers": {Auth.JOB_ID: job}}
    own = f"{victim.name}.{job}"
    yield Attack("ask the server for all clients' tokens", "server", PARENT, "get_clients", None,
                 _holds("Client"), options=about)  # fmt: skip
    yield Attack("ask the server's job how it stands", f"server.{job}", COMMAND, "get_run_info",
                 Shareable(), is_answered)  # fmt: skip
    yield Attack("ask the server's job for its errors", f"server.{job}", COMMAND, "get_errors",
                 Shareable(), is_answered)  # fmt: skip
    yield Attack("ask another's job how it stands", own, CellChannel.CLIENT_COMMAND,
                 "check_status", Shareable(), is_answered)  # fmt: skip
    yield Attack("stream to another's job", own, CellChannel.AUX_COMMUNICATION, "x", Shareable(),
                 is_answered, how="stream")  # fmt: skip
    yield Attack("set another's job's log", victim.name, MAIN, "train.configure_job_log",
                 request("train.configure_job_log", "DEBUG", job_id=job), is_answered)  # fmt: skip


def ending(victim, server, job):
    """Ways to end a run, each for a run of its own when it succeeds."""
    about = {"headers": {Auth.JOB_ID: job}}
    own, theirs = f"{victim.name}.{job}", f"server.{job}"
    client_ends, server_ends = victim.is_ended(job), server.is_ended(job)
    yield Attack("abort another's job at its parent", victim.name, MAIN, "train.abort",
                 request("train.abort", job_id=job), client_ends)  # fmt: skip
    yield Attack("abort another's job", own, CellChannel.CLIENT_COMMAND, "abort", Shareable(),
                 client_ends)  # fmt: skip
    yield Attack("tell another's job that the run is over", own, CellChannel.AUX_COMMUNICATION,
                 "__end_run__", Shareable(), client_ends)  # fmt: skip
    yield Attack("abort the server's job", theirs, COMMAND, "abort", Shareable(),
                 server_ends)  # fmt: skip
    yield Attack("tell the server that its job failed", "server", PARENT, "update_run_status",
                 {"execution_error": True}, server_ends, options=about)  # fmt: skip
    yield Attack("crash the server's job by a stream", theirs, COMMAND, "submit_update",
                 b"not readable", server_ends, how="garble")  # fmt: skip


def _holds(word):
    return lambda answer: answer["answer"][:300] if word in answer["answer"] else ""
