"""A server's process never loads a client's code: by the import contract, and when it is tried."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACT = "the server of a federated run never touches a client's code"
AT_SITES = {
    *("answers", "direct", "party", "policy", "preparation", "preview", "questions", "requests"),
    *("secret", "client_job", "simulation", "watcher", "watch_records", "watch_session"),
    *(
        "excursions",
        "followed_run",
        "joined_alarms",
        "new_data",
        "own_data",
        "own_edges",
        "client_facts",
    ),
    *("online", "release_ledger"),
}
"""Modules of federation, flare and rca for a site's process, or one process with every party."""
ENTRIES = ("entry", "components", "guarded", "revocation", "server_job")
"""Modules with which the server's processes begin: `flare/entry.py` and what FLARE builds."""
LIST_MODULES = """
import importlib, sys, warnings
warnings.simplefilter("ignore")
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*[name for name in sys.modules if name.partition(".")[0] == "fedgranger"])
"""


def contract():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    return next(found for found in contracts if found["name"] == CONTRACT)


def loaded(*names):
    """Modules of ours after these were imported in a fresh interpreter."""
    command = [sys.executable, "-c", LIST_MODULES, *names]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def of_clients(names):
    return [name for name in names if name.split(".")[1:2] == ["client"]]


def test_the_contract_has_every_module_but_the_sites():
    found = contract()
    assert "ignore_imports" not in found
    folders = [ROOT / "src/fedgranger" / name for name in ("federation", "flare", "rca")]
    paths = [path for folder in folders for path in folder.glob("[a-z]*.py")]
    expected = {f"fedgranger.{p.parent.name}.{p.stem}" for p in paths if p.stem not in AT_SITES}
    named = {name for name in found["source_modules"] if name.count(".") == 2}
    assert named == expected


def test_a_server_loads_no_client():
    pytest.importorskip("nvflare")
    names = loaded(*(f"fedgranger.flare.{name}" for name in ENTRIES))
    assert "fedgranger.federation.outcome" in names
    assert of_clients(names) == []
    assert {name.split(".")[-1] for name in names if ".f" in name} & AT_SITES == set()


@pytest.mark.slow  # starts processes; it only shows that the other test can fail
def test_a_site_does():
    """The check above can fail."""
    pytest.importorskip("nvflare")
    assert of_clients(loaded("fedgranger.flare.client_job"))
