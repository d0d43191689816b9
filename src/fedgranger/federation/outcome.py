"""From what the server found to a run folder like any other."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pandas as pd

from fedgranger.federation.coordinator import Coordinator
from fedgranger.federation.protocol import ServerResult
from fedgranger.federation.run_record import run_record
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.results import Result
from fedgranger.tested_facts import InferenceFacts
from fedgranger.text import enumerated


def to_result(
    coordinator: Coordinator,
    found: ServerResult,
    engine: str,
    seconds: float,
    left_out: tuple[str, ...],
) -> Result:
    """Build the result; θ and local models stay with their clients, and sensors not shared.

    The edges of clients that were left out are in its tables, not tested.
    """
    config = coordinator.plan.options.config
    inference = found.inference
    if inference is not None and left_out:
        inference = _with_absent(inference, _reasons(found.clients, left_out))
    timings = {"seconds_server": round(seconds, 3), **coordinator.ledger.timings()}
    record = run_record(engine, config, found, coordinator.ledger.totals(), timings)
    record.run, record.left_out = coordinator.plan.run, list(left_out)
    warnings = [*_absence(left_out), *found.facts.warnings]
    record.inference = InferenceFacts.of(found.facts | {"warnings": warnings})
    if found.reference is not None:
        record.normal.monitors = "sites"
    return Result(
        found.clients,
        found.dims,
        found.training.granger,
        {},
        inference,
        found.training.trace,
        record,
        config,
        reference=found.reference,
        jacobian=found.training.jacobian,
    )


def _absence(left_out: tuple[str, ...]) -> list[str]:
    """What it means for every edge that clients did not take part."""
    if not left_out:
        return []
    names = ", ".join(f"'{name}'" for name in left_out)
    who = f"client {names}" if len(left_out) == 1 else f"clients {names}"
    return [
        f"{who} stayed away: every edge below was tested without it, so an influence that runs "
        "through it can look like a direct edge between two others, and its own edges were not "
        "tested"
    ]


def _reasons(clients: tuple[str, ...], left_out: tuple[str, ...]) -> dict[tuple[str, str], str]:
    """Every (cause, effect) of which one side did not take part, and why it has no numbers."""
    reasons = {}
    for effect, cause in itertools.permutations((*clients, *left_out), 2):
        absent = [f"'{name}'" for name in (cause, effect) if name in left_out]
        if absent:
            reasons[cause, effect] = f"{enumerated(absent)} stayed away"
    return reasons


def _with_absent(found: EdgeInference, reasons: Mapping[tuple[str, str], str]) -> EdgeInference:
    """Add the pairs of absent clients to the tables, and why they have no numbers to the facts."""
    for (cause, effect), reason in reasons.items():
        found.facts.reasons[f"{cause} -> {effect}"] = reason
    rows = [{"cause": cause, "effect": effect, "df": 0, "delay": 0} for cause, effect in reasons]
    added = pd.DataFrame(rows).reindex(columns=found.edges.columns)
    edges = pd.concat([found.edges, added.astype(dict(found.edges.dtypes))], ignore_index=True)
    beside = None if found.beside is None else _with_absent(found.beside, reasons)
    return found._replace(edges=edges, beside=beside)
