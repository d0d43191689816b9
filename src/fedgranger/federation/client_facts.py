"""What only clients know, for the record of a run that has all of them in one place."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedgranger.client.client_side import ClientSide
from fedgranger.client.kalman import FilteredData
from fedgranger.client.params import LocalModel
from fedgranger.client.prepared_client import PreparedClient
from fedgranger.client.quality import local_fit
from fedgranger.client.season import period_steps, season_fact
from fedgranger.config import RunConfig
from fedgranger.data.findings import Finding
from fedgranger.data.panel import Panel
from fedgranger.data.time_axis import TimeGrid, period_facts
from fedgranger.federation.run_record import EXACT_SIZES
from fedgranger.manifest_types import (
    ClientFacts,
    FindingFacts,
    Manifest,
    SeasonFacts,
    TrainingFacts,
    TreatmentFacts,
)
from fedgranger.normal_operation import Season
from fedgranger.server.row_setup import couplings, row_step_sizes
from fedgranger.tested_facts import InferenceFacts, SensorInnovation
from fedgranger.text import with_unit


def add_client_facts(
    record: Manifest,
    panel: Panel,
    grid: TimeGrid,
    sides: Mapping[str, ClientSide],
    config: RunConfig,
    data_hash: str,
) -> None:
    """Say what reading did to the data, and every client's own facts, in a server's record.

    `panel` is on the grid, `data_hash` is that of the data as they were given. All of it is at hand
    where the parties are simulated on one machine; in a deployment it stays with them.
    """
    data = record.data
    data.hash, data.period = data_hash, period_facts(grid, panel.time_zone)
    data.notes, data.reading = [*panel.notes, *data.notes], dict(panel.reading)
    data.findings = [_finding(one) for one in panel.findings or ()]
    filtered = {n: side.for_rounds for n, side in sides.items() if side.for_rounds is not None}
    data.clients = {name: _client(one.data, sides[name]) for name, one in filtered.items()}
    if record.training.step_size_reason is not None:
        _add_step_sizes(record.training, filtered, config)
    models = {name: one.data.model for name, one in filtered.items()}
    add_sensor_units(record.inference, models, data.clients)


def _finding(one: Finding) -> FindingFacts:
    facts = FindingFacts(**one._asdict())
    if not np.isfinite(one.value):
        facts.value = None
    return facts


def _client(filtered: FilteredData, side: ClientSide) -> ClientFacts:
    model, data = filtered.model, side.data
    facts = ClientFacts(
        num_sensors=model.num_sensors,
        state_dim=model.state_dim,
        state_model=model.method,
        noise_share=model.noise_share,
        missing_share=round(1 - float(filtered.is_observed.mean()), 6),
        notes=[*side.notes, *model.notes],
        season=_season(side.season, filtered.name),
        treatment=TreatmentFacts(**data.treatment.to_mapping()),
        local_fit=local_fit(filtered, data),
    )
    if data.units:
        facts.units = dict(data.units)
    return facts


def _season(season: Season, client: str) -> SeasonFacts:
    """What the manifest says of one client's season."""
    if not season.lengths:
        return SeasonFacts(periods=[])
    return SeasonFacts(
        periods=period_steps(season).tolist(),
        kind=season.kind,
        share=round(season.share, 6),
        fact=season_fact(season, client),
    )


def _add_step_sizes(
    found: TrainingFacts, clients: Mapping[str, PreparedClient], config: RunConfig
) -> None:
    """Every client's step sizes, and how they came about."""
    chosen = [
        name
        for name in ("local_step_size", "feedback_step_size", "server_step_size")
        if getattr(config, name) == "auto"
    ]
    if config.training_solver == "newton":
        reason = EXACT_SIZES
    elif chosen:
        reason = (
            f"{', '.join(chosen)} chosen so that each side's largest mean-square gain is "
            f"{config.step_safety:g} (divergence is possible from 2 for both together)"
        )
    else:
        reason = "given"
    gains = np.array([float(client.hello.state_gain) for client in clients.values()])
    servers = row_step_sizes(gains, couplings(list(clients), config), config)
    found.step_sizes = {
        name: {
            "local": own.step_sizes.local,
            "feedback": own.step_sizes.feedback,
            "server": s.server,
        }
        for (name, own), s in zip(clients.items(), servers, strict=True)
    }
    found.step_size_reason = reason


def sensor_innovation(model: LocalModel, innovation_cov: np.ndarray, sensor: int) -> float:
    r"""One innovation s.d. of a client, seen by one of its sensors, in the sensor's units.

    With Σ the covariance of what is new in the states, which reach sensor i through row i of C and
    the sensor's scale, it is \(\text{scale}_i \sqrt{C_i \Sigma C_i^\top}\).
    """
    row = model.observation_matrix[sensor]
    return float(model.scale[sensor] * np.sqrt(max(row @ innovation_cov @ row, 0.0)))


def add_sensor_units(
    facts: InferenceFacts, models: Mapping[str, LocalModel], clients: Mapping[str, ClientFacts]
) -> None:
    """Add `innovation_sensor` to the facts of a test, and of the other one beside it.

    The positive control is given in innovation s.d. of the effect. Where the effect's local model
    is known, the sensor that the states explain best stands for it; the server of a federated run
    knows no sensor.
    """
    if facts.beside:
        add_sensor_units(facts.beside, models, clients)
    if facts.innovation_cov:
        covs = facts.innovation_cov.items()
        facts.innovation_sensor = {
            name: _best_sensor(clients[name], models[name], np.array(cov)) for name, cov in covs
        }


def _best_sensor(client: ClientFacts, model: LocalModel, cov: np.ndarray) -> SensorInnovation:
    fit, treatment = client.local_fit, client.treatment
    if fit is None or treatment is None:
        raise RuntimeError("a client's own facts have its local fit and treatment")
    shares = [-np.inf if row.explained is None else row.explained for row in fit.sensors]
    best = int(np.argmax(shares))
    sensor = fit.sensors[best].name
    return SensorInnovation(
        sensor=with_unit(sensor, client.units or {}),
        innovation=float(f"{sensor_innovation(model, cov, best):.6g}"),
        is_change=sensor in treatment.differenced,
    )
