"""From the clients' tables to a panel: time aligned, missing samples masked, notes collected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedgranger.data.align import align
from fedgranger.data.client_data import ClientData, step_lengths
from fedgranger.data.findings import Finding, examine, lacking_sensor, missing_counts
from fedgranger.data.named_sensors import LeftOut
from fedgranger.data.panel import Panel
from fedgranger.data.reading_options import ReadingOptions
from fedgranger.data.sensor_preparation import (
    SensorPlan,
    check_observed,
    finding_sentences,
    plan_sensors,
    prepare,
)
from fedgranger.data.treatment import NO_TREATMENT, ClientTable, Treatment
from fedgranger.data.trial_reading import joined
from fedgranger.errors import DataError, ReadingError
from fedgranger.text import counted, quoted_list


def finished_panel(
    tables: list[ClientTable],
    notes: list[str],
    options: ReadingOptions,
    treatments: Mapping[str, Treatment],
) -> Panel:
    """Treat sensors, align the clients and check them; empties the list of tables."""
    plan = plan_sensors(tables, options, treatments if _have_other_steps(tables) else {})
    plan.notes.extend(notes)
    found: list[DataError] = []
    for k in range(len(tables)):  # one by one, so that no client is in memory twice for long
        try:
            tables[k] = prepare(tables[k], plan)
        except ReadingError as error:  # one sentence, but what all clients need
            found.append(error)
    if found:
        raise joined(found)
    panel = finish_panel(tables, plan)
    num_gaps = int(panel.segment_starts.sum()) - 1
    if not num_gaps:
        return panel
    note = (
        f"the time axis has {counted(num_gaps, 'gap')}; no pair of time steps across a gap is used"
    )
    return replace(panel, notes=(*panel.notes, note))


def _have_other_steps(tables: Sequence[ClientTable]) -> bool:
    """Whether clients come at different steps, so that some of their rows will be left out.

    Else new data stay as measured, and whoever uses them treats them on the common time axis.
    """
    axes = [one.time for one in tables if one.time is not None and len(one.time) > 1]
    if len({axis.dtype.kind for axis in axes}) != 1:  # nothing to compare, or refused later
        return False
    steps = [float(np.median(step_lengths(axis))) for axis in axes]
    return max(steps) > 1.001 * min(steps)


def finish_panel(tables: list[ClientTable], plan: SensorPlan) -> Panel:
    """Align the clients and make a panel of them; `tables` is emptied."""
    zone = _time_zone(tables, plan)
    time, notes = align(tables)
    plan.notes.extend(notes)
    clients: list[ClientData] = []
    while tables:  # hand each array over, so that none is kept alive twice
        clients.append(_finish_client(tables.pop(0), plan))
    return Panel(tuple(clients), time, tuple(plan.notes), tuple(plan.findings), zone)


def _time_zone(tables: list[ClientTable], plan: SensorPlan) -> str:
    """The zone that all clients' options name, else UTC where time stamps have a zone."""
    named = plan.options.time_zone
    if named != "none" and "=" not in named:
        return named
    return "UTC" if any(table.zone for table in tables) else ""


def _finish_client(table: ClientTable, plan: SensorPlan) -> ClientData:
    """Mask missing samples, see to constant sensors; name the sensor that lacks most samples.

    Constant sensors are refused ("error"), dropped ("drop") or kept ("keep": new data for a model
    that exists, where a sensor that stands still is news).

    The values become the client's own array: they were made by the reader, so they are changed
    in place instead of copied.
    """
    name, is_missing = table.name, np.isnan(table.values)
    if plan.options.constant == "error":
        for sensor, count in zip(table.sensors, is_missing.sum(axis=0), strict=True):
            check_observed(name, sensor, len(is_missing) - count)
    varies = _varying_sensors(table, plan)
    if not varies.all():
        sensors = tuple(s for s, used in zip(table.sensors, varies, strict=True) if used)
        table = table._replace(sensors=sensors, values=table.values[:, varies])
        is_missing = is_missing[:, varies]
    values, total = table.values, int(is_missing.sum())
    if total:
        plan.notes.append(
            f"client '{name}': {total} of {values.size} samples "
            f"({100 * total / values.size:.2f} %) are missing and were masked "
            f"({missing_counts(table.sensors, is_missing)})"
        )
        worst = lacking_sensor(table, is_missing)
        if worst is not None:
            plan.findings.append(worst)
            plan.notes.append(
                f"client '{name}': sensor '{worst.sensor}' {worst.sentence}; {worst.remedy}"
            )
    values[is_missing] = 0.0
    observed = np.logical_not(is_missing, out=is_missing)
    return ClientData(name, table.sensors, values, observed, table.treatment, table.units)


def _varying_sensors(table: ClientTable, plan: SensorPlan) -> np.ndarray:
    """Bool per sensor: it is used, because it varies or constant ones are kept."""
    name, values = table.name, table.values
    low, high = np.fmin.reduce(values, axis=0), np.fmax.reduce(values, axis=0)
    is_empty = np.isnan(low)
    is_constant = ((low == high) | is_empty) & (plan.options.constant != "keep")
    for sensor, value in zip(np.array(table.sensors)[is_constant], low[is_constant], strict=True):
        is_change = sensor in table.treatment.differenced
        if np.isnan(value):
            plan.notes.append(f"client '{name}': sensor '{sensor}' has no sample, dropped")
            continue
        what = "changes by the same amount in every row" if is_change else "is constant"
        if plan.options.constant == "error":
            raise ReadingError(
                f"client '{name}': sensor '{sensor}' {what} ({float(value)!r}) and carries no "
                "information; remove it or pass constant='drop' (--constant drop)",
                {"constant": "drop"},
            )
        plan.notes.append(f"client '{name}': sensor '{sensor}' {what} ({float(value)!r}), dropped")
    if is_constant.all():
        raise DataError(
            f"client '{name}': every sensor is constant, so none is left; remove the client"
        )
    return ~is_constant


def prepare_panel(panel: Panel, options: ReadingOptions) -> Panel:
    """Check and treat a panel that was made in Python; see `Panel.prepared`."""
    left_out = LeftOut(options.leave_out)
    tables, notes = [], list(panel.notes)
    for client in panel:
        table = _as_table(client, panel.time)
        dropped = left_out.of_client(client.name, client.sensors)
        if dropped:
            kept = [k for k, name in enumerate(table.sensors) if name not in dropped]
            names = tuple(table.sensors[k] for k in kept)
            table = table._replace(sensors=names, values=table.values[:, kept])
            listed = quoted_list(sorted(dropped))
            notes.append(f"client '{client.name}': left out as asked for: {listed}")
        tables.append(table)
    left_out.check()
    plan = plan_sensors(tables, options)
    plan.notes.extend(notes)
    tables = [prepare(table, plan, may_lack=True) for table in tables]
    return replace(finish_panel(tables, plan), time_zone=panel.time_zone)


def with_findings(panel: Panel) -> Panel:
    """Return the panel with findings; one that was not examined yet gets notes, too.

    Nothing is done to the measurements: whoever made the panel may have done it already, and
    `Panel.prepared` does it.
    """
    if panel.findings is not None:
        return panel
    found: list[Finding] = []
    for client in panel:
        found += examine(_as_table(client, panel.time))
    notes = finding_sentences(found, NO_TREATMENT)
    if notes:
        notes.append("nothing was done about these sensors: Panel.prepared() does it")
    return replace(panel, findings=tuple(found), notes=(*panel.notes, *notes))


def _as_table(client: ClientData, time: np.ndarray) -> ClientTable:
    values = np.where(client.observed, client.values, np.nan)
    return ClientTable(client.name, client.sensors, values, time, units=client.units)
