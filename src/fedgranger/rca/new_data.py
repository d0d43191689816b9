"""Clients that report on new data, all of them in one process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedgranger.client.own_normal import OwnNormal, check_interval
from fedgranger.data.any_data import clients_before_reading, new_panel
from fedgranger.data.client_data import segment_starts
from fedgranger.data.panel import Panel
from fedgranger.errors import DataError, RunError
from fedgranger.inference.reference import Reference
from fedgranger.messages import MonitorMessage
from fedgranger.rca.alarms import knowledge_of
from fedgranger.rca.evidence import Evidence, combine, stack_reports
from fedgranger.rca.scorers import HORIZON
from fedgranger.results import Result


def require_normal(result: Result) -> tuple[dict[str, OwnNormal], Reference]:
    """What a run learned about normal operation: every client's own, and the server's.

    Raises:
        RunError: the run has none, or its clients keep their own.
    """
    reference = knowledge_of(result).reference
    if not result.monitors:
        raise RunError(
            "this run was made between parties, and every site keeps what is normal for its "
            "sensors; let the sites watch their own new data with 'fedgranger federation watch'"
        )
    interval = training_interval(result)
    own = {
        name: OwnNormal(monitor, result.seasons.get(name), interval)
        for name, monitor in result.monitors.items()
    }
    return own, reference


def gather(result: Result, data: Any, **reading: Any) -> Evidence:
    """Let every client report on new data, and combine the reports as the server would.

    Args:
        result: of a run on normal data.
        data: whatever `fit` takes.
        reading: `clients` and options of `Panel.read`, for data that are no panel; those of the
            run's own data need not be repeated.

    Raises:
        DataError: a client or sensor is absent, or the data come at other intervals than those of
            training.
        RunError: the run does not know what is normal.
    """
    normals, reference = require_normal(result)
    panel, starts, messages = reports_on(result, normals, data, reading)
    reports = stack_reports(reference, messages)
    evidence = combine(reference, reports, thresholds_of(normals), starts, panel.time)
    return replace(evidence, is_utc=bool(panel.time_zone))


def reports_on(
    result: Result, normals: Mapping[str, OwnNormal], data: Any, reading: Mapping[str, Any]
) -> tuple[Panel, np.ndarray, dict[str, MonitorMessage]]:
    """New data, their steps that do not follow their predecessor, and every client's message.

    Raises:
        DataError: a client or sensor is absent, or the data come at other intervals.
    """
    panel, interval = panel_for(result, data, reading), training_interval(result)
    check_clients(normals, panel.names)
    check_interval(interval, panel.time)
    starts = segment_starts(panel.time, interval)
    return panel, starts, reports_of(normals, panel, starts)


def panel_for(result: Result, data: Any, reading: Mapping[str, Any]) -> Panel:
    """New data for a run: read and treated as its training data were, unless options say otherwise.

    Raises:
        DataError: they cannot be read, or a client is absent: said first where names are known
            before, since the options of reading name clients too.
    """
    named = clients_before_reading(data)
    if named and result.monitors:
        check_clients(result.monitors, named)
    kept = result.manifest.data.reading or {}
    treatments = {name: monitor.treatment for name, monitor in result.monitors.items()}
    return new_panel(data, reading, kept, treatments)


def surprising_sensors(
    result: Result, panel: Panel, window: slice
) -> dict[str, list[tuple[str, float]]]:
    """Every client's most surprising sensors in the first steps of a window."""
    normals, _ = require_normal(result)
    starts = segment_starts(panel.time, training_interval(result))
    return {
        name: normal.most_surprising(
            normal.sensor_surprise(panel[name], panel.time, starts)[window][:HORIZON]
        )
        for name, normal in normals.items()
    }


def training_interval(result: Result) -> float | None:
    """Ticks per step of the data that a run learned from; None in runs of older versions."""
    return result.manifest.normal.interval


def check_clients(wanted: Iterable[str], given: Sequence[str]) -> None:
    """Refuse data that lack a client of the run, or have one that it does not know."""
    names = list(wanted)
    unknown = [name for name in given if name not in names]
    if unknown:
        raise DataError(
            f"the new data have client '{unknown[0]}', which the run does not know (it has "
            f"{', '.join(names)}); leave it out, or fit a run with it"
        )
    absent = [name for name in names if name not in given]
    if absent:
        raise DataError(
            f"the new data lack client '{absent[0]}' (they have {', '.join(given)}); give "
            f"all {len(names)} clients of the run"
        )


def thresholds_of(normals: Mapping[str, OwnNormal]) -> dict[str, float]:
    """Upper end of every client's normal range."""
    return {name: normal.monitor.threshold for name, normal in normals.items()}


def reports_of(
    normals: Mapping[str, OwnNormal], panel: Panel, starts: np.ndarray, past: int = 0
) -> dict[str, MonitorMessage]:
    """Every client's message about the steps after the first `past`."""
    return {
        name: normal.report(panel[name], panel.time, starts, past)
        for name, normal in normals.items()
    }
