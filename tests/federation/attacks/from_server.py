"""What an altered server sends to its clients: everything that a run does not need."""

import io
import secrets
import zipfile

from nvflare.private.defs import RequestHeader

from tests.federation.attacks import from_client
from tests.federation.attacks.attempts import Attack
from tests.federation.attacks.from_client import MAIN, request

NEEDED = {
    "scheduler.check_resource", "scheduler.cancel_resource", "train.abort", "train.check_status",
    "train.notify_job_status",
}  # fmt: skip
"""Topics with which FLARE itself runs a job; a client may answer them to its server."""


def reading_and_asking(victim):
    """Files, machine and settings of a client."""
    yield from _untraced(from_client.reading(victim))
    for attack in _untraced(from_client.asking(victim)):
        if attack.topic not in NEEDED:
            yield attack


def deleting(victim):
    """Folders, plainly and hidden."""
    for attack in from_client.deleting(victim, ()):
        if "in the name" not in attack.name:
            yield _as_server(attack)


def deploying(victim, signed):
    """Put something into a client's folders: code of the server's, or a signed job elsewhere.

    Args:
        victim: the client.
        signed: a job's folder that the administrator signed, as an earlier run left it.
    """
    word = f"word{secrets.token_hex(4)}"
    code = {"custom/own.py": word, "config/config_fed_client.json": "{}"}
    run = f"{secrets.token_hex(4)}-0000-4000-8000-{secrets.token_hex(6)}"
    for claim, role in (("the administrator", "project_admin"), ("a lead", "lead")):
        yield Attack(
            f"deploy code in the name of {claim}", victim.name, MAIN, "train.deploy",
            _job(_zip(code), run, role), lambda _: _found(victim, word),
        )  # fmt: skip
    decoy = victim.decoy()
    (decoy / "kept").write_text("x")
    yield Attack(
        "put a signed job over another folder", victim.name, MAIN, "train.deploy",
        _job(_zip_folder(signed), decoy.name, "project_admin"),
        lambda _: "" if (decoy / "kept").exists() else f"{decoy.name} was replaced",
    )  # fmt: skip


def ending(victim):
    """End the client's process."""
    return from_client.ending(victim)


def _untraced(attacks):
    return [_as_server(attack) for attack in attacks]


def _as_server(attack):
    """The same without a client's token: a client does not ask its server for one."""
    options = attack.options if attack.how == "bulk" else {**attack.options, "token": None}
    return Attack(
        attack.name, attack.target, attack.channel, attack.topic, attack.payload, attack.proof,
        attack.traces, options, attack.how,
    )  # fmt: skip


def _job(data, run, role):
    meta = {
        "name": "x", "submitter_name": "admin@fedgranger.local", "submitter_org": "fedgranger",
        "submitter_role": role,
    }  # fmt: skip
    headers = {
        RequestHeader.JOB_ID: run, RequestHeader.JOB_META: meta, RequestHeader.APP_NAME: "app"
    }  # fmt: skip
    return request("train.deploy", data, **headers)


def _zip(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


def _zip_folder(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return _zip({str(path.relative_to(folder)): path.read_bytes() for path in files})


def _found(victim, word):
    for path in victim.kit.glob("*/app*/custom/own.py"):
        if word in path.read_text("utf-8"):
            return f"{path.name} holds {word}"
    return ""
