"""Commands whose modules are imported when they are given, not when the list is shown.

A command that needs numerical libraries takes a second to import, and `--help` would pay for all
of them. So a group knows of such a command only its name, its module and one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer

from fedgranger.cli.command_line import Command, CommandGroup, Group
from fedgranger.cli.console import busy

QUIET = {"-q", "--quiet"}


def lazy_group(commands: Mapping[str, tuple[str, str]]) -> type[Group]:
    """A class for `CommandGroup(cls=...)`; commands registered in the usual way come first.

    `commands` has by name the module that defines the command under this name and the sentence that
    the list of commands shows.
    """

    class LazyGroup(Group):
        """Shows sentences, imports what is called."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            for name, (_, sentence) in commands.items():
                self.commands[name] = Command(name, help=sentence)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, command, rest = super().resolve_command(ctx, args)
            if name is not None and name in commands:
                is_silent = bool(QUIET & set(rest)) or ctx.resilient_parsing
                command = load_command(name, commands[name][0], is_silent=is_silent)
            return name, command, rest

    return LazyGroup


def load_command(name: str, module: str, *, is_silent: bool = True) -> Any:
    """Import a command, or a group of commands, and prepare it for the command line."""
    with busy("" if is_silent else f"starting {name}"):
        found = getattr(import_module(module), name)
    holder = CommandGroup()
    holder.callback()(lambda: None)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    group: Any = typer.main.get_command(holder)
    return group.commands[name]
