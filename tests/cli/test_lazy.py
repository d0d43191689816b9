"""Lists of commands are complete and need no numerical library; neither does the bare package."""

import subprocess
import sys

import pytest

import fedgranger
from fedgranger.cli.app import COMMANDS
from fedgranger.cli.federation.common import HEAVY_COMMANDS
from fedgranger.cli.lazy import load_command

HEAVY = {
    "jax",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "nvflare",
    "matplotlib",
    "networkx",
    "sklearn",
}


def imported(code):
    """Top-level modules after some code, in a process of its own."""
    command = [sys.executable, "-c", f"{code}\nimport sys\nprint('modules:', *sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    text, _, names = done.stdout.rpartition("modules:")
    return {name.partition(".")[0] for name in names.split()}, text


@pytest.mark.parametrize(("name", "row"), [*COMMANDS.items(), *HEAVY_COMMANDS.items()])
def test_the_list_shows_what_a_command_says_of_itself(name, row):
    module, sentence = row
    told = (load_command(name, module).help or "").split("\n\n")[0]
    assert " ".join(told.split()) == sentence


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--help"], COMMANDS),
        (["--version"], ["fedgranger"]),
        (["federation", "--help"], ["init", "start", "status", "health", *HEAVY_COMMANDS]),
        (["federation", "health", "--help"], ["kit"]),
        (["federation", "run", "-h"], ["--out", "--on-missing"]),
        (["fit", "--help-all"], ["--max-lags", "Edge tests"]),
        (["rca", "--help-all"], ["--calm-steps"]),
    ],
)
def test_help_is_complete_and_light(words, shown):
    run = f"from fedgranger.cli.app import app\ntry: app({words})\nexcept SystemExit: pass"
    modules, text = imported(run)
    assert not modules & HEAVY
    assert all(name in text for name in shown)


def test_a_misspelt_command_is_answered_with_the_right_one():
    done = subprocess.run(
        [sys.executable, "-m", "fedgranger", "federation", "chek"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "error: unknown command 'chek' (did you mean 'check'?)\n"


def test_only_errors_of_linear_algebra_become_a_sentence(capsys):
    """The console knows numpy's error without importing numpy."""
    import numpy as np
    import typer

    from fedgranger.cli.friendly import friendly

    with pytest.raises(typer.Exit):
        friendly(lambda: np.linalg.inv(np.zeros((2, 2))))()
    assert "a matrix could not be computed with (Singular matrix)" in capsys.readouterr().err
    with pytest.raises(ValueError, match="invalid literal"):
        friendly(lambda: int("x"))()


def test_the_bare_package_is_light_and_knows_its_names():
    modules, _ = imported("import fedgranger; fedgranger.__version__; dir(fedgranger)")
    assert not modules & HEAVY
    assert set(fedgranger.__all__) <= set(dir(fedgranger))
    for name in fedgranger.__all__:
        assert getattr(fedgranger, name) is not None
    modules, text = imported("from fedgranger import *\nprint(Panel.__name__, plot.__name__)")
    assert text.split() == ["Panel", "fedgranger.plot"]
    with pytest.raises(AttributeError, match="no attribute 'fitt'"):
        fedgranger.fitt  # noqa: B018
