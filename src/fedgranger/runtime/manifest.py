"""The manifest of a run in one process: what the server of any run writes, and what clients add."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedgranger.client.client_side import ClientSide
from fedgranger.client.params import LocalModel
from fedgranger.client.quality import local_fit
from fedgranger.client.season import period_steps, season_fact
from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.data.units import with_unit
from fedgranger.federation.outcome import reading_facts, run_manifest, training_facts
from fedgranger.federation.training_rounds import Training
from fedgranger.manifest_types import DataFacts, Manifest, SeasonFacts, TrainingFacts
from fedgranger.messages import PASS_REPORT_BYTES, hello_bytes, message_bytes, state_bytes
from fedgranger.normal_operation import Season
from fedgranger.runtime.setup import Setup


def describe(
    panel: Panel,
    prepared: Mapping[str, ClientSide],
    config: RunConfig,
    setup: Setup,
    training: Training,
    data_hash: str,
    timings: dict[str, float],
) -> Manifest:
    """Collect versions, data facts, how training ended, bytes and seconds of every phase.

    `panel` has the data without their seasons, `data_hash` is that of the data as they were given.
    """
    clients, sent = {}, {}
    for client in setup.client_data:
        name, own = client.name, prepared[client.name]
        size = (client.model.state_dim, len(own.season.lengths))
        sent[name] = _bytes(size, setup, training.rounds, panel.num_steps, config)
        clients[name] = {
            "num_sensors": client.model.num_sensors,
            "state_dim": client.model.state_dim,
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
    }
    found = training_facts(training, config, setup.num_pairs)
    if training.granger is not None and config.training_solver != "neural":
        _add_step_sizes(found, setup, config)
    return run_manifest("inprocess", config, data, found, sent, timings)


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
        reason = "only feedback_step_size / local_step_size matters to exact solves"
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


def _bytes(
    size: tuple[int, int], setup: Setup, rounds: int, num_steps: int, config: RunConfig
) -> dict[str, int]:
    """Payload bytes of one client with so many (states, periods): per training step, and in all."""
    state_dim, num_periods = size
    up, down = message_bytes(state_dim)
    hello, state_hello = hello_bytes(state_dim, num_periods)
    for_tests = state_hello + state_bytes(state_dim) * num_steps if config.test != "none" else 0
    if config.solver == "none":
        up = down = hello = 0
    num_pairs, filtered = setup.num_pairs, 8 * state_dim
    if config.training_solver == "newton":  # filtered states only once; one more message up
        passes = rounds
        up_training = filtered * num_pairs + (up - filtered) * (passes + 1) * num_pairs
    elif config.training_solver == "neural":  # the last round is not answered
        passes = config.most_passes if rounds else 0
        up_training = up * passes * num_pairs
    else:
        passes = rounds // setup.num_rounds
        up_training = up * passes * num_pairs + PASS_REPORT_BYTES * passes
    if config.solver == "none":
        up_training = 0
    return {
        "once": hello,
        "edge_tests": for_tests,
        "up_per_step": up,
        "down_per_step": down,
        "up_total": hello + for_tests + up_training,
        "down_total": down * passes * num_pairs,
    }


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
