"""What an altered server sends to its clients: everything that a run does not need."""

import io
import secrets
import zipfile
from dataclasses import replace

from nvflare.private.defs import RequestHeader

from tests.federation.attacks import from_client
from tests.federation.attacks.attempts import Attack
from tests.federation.attacks.from_client import MAIN, request

NEEDED = {"scheduler.check_resource", "scheduler.cancel_resource"}
"""Topics with which FLARE itself runs a job, and which name no job; a client may answer them."""


def attacks_on(victim, signed):
    """All of them but those that end the victim."""
    found = [
        *from_client.reading(victim), *from_client.asking(victim),
        *from_client.deleting(victim, ()), *deploying(victim, signed),
    ]  # fmt: skip
    return [as_server(attack) for attack in found if attack.topic not in NEEDED]


def as_server(attack):
    """The same under the topic that FLARE's server gives all its commands in a header."""
    if attack.channel != MAIN or attack.how != "ask":
        return attack
    return replace(attack, topic="admin", named=(MAIN, attack.payload.topic))


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
            _job(_zip(code), run, role), lambda _: _found(victim, word), is_flares=True,
        )  # fmt: skip
    decoy = victim.decoy()
    (decoy / "kept").write_text("x")
    yield Attack(
        "put a signed job over another folder", victim.name, MAIN, "train.deploy",
        _job(_zip_folder(signed), decoy.name, "project_admin"),
        lambda _: "" if (decoy / "kept").exists() else f"{decoy.name} was replaced",
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
