"""The same run in FLARE's simulator: real jobs and processes on one machine, no certificates.

For trying an engine's behaviour; a run in one process gives the same numbers and is faster. Nobody
has anything to protect here, so what reading did to the data and what the clients keep of their
normal operation goes into the run folder, as in one process.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
from threadpoolctl import threadpool_limits

from fedgranger.client.params import LocalModel, write_models
from fedgranger.config import RunConfig
from fedgranger.data.align import regular_panel
from fedgranger.data.common_axis import agree
from fedgranger.data.finishing import with_findings
from fedgranger.data.panel import Panel
from fedgranger.data.reading_options import as_measured
from fedgranger.errors import InferenceWarning, RunError
from fedgranger.federation.agreed_options import FederationOptions, WatchOptions
from fedgranger.federation.client_facts import add_client_facts
from fedgranger.federation.preparation import prepare_local
from fedgranger.federation.store import DiskFiles, Store
from fedgranger.federation.watch_records import keep_normal, load_normal
from fedgranger.flare.identity import require_flare
from fedgranger.flare.job_files import OUTCOME, SYNC_SECONDS, job_settings
from fedgranger.flare.settings import (
    SIMULATED,
    SIMULATED_CONFIG,
    ClientSettings,
    settings_text,
    simulated_records,
)
from fedgranger.manifest_types import Manifest
from fedgranger.rca.new_data import check_clients, require_normal
from fedgranger.rca.ranking import Ranking, read_rankings
from fedgranger.results import ROOT_CAUSE_FILE, Result

RUN = "simulation"
MODELS_FILE = "models.json"


def fit_simulated(
    panel: Panel, options: FederationOptions, models: Mapping[str, LocalModel] | None = None
) -> Result:
    """Run all parties of a panel in FLARE's simulator; a run that stops is a `RunError`."""
    panel = with_findings(panel)
    with _simulated(panel, options, models=models) as (folder, found):
        result = _with_normals(Result.load(found), panel, folder)
    _add_local_facts(result.manifest, panel, options.config, models or {})
    for sentence in result.manifest.inference.warnings:
        warnings.warn(sentence, InferenceWarning, stacklevel=2)
    return result


def watch_simulated(result: Result, panel: Panel, options: WatchOptions) -> list[Ranking]:
    """Let every client of a run watch new data, as measured, in FLARE's simulator.

    Returns the last ranking of every alarm.

    Raises:
        RunError: the run does not know what is normal, or the watch stopped.
    """
    normals, _ = require_normal(result)
    check_clients(normals, panel.names)

    def prepare(folder: Path) -> None:
        result.save(folder / "result")
        for name, own in normals.items():
            keep_normal(Store(DiskFiles(simulated_records(folder, name))), RUN, own)

    asked = FederationOptions(RunConfig(solver="none"))
    new = panel.select(list(normals))
    with _simulated(new, asked, options, prepare) as (_, found):
        return read_rankings((found / ROOT_CAUSE_FILE).read_text("utf-8"))


def _add_local_facts(
    record: Manifest, panel: Panel, config: RunConfig, models: Mapping[str, LocalModel]
) -> None:
    """Add what the server was not told: clients are prepared here as the simulated ones were."""
    regular = regular_panel(panel)
    names = sorted(panel.names)
    grid = agree(dict.fromkeys(names, regular.axis))
    with jax.enable_x64(True), threadpool_limits(1):
        sides = {n: prepare_local(regular, n, config, models.get(n)) for n in names}
        add_client_facts(record, regular.panel, grid, sides, config, panel.data_hash())


def _with_normals(result: Result, panel: Panel, folder: Path) -> Result:
    """Add what the simulated clients kept, if all of them did.

    They were given data that are differenced already; new ones will come as measured.
    """
    kept = {
        name: load_normal(Store(DiskFiles(simulated_records(folder, name))), RUN)
        for name in result.clients
    }
    own = {name: one.own for name, one in kept.items() if one is not None}
    if result.reference is None or len(own) < len(kept):
        return result
    result.manifest.normal.monitors = "run folder"
    return replace(
        result,
        monitors={
            name: replace(one.monitor, treatment=panel[name].treatment) for name, one in own.items()
        },
        seasons={name: one.season for name, one in own.items() if one.season is not None},
    )


@contextlib.contextmanager
def _simulated(
    panel: Panel,
    options: FederationOptions,
    watch: WatchOptions | None = None,
    prepare: Callable[[Path], None] = lambda _: None,
    models: Mapping[str, LocalModel] | None = None,
) -> Iterator[tuple[Path, Path]]:
    """Run a job in the simulator; give the simulation's folder and that of the job's result."""
    require_flare()
    from nvflare.collab import CollabRecipe
    from nvflare.recipe import SimEnv

    from fedgranger.flare.client_job import FlareClient
    from fedgranger.flare.server_job import FlareServer

    logging.getLogger().addHandler(logging.NullHandler())
    models = models or {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        panel.write(folder / "data", format="parquet")
        write_models(folder / MODELS_FILE, models)
        prepare(folder)
        for client in panel.names:
            file = str(folder / "data" / f"{client}.parquet")  # of a panel that was checked
            own = ClientSettings(file, **asdict(as_measured()))
            own = replace(own, constant="error") if watch is None else replace(own, watch=file)
            if client in models:
                own = replace(own, models=str(folder / MODELS_FILE))
            (folder / f"{client}.json").write_text(settings_text(own), "utf-8")
        (folder / SIMULATED_CONFIG).write_text(json.dumps(options.config.to_mapping()), "utf-8")
        recipe = CollabRecipe(
            job_name="fedgranger",
            server=FlareServer(),
            client=FlareClient(),
            min_clients=len(panel),
            sync_task_timeout=SYNC_SECONDS,
        )
        mode, more = ("run", None) if watch is None else ("watch", asdict(watch))
        recipe.set_server_prop(
            "fedgranger", job_settings(RUN, mode, panel.names, (), options, more)
        )
        workspace = folder / "sim"
        _execute(
            recipe,
            SimEnv(clients=list(panel.names), workspace_root=str(workspace), log_config="ERROR"),
            folder,
        )
        found = next(workspace.rglob(f"fedgranger/{OUTCOME}"), None)
        if found is None:
            raise RunError("FLARE's simulator ended without a result; run it in one process")
        outcome = json.loads(found.read_text("utf-8"))
        if outcome["status"] != "done":
            raise RunError(outcome["sentence"])
        yield folder, found.parent


def _execute(recipe: Any, environment: Any, folder: Path) -> None:
    """Run FLARE's processes, which find the clients' settings by an environment variable."""
    before = os.environ.get(SIMULATED)
    os.environ[SIMULATED] = str(folder)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            run = recipe.execute(environment)
            if run is not None:
                run.get_result()
    finally:
        os.environ.pop(SIMULATED)
        if before is not None:
            os.environ[SIMULATED] = before
