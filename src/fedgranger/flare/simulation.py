"""The same run in FLARE's simulator: real jobs and processes on one machine, no certificates.

For trying an engine's behaviour; a run in one process gives the same numbers and is faster.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import tempfile
import warnings
from pathlib import Path

from fedgranger.data.panel import Panel
from fedgranger.errors import InferenceWarning, RunError
from fedgranger.federation.agreed_options import FederationOptions
from fedgranger.flare.kits import require_flare
from fedgranger.flare.session import OUTCOME
from fedgranger.flare.settings import (
    SIMULATED,
    SIMULATED_CONFIG,
    ClientSettings,
    settings_text,
)
from fedgranger.results import Result

__all__ = ["fit_simulated"]


def fit_simulated(panel: Panel, options: FederationOptions) -> Result:
    """Run all parties of a panel in FLARE's simulator.

    Raises:
        RunError: the run stopped; the sentence says why.
    """
    require_flare()
    from nvflare.collab import CollabRecipe
    from nvflare.recipe import SimEnv

    from fedgranger.flare.client_job import FlareClient
    from fedgranger.flare.server_job import FlareServer

    logging.getLogger().addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        panel.write(folder / "data", format="parquet")
        for client in panel.names:
            file = str(folder / "data" / f"{client}.parquet")  # of a panel that was checked
            own = ClientSettings(file, missing="mask", difference="none", suspect="keep")
            (folder / f"{client}.json").write_text(settings_text(own), "utf-8")
        (folder / SIMULATED_CONFIG).write_text(json.dumps(options.config.to_mapping()), "utf-8")
        recipe = CollabRecipe(
            job_name="fedgranger",
            server=FlareServer(),
            client=FlareClient(),
            min_clients=len(panel),
            sync_task_timeout=60,
        )
        recipe.set_server_prop(
            "fedgranger",
            {
                "run": "simulation",
                "mode": "run",
                "clients": sorted(panel.names),
                "left_out": [],
                "call_seconds": 60.0,
                "options": json.loads(options.to_text()),
            },
        )
        environment = SimEnv(
            clients=list(panel.names), workspace_root=str(folder / "sim"), log_config="ERROR"
        )
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
        found = next((folder / "sim").rglob(f"fedgranger/{OUTCOME}"), None)
        if found is None:
            raise RunError("FLARE's simulator ended without a result; run it in one process")
        outcome = json.loads(found.read_text("utf-8"))
        if outcome["status"] != "done":
            raise RunError(outcome["sentence"])
        result = Result.load(found.parent)
    for sentence in result.manifest["inference"]["warnings"]:
        warnings.warn(sentence, InferenceWarning, stacklevel=2)
    return result
