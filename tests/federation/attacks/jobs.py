"""Jobs that are no runs, sent with an administrator's session; and certificates of other roles."""

import contextlib
import datetime
import io
import json
import shutil
import time
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from fedgranger.flare.identity import ADMIN_NAME, ORGANISATION
from tests.federation.attacks.attempts import keep

JOB_SECONDS = 60.0
CODE = """
import pathlib, sys
kits = [word for word in sys.orig_argv if pathlib.Path(word, "startup").is_dir()]
pathlib.Path({loot!r}, pathlib.Path(kits[0]).name).write_text("ran")
"""


def make_job(folder, settings):
    """A run's own job, as `federation run` sends it, to be altered."""
    from nvflare.collab import CollabRecipe

    from fedgranger.flare.client_job import FlareClient
    from fedgranger.flare.server_job import FlareServer

    recipe = CollabRecipe(
        job_name="x", server=FlareServer(), client=FlareClient(), min_clients=1,
        sync_task_timeout=60,
    )  # fmt: skip
    recipe.set_server_prop("fedgranger", settings)
    with contextlib.redirect_stdout(io.StringIO()):
        recipe.export(str(folder))
    for custom in list(folder.rglob("custom")):
        shutil.rmtree(custom)
    return folder / "x"


def add_code(job, loot):
    """Code that runs as soon as a job's process starts."""
    for config in list(job.rglob("config")):
        custom = config.parent / "custom"
        custom.mkdir()
        (custom / "sitecustomize.py").write_text(CODE.format(loot=str(loot)))


def add_component(job, path, arguments):
    """Something for FLARE to make at every client."""
    for config in job.rglob("config_fed_client.json"):
        content = json.loads(config.read_text("utf-8"))
        content.setdefault("components", []).append({"id": "x", "path": path, "args": arguments})
        config.write_text(json.dumps(content), "utf-8")


def send(kit, job, name, proof, user=None):
    """Submit a job and wait for its proof or its end; a record."""
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    session = None
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            session = new_secure_session(user or ADMIN_NAME, str(kit), timeout=20.0)
            number = session.submit_job(str(job))
            found = _watch(session, number, proof)
            if not proof():
                with contextlib.suppress(Exception):
                    session.abort_job(number)
    except Exception as error:
        found = repr(error)[:300]
    finally:
        if session is not None:
            session.close()
    outcome = "succeeded" if proof() else "refused"
    record = {"attack": name, "outcome": outcome, "evidence": proof() or found, "is_flares": True}
    return keep([record])


def _watch(session, number, proof):
    until, status = time.monotonic() + JOB_SECONDS, ""
    while time.monotonic() < until and not proof():
        status = session.get_job_status(number)
        if status.startswith("FINISHED"):
            break
        time.sleep(1.0)
    return f"the job is {status}"


def make_admin(kits, role, folder):
    """An administrator's kit of another role, signed with the organiser's own key."""
    from nvflare.lighter.utils import (
        Identity,
        generate_cert,
        generate_keys,
        serialize_cert,
        serialize_pri_key,
    )

    user = f"{role}@{ORGANISATION}.local"
    shutil.copytree(kits / "admin", folder)
    root = x509.load_pem_x509_certificate((folder / "startup" / "rootCA.pem").read_bytes())
    own_key, public = generate_keys()
    certificate = generate_cert(
        subject=Identity(user, ORGANISATION, role),
        issuer=Identity(root.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value),
        signing_pri_key=_signing_key(kits, root),
        subject_pub_key=public,
        not_valid_after=root.not_valid_after_utc - datetime.timedelta(minutes=1),
    )
    (folder / "startup" / "client.crt").write_bytes(serialize_cert(certificate))
    (folder / "startup" / "client.key").write_bytes(serialize_pri_key(own_key))
    return folder, user


def _signing_key(kits, root):
    """The key behind the root certificate, wherever the organiser keeps it."""
    wanted = root.public_key().public_numbers()
    for path in kits.rglob("*"):
        if not path.is_file():
            continue
        text = path.read_bytes()
        texts = [text]
        with contextlib.suppress(ValueError, AttributeError):  # keys are also kept in JSON
            values = json.loads(text).values()
            texts += [value.encode() for value in values if isinstance(value, str)]
        for candidate in texts:
            with contextlib.suppress(ValueError, TypeError):
                key = serialization.load_pem_private_key(candidate, None)
                if key.public_key().public_numbers() == wanted:
                    return key
    raise FileNotFoundError(f"no signing key below {kits}")


def settings_of(federation):
    """Where the clients' data lie, as their kits say."""
    kits = Path(federation.folder) / "kits"
    return {path: path.read_bytes() for path in kits.glob("client-*/**/fedgranger.json")}
