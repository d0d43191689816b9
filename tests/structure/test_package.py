"""The package keeps its own rules: layers, public names, examples, what is in the wheel."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedgranger
import fedgranger_research

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    info.name
    for package in (fedgranger, fedgranger_research)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not info.name.endswith("__main__")
)


def lint_imports(root):
    return subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        cwd=root,
        capture_output=True,
        text=True,
    )


def test_layers():
    outcome = lint_imports(ROOT)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "6 kept, 0 broken" in outcome.stdout


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        (
            "from fedgranger.client import kalman",
            "fedgranger.server is not allowed to import fedgranger.client",
        ),
        (
            "from fedgranger_research import datasets",
            "fedgranger is not allowed to import fedgranger_research",
        ),
    ],
)
def test_layers_notice_an_import_the_wrong_way(tmp_path, line, reported):
    """The contracts can fail: a wrong-way import in a copy is reported."""
    copy = tmp_path / "fedgranger"
    subprocess.run(["cp", "-r", str(ROOT / "src" / "fedgranger"), str(copy)], check=True)
    module = copy / "server" / "granger.py"
    module.write_text(module.read_text() + f"\n{line}\n")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    outcome = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.path.insert(0, '.');"
            "from importlinter.cli import lint_imports_command as c; c()",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert outcome.returncode != 0
    assert reported in " ".join(outcome.stdout.split())


@pytest.mark.parametrize("name", MODULES)
def test_every_module_imports_and_says_what_it_is_for(name):
    module = importlib.import_module(name)
    assert module.__doc__ or not Path(module.__file__).read_text().strip()
    for public in getattr(module, "__all__", []):
        assert hasattr(module, public), public


@pytest.mark.parametrize(
    "name",
    [name for name in MODULES if ">>>" in Path(importlib.import_module(name).__file__).read_text()],
)
@pytest.mark.filterwarnings("ignore::fedgranger.errors.ConvergenceWarning")
def test_docstring_examples(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0


def test_no_prints_outside_the_command_line():
    for path in (ROOT / "src").rglob("*.py"):
        if "cli" not in path.parts:
            assert not re.search(r"^\s*print\(", path.read_text(), flags=re.MULTILINE), path


def test_no_registry_addresses_or_machine_paths():
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not tracked:
        pytest.skip("not a git checkout")
    pattern = re.compile(r"index-url|files\.pythonhosted|/(?:work|root|farm)/")
    for name in tracked:
        path = ROOT / name
        if path == Path(__file__) or path.suffix in (".svg", ".png") or not path.exists():
            continue
        assert not pattern.search(path.read_text(errors="ignore")), name
