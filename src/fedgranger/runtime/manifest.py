"""The manifest of a run in one process: what the server of any run writes, and what clients add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from fedgranger.client.client_side import ClientSide
from fedgranger.client.params import LocalModel
from fedgranger.client.quality import local_fit
from fedgranger.client.season import period_steps, season_fact
from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.data.time_axis import period_facts
from fedgranger.federation.direct import reading_facts
from fedgranger.federation.ledger import run_bytes
from fedgranger.federation.outcome import EXACT_SIZES, run_manifest, training_facts
from fedgranger.federation.protocol import ServerResult
from fedgranger.manifest_types import (
    DataFacts,
    InferenceFacts,
    Manifest,
    SeasonFacts,
    TrainingFacts,
)
from fedgranger.normal_operation import Season
from fedgranger.runtime.setup import Setup
from fedgranger.text import with_unit


def describe(
    panel: Panel,
    prepared: Mapping[str, ClientSide],
    config: RunConfig,
    setup: Setup,
    result: ServerResult,
    data_hash: str,
    timings: dict[str, float],
) -> Manifest:
    """Collect versions, data facts, how training and tests ended, bytes and seconds of every phase.

    `panel` has the data without their seasons, `data_hash` is that of the data as they were given.
    """
    clients, sent, training = {}, {}, result.training
    for client in setup.client_data:
        name, own = client.name, prepared[client.name]
        dim, num_periods = client.model.state_dim, len(own.season.lengths)
        sent[name] = run_bytes(
            config, dim, num_periods, panel.num_steps, training.rounds, setup.num_rounds
        )
        clients[name] = {
            "num_sensors": client.model.num_sensors,
            "state_dim": dim,
            "state_model": client.model.method,
            "noise_share": client.model.noise_share,
            "missing_share": round(1 - float(client.is_observed.mean()), 6),
            "notes": [*own.notes, *client.model.notes],
            "season": _season(own.season, name),
            "treatment": panel[name].treatment.to_mapping(),
            "local_fit": local_fit(client, panel[name]),
        }
        if panel[name].units:
            clients[name]["units"] = dict(panel[name].units)
    data: DataFacts = {
        "hash": data_hash,
        "num_steps": panel.num_steps,
        "num_segments": int(panel.segment_starts.sum()),
        **reading_facts(panel),
        "clients": clients,
        "period": period_facts(result.grid, panel.time_zone),
    }
    found = training_facts(training, config, setup.num_pairs)
    if training.granger is not None and config.training_solver != "neural":
        _add_step_sizes(found, setup, config)
    manifest = run_manifest("inprocess", config, data, found, sent, timings)
    models = {client.name: client.model for client in setup.client_data}
    add_sensor_units(result.facts, models, clients)
    manifest["inference"] = cast("InferenceFacts", result.facts)
    if result.privacy is not None:
        manifest["privacy"] = result.privacy
    return manifest


def _season(season: Season, client: str) -> SeasonFacts:
    """What the manifest says of one client's season."""
    if not season.lengths:
        return {"periods": []}
    return {
        "periods": period_steps(season).tolist(),
        "kind": season.kind,
        "share": round(season.share, 6),
        "fact": season_fact(season, client),
    }


def _add_step_sizes(found: TrainingFacts, setup: Setup, config: RunConfig) -> None:
    """Every client's step sizes, and how they came about."""
    chosen = [
        name
        for name in ("local_step_size", "feedback_step_size", "server_step_size")
        if getattr(config, name) == "auto"
    ]
    sizes = zip(setup.client_data, setup.client_step_sizes, setup.server_step_sizes, strict=True)
    if config.training_solver == "newton":
        reason = EXACT_SIZES
    elif chosen:
        reason = (
            f"{', '.join(chosen)} chosen so that each side's largest mean-square gain is "
            f"{config.step_safety:g} (divergence is possible from 2 for both together)"
        )
    else:
        reason = "given"
    found["step_sizes"] = {
        client.name: {"local": c.local, "feedback": c.feedback, "server": s.server}
        for client, c, s in sizes
    }
    found["step_size_reason"] = reason


def sensor_innovation(model: LocalModel, innovation_cov: np.ndarray, sensor: int) -> float:
    r"""One innovation s.d. of a client, seen by one of its sensors, in the sensor's units.

    With Σ the covariance of what is new in the states, which reach sensor i through row i of C and
    the sensor's scale, it is \(\text{scale}_i \sqrt{C_i \Sigma C_i^\top}\).
    """
    row = model.observation_matrix[sensor]
    return float(model.scale[sensor] * np.sqrt(max(row @ innovation_cov @ row, 0.0)))


def add_sensor_units(
    facts: dict[str, Any], models: Mapping[str, LocalModel], clients: Mapping[str, Any]
) -> None:
    """Add `innovation_sensor` to the facts of a test, and of the other one beside it.

    The positive control is given in innovation s.d. of the effect. Where the effect's local model
    is known, the sensor that the states explain best (`local_fit` in `clients`, the clients' part
    of the manifest) stands for it; the server of a federated run knows no sensor.
    """
    if facts.get("beside"):
        add_sensor_units(facts["beside"], models, clients)
    covs = facts.get("innovation_cov")
    if not covs:
        return
    facts["innovation_sensor"] = {}
    for name, cov in covs.items():
        sensors = clients[name]["local_fit"]["sensors"]
        shares = [-np.inf if row["explained"] is None else row["explained"] for row in sensors]
        best = int(np.argmax(shares))
        sensor = sensors[best]["name"]
        facts["innovation_sensor"][name] = {
            "sensor": with_unit(sensor, clients[name].get("units", {})),
            "innovation": float(f"{sensor_innovation(models[name], np.array(cov), best):.6g}"),
            "is_change": sensor in clients[name]["treatment"]["differenced"],
        }
