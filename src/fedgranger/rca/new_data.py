"""Clients that report on new data, all of them in one process."""

from __future__ import annotations

from collections.abc import Iterable

from fedgranger.client.own_normal import OwnNormal, check_interval
from fedgranger.data.panel import Panel, segment_starts
from fedgranger.errors import DataError, RunError
from fedgranger.inference.reference import Reference
from fedgranger.rca.evidence import Evidence, combine, stack_reports
from fedgranger.rca.knowledge import knowledge_of
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


def gather(result: Result, panel: Panel) -> Evidence:
    """Let every client report on new data, and combine the reports as the server would.

    Args:
        result: a run, for what it learned about normal operation.
        panel: new data with the same clients and sensors.

    Raises:
        DataError: a client or sensor is absent, or the data come at other intervals than those of
            training.
        RunError: the run does not know what is normal.
    """
    normals, reference = require_normal(result)
    check_clients(normals, panel)
    check_interval(training_interval(result), panel.time)
    starts = segment_starts(panel.time, training_interval(result))
    messages = {
        name: normal.report(panel[name], panel.time, starts) for name, normal in normals.items()
    }
    thresholds = {name: normal.monitor.threshold for name, normal in normals.items()}
    return combine(reference, stack_reports(reference, messages), thresholds, starts)


def training_interval(result: Result) -> float | None:
    """Ticks per step of the data that a run learned from; None in runs of older versions."""
    return result.manifest.get("normal", {}).get("interval")


def check_clients(wanted: Iterable[str], panel: Panel) -> None:
    """Refuse data that lack a client of the run."""
    names = list(wanted)
    absent = [name for name in names if name not in panel.names]
    if absent:
        raise DataError(
            f"the new data lack client '{absent[0]}' (they have {', '.join(panel.names)}); give "
            f"all {len(names)} clients of the run"
        )
