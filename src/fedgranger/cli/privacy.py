"""`fedgranger privacy`: what a run or a site reveals about single measurements, or would."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgranger.cli.command_line import CommandGroup, Group, examples
from fedgranger.cli.console import Json, busy
from fedgranger.cli.options import with_options
from fedgranger.config import PrivacyOptions
from fedgranger.errors import ConfigError


class _ShowByDefault(Group):
    """`privacy FOLDER` is `privacy show FOLDER`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["show", *args]
        return super().resolve_command(ctx, args)


privacy = CommandGroup(
    cls=_ShowByDefault,
    no_args_is_help=True,
    help="Show what a run reveals about single measurements, or plan one.",
)


@privacy.command()
@examples("fedgranger privacy run", "fedgranger privacy kits/client-a --json")
def show(
    folder: Annotated[Path, typer.Argument(help="Run folder, or a client's kit.")],
    json_output: Json = False,
) -> None:
    """Show what was revealed: ε, for which change of the data, every message, what is not covered.

    A site's kit shows its own ledger, over all runs.
    """
    with busy(f"reading {folder}"):
        from fedgranger.cli.privacy_screen import show_costs

    show_costs(folder, json_output=json_output)


@dataclass(frozen=True)
class PlanOptions(PrivacyOptions):
    """What the command line of a plan may set."""


@privacy.command()
@examples(
    "fedgranger privacy plan --clients 6 --steps 10000",
    "fedgranger privacy plan --data plant/ --strength 0.3 --epsilons 1,2,4,8",
)
@with_options(PlanOptions)
def plan(
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of data to plan for; without it a simulated system is used."),
    ] = None,
    clients: Annotated[int, typer.Option(help="Clients of the simulated system.", min=2)] = 6,
    states: Annotated[int, typer.Option(help="States per client.", min=1)] = 2,
    steps: Annotated[
        int | None,
        typer.Option(help="Time steps of the run; default 10000, or the data's.", min=10),
    ] = None,
    strength: Annotated[
        float, typer.Option(help="Strength of the influence that is to be found.", min=0.0)
    ] = 0.5,
    epsilons: Annotated[
        str, typer.Option(help="Values of ε, separated by commas.")
    ] = "0.5,1,2,4,8,16,32,64",
    paper: Annotated[
        bool,
        typer.Option("--paper", help="Print the paper's formula per step, and its whole price."),
    ] = False,
    json_output: Json = False,
    *,
    given: dict[str, Any],
) -> None:
    """Show what a run would cost and what it would still find, before anything is sent.

    One release of every client's states; nothing is sent or written.
    """
    given.setdefault("privacy", "to-server")
    options = PlanOptions.from_mapping(given)
    if options.privacy != "to-server":
        raise ConfigError("a plan is for privacy='to-server', noise on what the clients send")
    with busy("planning"):
        from fedgranger.cli.privacy_screen import read_numbers, show_plan
        from fedgranger.runtime.privacy_plan import read_system

        values = read_numbers(epsilons)
        system = read_system(data, states, clients, steps)
    show_plan(system, options, values, strength, paper=paper, json_output=json_output)
