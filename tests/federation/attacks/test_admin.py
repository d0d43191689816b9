"""An administrator, of whatever role, starts runs and nothing else."""

import json
import shutil

import pytest

import fedgranger as fg
from fedgranger.federation.agreed_options import FederationOptions
from tests.federation.flare import RealFederation, wait_for

pytest.importorskip("nvflare", reason="needs the extra 'flare'")

from tests.federation.attacks.attempts import open_doors
from tests.federation.attacks.jobs import (
    add_code,
    add_component,
    make_admin,
    make_job,
    send,
    settings_of,
)
from tests.federation.attacks.orders import Altered


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """Two connected clients; the second lost its policy before it started."""
    folder = tmp_path_factory.mktemp("scene")
    federation = RealFederation(fg.simulate(2, 301, seed=0)[0], folder)
    (federation.kits["client2"] / "local" / "authorization.json").unlink()
    with federation:
        wait_for(lambda: "client1': connected" in federation.command("status").stdout, 120)
        yield federation


def settings(run="x"):
    options = json.loads(FederationOptions(fg.RunConfig(solver="newton")).to_text())
    return {
        "run": run, "mode": "check", "clients": ["client1"], "left_out": [], "call_seconds": 5.0,
        "options": options,
    }  # fmt: skip


@pytest.mark.slow  # real FLARE processes; four jobs, one by one
def test_a_job_makes_nothing_but_the_objects_of_a_run(scene, tmp_path):
    loot, other = tmp_path / "loot", tmp_path / "other.csv"
    shutil.copy(scene.folder / "data" / "client2.csv", other)
    before = settings_of(scene)
    words = ["federation", "start", str(scene.kits["client1"]), "--data", str(other)]
    records = []
    for name, path, arguments, proof in (
        ("run a command of fedgranger", "fedgranger.cli.app.app",
         {"args": ["simulate", str(loot)], "standalone_mode": False},
         lambda: str(loot) if loot.exists() else ""),
        ("point a client to other data", "fedgranger.cli.app.app",
         {"args": words, "standalone_mode": False},
         lambda: "changed" if settings_of(scene) != before else ""),
        ("start a program", "subprocess.Popen", {"args": ["touch", str(loot)]},
         lambda: str(loot) if loot.exists() else ""),
    ):  # fmt: skip
        job = make_job(tmp_path / name.replace(" ", "-"), settings())
        add_component(job, path, arguments)
        records += send(scene.kits["admin"], job, name, proof)
        if loot.exists():
            shutil.rmtree(loot) if loot.is_dir() else loot.unlink()
    outside = scene.folder / "outside"
    job = make_job(tmp_path / "outside", settings(run="../../../outside"))
    records += send(
        scene.kits["admin"], job, "write outside the server's store",
        lambda: str(outside) if outside.exists() else "",
    )  # fmt: skip
    assert not open_doors(records)


@pytest.mark.slow  # real FLARE processes; a job for each role
def test_no_role_brings_code_to_a_client_even_with_the_server(scene, tmp_path):
    """The server asks for no rights; client2's policy was taken away, so that FLARE has its own."""
    records = []
    with Altered(scene, "server") as altered:
        assert wait_for(lambda: "client1" in altered.order("server", "peers"), 60)
        for role in ("project_admin", "org_admin", "lead"):
            loot = tmp_path / f"loot-{role}"
            loot.mkdir()
            job = make_job(tmp_path / f"job-{role}", settings())
            add_code(job, loot)
            kit, user = scene.kits["admin"], None
            if role != "project_admin":
                kit, user = make_admin(scene.folder / "kits", role, tmp_path / role)

            def proof(loot=loot):
                return ", ".join(path.name for path in loot.glob("client-*"))

            records += send(kit, job, f"bring code as {role}", proof, user)
    assert not open_doors(records)
