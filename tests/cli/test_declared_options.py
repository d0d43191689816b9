"""Options of a command that another function declares."""

import typer
from typer.testing import CliRunner

from fedgranger.cli.declared_options import with_options_of


def brew(cups: int, strength: float = 0.5, *, kind: str | None = None):
    """Make coffee.

    Args:
        cups: how many.
        strength: between
            0 and 1.
        kind: of [bean].
    """
    return cups, strength, kind


def invoke(*words):
    app = typer.Typer()
    seen = []

    @app.command()
    @with_options_of(brew, ("strength", "kind"))
    def command(cups: int, **options):
        seen.append(brew(cups, **options))

    done = CliRunner().invoke(app, words, env={"COLUMNS": "120"})
    return done, seen


def test_types_and_defaults_are_those_of_the_function():
    assert invoke("2")[1] == [(2, 0.5, None)]
    assert invoke("2", "--strength", "0.7", "--kind", "arabica")[1] == [(2, 0.7, "arabica")]
    assert invoke("2", "--strength", "much")[0].exit_code == 2


def test_help_is_in_the_words_of_the_docstring():
    text = " ".join(invoke("--help")[0].output.split())
    assert "Between 0 and 1. [default: 0.5]" in text
    assert "Of [bean]." in text
    assert "How many" not in text
