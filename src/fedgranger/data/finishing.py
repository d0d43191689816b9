"""From the clients' tables to a panel: single sensors treated, time aligned, notes collected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from fedgranger.data import input_checks
from fedgranger.data.align import ClientTable, align, check_missing, finish_client
from fedgranger.data.findings import Finding, examine
from fedgranger.data.panel import ClientData, Panel, segment_starts
from fedgranger.data.sensor_preparation import (
    SensorChoices,
    choose,
    finding_sentences,
    labels_of,
    prepare,
    without,
)
from fedgranger.option_fields import check_choice


def prepare_table(
    table: ClientTable,
    choices: SensorChoices,
    missing: str,
    constant: str,
    label: Callable[[str], str],
    findings: list[Finding],
    notes: list[str],
) -> ClientTable:
    """Leave out, check and treat single sensors on the client's own time axis."""
    sensors, values, new_notes = without(table.name, table.sensors, table.values, choices)
    notes += new_notes
    table = table._replace(sensors=sensors, values=values)
    if missing == "error":
        check_missing(table)
    if constant == "keep":
        return table
    time = None if table.time is None else table.time.values
    starts = segment_starts(np.arange(len(values)) if time is None else time)
    treatment, found, new_notes = prepare(table.name, sensors, values, time, starts, choices, label)
    findings += found
    notes += new_notes
    return table._replace(treatment=treatment)


def finish_panel(
    tables: list[ClientTable], constant: str, findings: list[Finding], notes: list[str]
) -> Panel:
    """Align the clients and make a panel of them; `tables` is emptied, `notes` grow."""
    time, alignment_notes = align(tables)
    notes += alignment_notes
    clients: list[ClientData] = []
    while tables:  # hand each array over, so that none is kept alive twice
        table = tables.pop(0)
        label = labels_of(table.name, is_alone=False)
        clients.append(
            finish_client(table, constant=constant, notes=notes, findings=findings, label=label)
        )
    return Panel(tuple(clients), time, findings=tuple(findings))


def prepare_panel(
    panel: Panel, *, missing: str, constant: str, difference: str, leave_out: str, suspect: str
) -> Panel:
    """Check and treat a panel that was made in Python; see `Panel.prepared`."""
    check_choice("missing", missing, ("error", "mask"))
    check_choice("constant", constant, ("error", "drop", "keep"))
    known = {client.name: client.sensors for client in panel}
    choices = choose(
        known, difference=difference, leave_out=leave_out, suspect=suspect, missing=missing
    )
    notes, findings = list(panel.notes), []
    tables: list[ClientTable] = []
    for client in panel:
        values = np.where(client.observed, client.values, np.nan)
        table = ClientTable(client.name, client.sensors, values, input_checks.TimeAxis(panel.time))
        label = labels_of(client.name, is_alone=False)
        tables.append(prepare_table(table, choices, "mask", constant, label, findings, notes))
    return replace(finish_panel(tables, constant, findings, notes), notes=tuple(notes))


def with_findings(panel: Panel) -> Panel:
    """Return the panel with findings; one that was not examined yet gets notes, too.

    Nothing is done to the measurements: whoever made the panel may have done it already, and
    `Panel.prepared` does it.
    """
    if panel.findings is not None:
        return panel
    found: list[Finding] = []
    for client in panel:
        values = np.where(client.observed, client.values, np.nan)
        label = labels_of(client.name, is_alone=False)
        found += examine(client.name, client.sensors, values, panel.time, label)
    notes = finding_sentences(found, None)
    if notes:
        notes.append("nothing was done about these sensors: Panel.prepared() does it")
    return replace(panel, findings=tuple(found), notes=(*panel.notes, *notes))
