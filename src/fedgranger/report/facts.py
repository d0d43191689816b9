"""Sections of the report that come from the run's manifest: what ran, on what, what was sent."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from fedgranger.report.view import Column, FactGroup, Table, Terms
from fedgranger.text import format_bytes, format_number, format_share

RUN_LABELS = {
    "fedgranger_version": "version",
    "created": "created",
    "command": "command",
    "seed": "seed",
}
DATA_LABELS = {"num_steps": "time steps", "hash": "data hash"}
TRAINING_LABELS = {
    "status": "status",
    "converged": "converged",
    "criterion": "criterion",
    "passes": "passes",
    "rounds": "rounds",
    "window": "window",
    "seconds": "seconds",
    "step_size_reason": "choice of step sizes",
}
TEST_LABELS = {
    "test": "test",
    "null": "null hypothesis",
    "test_reason": "why this test",
    "reason": "not tested because",
    "alpha": "level",
    "correction": "correction",
    "confidence": "confidence of intervals",
    "lags": "lags",
    "covariance": "covariance",
    "hac": "long-run covariance",
    "num_pairs": "steps used",
    "df_denominator": "denominator df (median)",
    "spectral_radius": "largest root",
    "condition": "condition number",
}
CLIENT_LABELS = {
    "num_sensors": "sensors",
    "state_dim": "state dimension",
    "state_model": "state model",
    "missing_share": "missing",
    "notes": "notes",
}
STEP_LABELS = {"local": "local", "feedback": "feedback", "server": "server"}
BYTE_LABELS = {
    "edge_tests": "for the edge tests",
    "up_per_step": "sent per step",
    "down_per_step": "received per step",
    "up_total": "sent in total",
    "down_total": "received in total",
    "bytes_up": "sent",
    "bytes_down": "received",
    "messages_up": "messages sent",
    "refused": "answers refused",
}
COUNT_KEYS = ("messages_up", "refused")
TEXT_KEYS = ("state_model", "notes")


def section_of(manifest: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a nested part of the manifest, empty if it is absent."""
    part = manifest.get(key)
    return part if isinstance(part, Mapping) else {}


def fact_groups(manifest: Mapping[str, Any]) -> tuple[FactGroup, ...]:
    """The facts of the run: run, data, training, tests, configuration; absent ones skipped."""
    data, training = section_of(manifest, "data"), section_of(manifest, "training")
    config, tests = section_of(manifest, "config"), section_of(manifest, "inference")
    notes = data.get("notes") or ()
    groups = (
        FactGroup("Run", terms(manifest, RUN_LABELS)),
        FactGroup(
            "Data",
            terms(data, DATA_LABELS),
            (notes,) if isinstance(notes, str) else tuple(notes),
            _client_table(section_of(data, "clients"), CLIENT_LABELS, "Clients"),
        ),
        FactGroup(
            "Training",
            terms(training, TRAINING_LABELS),
            table=_client_table(section_of(training, "step_sizes"), STEP_LABELS, "Step sizes"),
        ),
        FactGroup("Edge tests", terms(tests, TEST_LABELS)),
        FactGroup("Configuration", tuple((str(k), _text(v)) for k, v in config.items())),
    )
    return tuple(group for group in groups if any(group[1:]))


def bytes_table(manifest: Mapping[str, Any]) -> Table | None:
    """What left each client, or None if it was not recorded."""
    clients = section_of(manifest, "bytes")
    return _client_table(clients, BYTE_LABELS, "Bytes sent and received, per client")


def terms(part: Mapping[str, Any], labels: Mapping[str, str]) -> Terms:
    """The labelled values that a part of the manifest has."""
    return tuple(
        (label, _text(part[key], key))
        for key, label in labels.items()
        if not _is_absent(part.get(key))
    )


def _client_table(
    clients: Mapping[str, Any], labels: Mapping[str, str], caption: str
) -> Table | None:
    """One row per client and the columns that have any value."""
    rows = {str(name): row for name, row in clients.items() if isinstance(row, Mapping)}
    keys = [key for key in labels if any(not _is_absent(row.get(key)) for row in rows.values())]
    if not keys:
        return None
    columns = [Column("client"), *(Column(labels[k], is_number=k not in TEXT_KEYS) for k in keys)]
    cells = [[name, *(_text(row.get(key), key) for key in keys)] for name, row in rows.items()]
    return Table(caption, columns, cells)


def _is_absent(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | tuple) and len(value) == 0)


def _text(value: Any, key: str = "") -> str:
    """Write a manifest value for people, by the key where the unit matters."""
    if _is_absent(value):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number_text(value, key)
    if isinstance(value, Sequence) and not isinstance(value, str):
        words = [_text(item) for item in value]
        return shlex.join(words) if key == "command" else "; ".join(words)
    return str(value)


def _number_text(value: int | float, key: str) -> str:
    if key in BYTE_LABELS and key not in COUNT_KEYS:
        return format_bytes(value)
    if key == "missing_share":
        return format_share(value)
    if key == "seconds":
        return f"{value:.1f}"
    return str(value) if isinstance(value, int) else f"{value:.4g}" if value else format_number(0)
