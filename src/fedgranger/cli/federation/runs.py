"""`federation check`, `run` and `watch`: what the admin does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fedgranger.cli.command_line import examples
from fedgranger.cli.console import Config, Json, OutRun, Overwrite, RcaJson, Suspects, busy
from fedgranger.cli.federation.common import Kit
from fedgranger.cli.options import merge, with_options
from fedgranger.cli.rca import SHOWN_SUSPECTS
from fedgranger.config import RunConfig
from fedgranger.errors import ConfigError
from fedgranger.federation.agreed_options import (
    ExchangeOptions,
    FederationOptions,
    WaitingOptions,
    WatchOptions,
)
from fedgranger.flare.identity import require_flare
from fedgranger.unused_options import refuse_unused

DEFAULTS = {"solver": "none"}
"""States leave once; FedGC's rounds are asked for by name."""
PRIVATE = ("augmentation_prior_location", "augmentation_prior_scale")
"""Options that no client would follow."""


@dataclass(frozen=True)
class FederatedRunOptions(RunConfig, ExchangeOptions):
    """What the command line of a federated run may set."""


@dataclass(frozen=True)
class SitesWatchOptions(WaitingOptions, WatchOptions):
    """What the command line of a watch between parties may set."""


@examples("fedgranger federation check kits/admin")
def check(
    kit: Kit,
    wait_seconds: Annotated[float, typer.Option(help="How long to wait for parties.")] = 60.0,
    json_output: Json = False,
) -> None:
    """Test connection, certificates, versions, clocks and common time, without a run."""
    require_flare()
    with busy(f"reading {kit}"):
        from fedgranger.cli.federation.admin_runs import show_readiness

    options = FederationOptions(RunConfig(solver="none"), wait_seconds=wait_seconds)
    show_readiness(kit, options, json_output=json_output)


@examples(
    "fedgranger federation run kits/admin --out run",
    "fedgranger federation run kits/admin --out run --privacy to-server --epsilon 8",
)
@with_options(FederatedRunOptions, DEFAULTS)
def run(
    kit: Kit,
    out_folder: OutRun,
    config: Config = None,
    overwrite: Overwrite = False,
    json_output: Json = False,
    *,
    given: dict[str, Any],
) -> None:
    """Learn which client drives which; resumes after faults, and when the command is repeated.

    Exit status 0; 2: refused or failed; 3: the run is written but nothing could be tested.
    """
    require_flare()
    exchange = {name: given.pop(name) for name in ExchangeOptions.names() if name in given}
    _, run_config = merge(config, given, DEFAULTS)
    for name in PRIVATE:
        if getattr(run_config, name) != getattr(RunConfig(), name):
            raise ConfigError(
                f"{name}: in a federation every site draws θ⁰ from a secret; leave the option out"
            )
    options = FederationOptions(refuse_unused(run_config), **exchange)
    with busy(f"reading {kit}"):
        from fedgranger.cli.federation.admin_runs import run_between_parties
        from fedgranger.cli.fit_screen import check_folder

        check_folder(out_folder, resume=False, overwrite=overwrite)
    run_between_parties(kit, out_folder, options, json_output=json_output)


@examples("fedgranger federation watch kits/admin run")
@with_options(SitesWatchOptions)
def watch(
    kit: Kit,
    run: Annotated[Path, typer.Argument(help="Run folder that 'federation run' wrote.")],
    top: Suspects = SHOWN_SUSPECTS,
    json_output: RcaJson = False,
    *,
    given: dict[str, Any],
) -> None:
    """Let every site watch its own new data; rank who started an anomaly, and tell the sites.

    Once through all new data that the sites have ('federation start --watch FILE'); give it again
    when there are more. What is written: RUN/rca.json and the report; at every site alarms.json.
    """
    require_flare()
    asked = SitesWatchOptions.from_mapping(given)
    waiting, watched = asked.values_of(WaitingOptions), asked.values_of(WatchOptions)
    options = FederationOptions(RunConfig(solver="none"), **waiting)
    with busy(f"reading {run}"):
        from fedgranger.cli.federation.admin_runs import watch_sites

    watch_sites(kit, run, options, watched, top, json_output=json_output)
