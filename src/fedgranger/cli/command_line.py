"""Commands and groups of commands as all of `fedgranger` has them.

`--help` shows the options that people need and examples; `--help-all` the others too, by subject.
An option that names a panel is one of the others. Help is plain text without frames, so that
nothing is cut in a narrow terminal.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from fedgranger.cli.console import out, print_error, print_interrupted
from fedgranger.cli.friendly import ALL, friendly
from fedgranger.cli.interrupts import INTERRUPTED
from fedgranger.text import did_you_mean

SETTINGS = {"help_option_names": ["-h", "--help"]}
OWN = ("Arguments", "Options")
VALUES = {"int": "N", "float": "NUMBER", "path": "PATH", "str": "TEXT", "bool": ""}
KINDS = re.compile(r"(?:list\[)?<(?:list\[)?(int|float|path|str|bool)(?: range)?\]?>")
"""The parser's words for a value; the help has ours."""
OUR_WORDS = (
    ("Input should be", "it must be"),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    ("a valid integer", "a whole number"),
    ("a valid number", "a number"),
)
"""How the parser says what a value must be, and how all other errors do."""
Function = TypeVar("Function", bound=Callable[..., Any])


def examples(*lines: str) -> Callable[[Function], Function]:
    """Lines of the shell that the help of a command ends with."""

    def decorate(command: Function) -> Function:
        command.examples = lines  # type: ignore[attr-defined]
        return command

    return decorate


class Command(TyperCommand):
    """A command with a short and a long help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, options and, if asked for, the other options by subject."""
        groups, _ = self._records(ctx), formatter.write_paragraph()
        for title, records in groups.items():
            if title in OWN or ctx.meta.get(ALL):
                with formatter.section(_heading(title)):
                    formatter.write_dl(records, col_max=26)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Examples as they are typed, and where the other options are."""
        if self.epilog:
            formatter.write(f"\n{_heading('Examples')}:\n")
            formatter.write("".join(f"  {line}\n" for line in self.epilog.splitlines()))
        others = {name: len(rows) for name, rows in self._records(ctx).items() if name not in OWN}
        if others and not ctx.meta.get(ALL):
            subjects = ", ".join(name.lower() for name in others)
            formatter.write_paragraph()
            formatter.write_text(
                f"'{ctx.command_path} --help-all' shows {sum(others.values())} more options: "
                f"{subjects}."
            )

    def _records(self, ctx: Any) -> dict[str, list[tuple[str, str]]]:
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in OWN}
        for one in self.get_params(ctx):
            record = one.get_help_record(ctx)
            is_argument = one.param_type_name == "argument"
            panel = getattr(one, "rich_help_panel", None)
            title = "Arguments" if is_argument else panel or "Options"
            if record is not None:
                words = KINDS.sub(lambda found: VALUES[found[1]], record[0])
                groups.setdefault(title, []).append((words, record[1]))
        if len(groups) == len(OWN):  # the long help shows no more
            groups["Options"] = [row for row in groups["Options"] if row[0] != "--help-all"]
        return {title: records for title, records in groups.items() if records}


class Group(TyperGroup):
    """A group of commands; as the outermost one it answers for all that goes wrong."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run; mistakes on the command line are one sentence and exit status 2."""
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)
        try:
            status = super().main(*args, standalone_mode=False, **extra)
        except Exception as error:
            status = _status_of(error)
        if status == INTERRUPTED:
            print_interrupted()
        sys.exit(status if isinstance(status, int) else 0)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command; an unknown one is refused with the nearest."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            ctx.fail(f"unknown command '{args[0]}'{did_you_mean(args[0], known)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Every command with its whole sentence."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, _first_sentence(one.help)) for name, one in found if one is not None]
        with formatter.section(_heading("Commands")):
            formatter.write_dl(rows)


class CommandGroup(typer.Typer):
    """`typer.Typer` whose commands and groups are ours."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(
            **{
                "cls": Group,
                "add_completion": False,
                "rich_markup_mode": None,
                "pretty_exceptions_enable": False,
                "context_settings": SETTINGS,
                **settings,
            }
        )

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Register a command with its examples; it becomes friendly, like all others."""

        def register(function: Any) -> Any:
            lines = "\n".join(getattr(function, "examples", ())) or None
            ours = {"cls": Command, "epilog": lines, "context_settings": SETTINGS, **settings}
            return typer.Typer.command(self, name, **ours)(friendly(function))

        return register


def _status_of(error: Exception) -> int:
    """Say what went wrong on the command line; what is no such mistake is raised again."""
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(str(getattr(error, "message", "")))
        return 2
    if type(error).__name__ == "Abort":
        return INTERRUPTED
    if not hasattr(error, "format_message"):
        raise error
    print_error(_usage_sentence(error))
    return 2


def _usage_sentence(error: Any) -> str:
    """One line for a parser's exception: what is wrong, what is near, where to read more."""
    context = getattr(error, "ctx", None)
    sentence = _refusal(error, context)
    if context is None or "did you mean" in sentence:
        return sentence
    return f"{sentence}; see '{context.command_path} --help'"


def _refusal(error: Any, context: Any) -> str:
    name = getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption" and context is not None:
        if hasattr(context.command, "commands"):
            path = context.command_path
            return f"option '{name}' stands before a command; give it after one: '{path} … {name}'"
        return f"unknown option '{name}'{did_you_mean(str(name), _option_words(context))}"
    parameter = getattr(error, "param", None)
    if type(error).__name__ == "MissingParameter" and parameter is not None:
        what = " ".join((getattr(parameter, "help", None) or "").split()).rstrip(".")
        return f"{parameter.param_type_name} {parameter.get_error_hint()} is missing: {what}"
    words = " ".join(error.format_message().split()).rstrip(".").partition(", unable to")[0]
    given = getattr(error.__cause__ or error.__context__, "errors", list)()
    if given and parameter is not None:
        hint = parameter.get_error_hint().strip("'")
        needed = words.rpartition(": ")[2]
        for foreign, ours in OUR_WORDS:
            needed = needed.replace(foreign, ours)
        words = f"{hint} is {given[0]['input']!r}; {needed}"
    return f"{words[:1].lower()}{words[1:]}"


def _option_words(context: Any) -> list[str]:
    """All options of the command of a context as they are typed."""
    parameters = context.command.get_params(context)
    return [word for one in parameters for word in (*one.opts, *one.secondary_opts) if "-" in word]


def _heading(text: str) -> str:
    return typer.style(text, bold=True) if out.is_terminal and out.color_system else text


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())
