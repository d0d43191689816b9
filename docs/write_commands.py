"""Write commands.md from the commands themselves: `python docs/write_commands.py`."""

import inspect
import re
from pathlib import Path

import click
import typer

from fedgranger.cli.app import app
from fedgranger.cli.options import FitOptions
from fedgranger.data.simulation_options import SimulationOptions
from fedgranger.federation.agreed_options import ExchangeOptions, WatchOptions

PAGE = Path(__file__).with_name("commands.md")
HEAD = """# Command line

Made by `python docs/write_commands.py` from the commands themselves; `fedgranger COMMAND --help`
shows the same with examples, `--help-all` all options. Those of runs, of reading data and of
simulations that are not for every day are on their own page: [Options](options.md).

Every command has `-q` (`--quiet`): the answer and errors, nothing else; `-v` (`--verbose`): more;
and `-h` (`--help`). [What goes where](report.md#on-the-command-line).

Every command ends with status 0 when it did what it was asked, and with 2 and one sentence when it
refused; other numbers are named with their command.
"""
KINDS = (FitOptions, ExchangeOptions, WatchOptions, SimulationOptions)
ELSEWHERE = {name.replace("_", " ").capitalize() for kind in KINDS for name in kind.subjects()}
"""Help panels of options that are on the page of options."""
EVERYWHERE = ("help", "help_all", "quiet", "verbose")


def page():
    """The whole page."""
    group = typer.main.get_command(app)
    return HEAD + "".join(_sections(group, "fedgranger", 2))


def _sections(group, path, level):
    context = click.Context(group)
    for name in group.commands:
        command = group.resolve_command(context, [name])[1]
        yield _section(command, f"{path} {name}", level)
        if hasattr(command, "commands"):
            yield from _sections(command, f"{path} {name}", level + 1)


def _section(command, path, level):
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    title = " ".join([path, *(_argument(one) for one in arguments)])
    own = [one for one in command.params if _is_own(one)]
    rows = [f"| {_words(one)} | {_sentence(one)} |\n" for one in own]
    table = "\n| option | what it does |\n|---|---|\n" + "".join(rows) if rows else ""
    others = any(getattr(one, "rich_help_panel", None) in ELSEWHERE for one in command.params)
    more = "\nAnd [options by subject](options.md).\n" if others else ""
    said = _unwrapped(inspect.cleandoc(command.help or ""))
    return f"\n{'#' * level} `{title}`\n\n{said}\n{table}{more}"


def _is_own(parameter):
    hidden = getattr(parameter, "hidden", False) or parameter.name in EVERYWHERE
    panel = getattr(parameter, "rich_help_panel", None)
    return panel not in ELSEWHERE and not hidden


def _argument(parameter):
    name = (parameter.metavar or parameter.name or "").upper().strip("{}[]")
    return name if parameter.required else f"[{name}]"


def _words(parameter):
    if parameter.param_type_name == "argument":
        return f"`{_argument(parameter)}`"
    return ", ".join(f"`{word}`" for word in (*parameter.opts, *parameter.secondary_opts))


def _sentence(parameter):
    text = " ".join((parameter.help or "").split()).replace("|", "\\|")
    default = parameter.default
    shown = isinstance(default, str | int | float | Path) and not isinstance(default, bool)
    return f"{text} Default: `{default}`." if shown and str(default) not in text else text


def _unwrapped(text):
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
