"""What an altered server sends to its clients: everything that a run does not need."""

import io
import secrets
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path

from nvflare.lighter.utils import load_private_key_file, sign_folders
from nvflare.private.defs import RequestHeader
from nvflare.private.scheduler_constants import ShareableHeader

from fedgranger.flare.guard import JOB_ID
from tests.federation.attacks import from_client
from tests.federation.attacks.attempts import Attack, carry_out
from tests.federation.attacks.from_client import MAIN, request

NEEDED = {"scheduler.check_resource", "scheduler.cancel_resource"}
"""Topics with which FLARE itself runs a job, and which name no job; a client may answer them."""


PAD_BYTES = 300_000_000
"""Zeros that pack to nothing and take the victim's disk a while."""
START_DELAYS = (0.3, 0.6, 1.0, 1.5, 2.0, 3.0)


def attacks_on(victim, signed):
    """All of them but those that end the victim.

    Args:
        victim: the client.
        signed: a job's folder that the administrator signed, as an earlier run left it.
    """
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
    """Put something into a client's folders: code of the server's, or a signed job elsewhere."""
    word = f"word{secrets.token_hex(4)}"
    code = {"custom/own.py": word, "config/config_fed_client.json": "{}"}
    run = _run_name()
    for claim, role in (("the administrator", "project_admin"), ("a lead", "lead")):
        yield Attack(
            f"deploy code in the name of {claim}", victim.name, MAIN, "train.deploy",
            _job(_zip(code), run, role), lambda _: _found(victim, word),
            reason="'custom/own.py' that no run has",
        )  # fmt: skip
    decoy = victim.decoy()
    (decoy / "kept").write_text("x")
    yield Attack(
        "put a signed job over another folder", victim.name, MAIN, "train.deploy",
        _job(_zip_folder(signed), decoy.name, "project_admin"),
        lambda _: "" if (decoy / "kept").exists() else f"{decoy.name} was replaced",
        reason="does not name a run",
    )  # fmt: skip


def race(altered, victim, signed, kit):
    """Code that the server signed itself, started while the victim still unpacks it; records.

    FLARE starts only what was deployed, but takes the folder's name from the job's description: so
    a job with honest files is deployed first that describes the other one.

    Args:
        altered: the server.
        victim: the client.
        signed: the folder of an earlier run's job at the victim.
        kit: the server's own.
    """
    honest, run = _run_name(), _run_name()
    first = as_server(Attack(
        "deploy a job that describes another run", victim.name, MAIN, "train.deploy",
        _job(_zip_folder(signed), honest, "project_admin", described=run),
        lambda _: _left_behind(victim, honest), reason="describes another run",
    ))  # fmt: skip
    records = carry_out(altered, "server", [first], [victim])
    ask = request("scheduler.check_resource", {}, **_naming(run, "project_admin"))
    asks = [("ask", (victim.name, MAIN, "admin", ask), {}) for _ in START_DELAYS]
    answers = altered.order("server", "send_all", asks)  # an honest question: who may start a job
    tokens = [JOB_ID.search(answer["answer"])[0] for answer in answers]
    attacks = list(_racing(victim, kit, honest, run, tokens))
    return records + carry_out(altered, "server", attacks, [victim])


def _racing(victim, kit, honest, run, tokens):
    loot = victim.kit / f"loot{secrets.token_hex(4)}"
    code = f"open({str(loot)!r}, 'w').close()"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "custom").mkdir()
        (folder / "custom" / "sitecustomize.py").write_text(code)
        with (folder / "pad").open("wb") as pad:
            pad.truncate(PAD_BYTES)
        startup = kit / "startup"
        key = load_private_key_file(str(startup / "server.key"))
        sign_folders(name, key, str(startup / "server.crt"))
        data = _zip_folder(folder)

    def has_run(_):
        return f"{loot.name} is there" if loot.exists() else ""

    yield as_server(Attack(
        "deploy code that the server signed", victim.name, MAIN, "train.deploy",
        _job(data, run, "project_admin"), lambda _: has_run(_) or _left_behind(victim, run),
        reason="that no run has",
    ))  # fmt: skip
    for delay, token in zip(START_DELAYS, tokens, strict=True):
        headers = _naming(honest, "project_admin", described=run)
        headers[ShareableHeader.RESOURCE_RESERVE_TOKEN] = token
        yield as_server(Attack(
            f"start it after {delay} s", victim.name, MAIN, "train.start_job",
            request("train.start_job", {}, **headers), has_run, options={"delay": delay},
            reason="describes another run",
        ))  # fmt: skip


def _left_behind(victim, run):
    return f"{run} was unpacked" if (victim.kit / run).exists() else ""


def _run_name():
    return f"{secrets.token_hex(4)}-0000-4000-8000-{secrets.token_hex(6)}"


def _job(data, run, role, described=None):
    return request("train.deploy", data, **_naming(run, role, described))


def _naming(run, role, described=None):
    meta = {
        "name": "x", "job_id": described or run, "submitter_name": "admin@fedgranger.local",
        "submitter_org": "fedgranger", "submitter_role": role,
    }  # fmt: skip
    return {
        RequestHeader.JOB_ID: run, RequestHeader.JOB_META: meta, RequestHeader.APP_NAME: "app"
    }  # fmt: skip


def _zip(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
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
