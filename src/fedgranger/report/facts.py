"""Sections that come from the run's manifest: what ran, on what, every client, what was sent."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedgranger.manifest_types import ClientFacts, LocalFit, Manifest, PrivacyFacts, SentFacts
from fedgranger.privacy.coverage import privacy_sentence
from fedgranger.report.charts import error_quantiles
from fedgranger.report.pairs import has_test, supported_edges
from fedgranger.report.view import Column, Section, Table, Terms
from fedgranger.text import counted, format_bytes, format_number, format_share

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
    "bytes_up": "sent in total",
    "bytes_down": "received in total",
    "messages_up": "messages sent",
    "refused": "answers refused",
}
COUNT_KEYS = ("messages_up", "refused")
TEXT_KEYS = ("state_model", "notes")
SHOWN_SENSORS = 60


def fact_groups(manifest: Manifest) -> list[Section]:
    """The facts of the run: run, data, training, tests, configuration; absent ones skipped."""
    data, training = manifest.data, manifest.training
    clients = _client_table(data.clients, CLIENT_LABELS, "Clients")
    steps = _client_table(training.step_sizes or {}, STEP_LABELS, "Step sizes")
    config = tuple((str(k), _text(v)) for k, v in manifest.config.items())
    groups = (
        ("Run", terms(manifest, RUN_LABELS), (), None),
        ("Data", terms(data, DATA_LABELS), data.notes, clients),
        ("Training", terms(training, TRAINING_LABELS), (), steps),
        ("Edge tests", terms(manifest.inference, TEST_LABELS), (), None),
        ("Configuration", config, (), None),
    )
    names = ("heading", "terms", "notes", "table")
    return [dict(zip(names, group, strict=True)) for group in groups if any(group[1:])]


def bytes_table(manifest: Manifest) -> Table | None:
    """What left each client, or None if it was not recorded."""
    return _client_table(manifest.bytes, BYTE_LABELS, "Bytes sent and received, per client")


def privacy_view(facts: PrivacyFacts | None) -> Section | None:
    """What noise hides, and what it does not; None without noise."""
    if facts is None:
        return None
    lines = [line for client in facts.clients.values() for line in client.not_covered]
    rows = [
        (name, part.message, str(part.times), f"{part.size:.3g}", f"{part.epsilon:.3g}")
        for name, client in facts.clients.items()
        for part in client.messages
    ]
    columns = [Column("client"), Column("message"), *(Column(n, True) for n in ("times", "μ", "ε"))]
    sentence = privacy_sentence(facts)
    return {
        "sentence": sentence[0].upper() + sentence[1:],
        "table": Table("What each message reveals: its size μ, and ε of all times", columns, rows),
        "not_covered": list(dict.fromkeys(lines)),
    }


def terms(part: Mapping[str, Any], labels: Mapping[str, str]) -> Terms:
    """The labelled values that a part of the manifest has."""
    return tuple(
        (label, _text(part[key], key))
        for key, label in labels.items()
        if not _is_absent(part.get(key))
    )


def _client_table(
    clients: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str], caption: str
) -> Table | None:
    """One row per client and the columns that have any value."""
    keys = [key for key in labels if any(not _is_absent(row.get(key)) for row in clients.values())]
    if not keys:
        return None
    columns = [Column("client"), *(Column(labels[k], is_number=k not in TEXT_KEYS) for k in keys)]
    cells = [[name, *(_text(row.get(key), key) for key in keys)] for name, row in clients.items()]
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


def clients_view(clients: Sequence[str], pairs: pd.DataFrame, manifest: Manifest) -> Section | None:
    """One entry per client, and notes on reading their data; None when the manifest knows none."""
    facts, sent = manifest.data.clients, manifest.bytes
    if not facts and not sent:
        return None
    nothing, unsent = ClientFacts(), SentFacts()
    pages = tuple(
        _client(f"client-{k}", name, pairs, facts.get(name, nothing), sent.get(name, unsent))
        for k, name in enumerate(clients)
    )
    odd = [f"{one.client}.{one.sensor} {one.sentence}" for one in manifest.data.findings or ()]
    return {"notes": (*manifest.data.notes, *odd), "pages": pages}


def _client(
    key: str, name: str, pairs: pd.DataFrame, facts: ClientFacts, sent: SentFacts
) -> Section:
    """A client's edges, its local model, its missing data and what it sent."""
    hints = [counted(facts.num_sensors, "sensor")] if facts.num_sensors else []
    hints += [counted(facts.state_dim, "state")] if facts.state_dim else []
    hints += [f"{format_share(facts.missing_share)} missing"] if facts.missing_share else []
    return {
        "name": name,
        "hints": ", ".join(hints),
        "edges": _edges_sentence(name, pairs) if has_test(pairs) else "",
        "facts": terms(facts, CLIENT_LABELS),
        "fit": _local_fit(key, facts.local_fit),
        "sent": terms(sent, BYTE_LABELS),
    }


def _edges_sentence(name: str, pairs: pd.DataFrame) -> str:
    edges = supported_edges(pairs)
    causes = ", ".join(cause for cause, effect in edges if effect == name)
    effects = ", ".join(effect for cause, effect in edges if cause == name)
    nobody = "no other client"
    return f"{name} is driven by {causes or nobody}, and drives {effects or nobody}."


def _local_fit(key: str, fit: LocalFit | None) -> Section | None:
    """How well the local model fits; in a deployment only the client itself knows."""
    if fit is None:
        return None
    variance, rho = format_number(fit.innovation_variance), format_number(fit.autocorrelation)
    words = (
        f"One-step errors of the client's own model, whitened: variance {variance} (1 if its own "
        f"past explains all that can be explained), largest autocorrelation {rho} (0), over "
        f"{fit.steps} steps. "
        "What is left over includes the influence of other clients."
    )
    rows = [
        [row.name, format_share(row.explained), format_share(row.missing_share)]
        for row in fit.sensors[:SHOWN_SENSORS]
    ]
    columns = [Column("sensor"), Column("explained", True), Column("missing", True)]
    caption = "Variance of each sensor that the states explain, and missing samples"
    return {
        "words": words,
        "chart": error_quantiles(key, fit.quantiles),
        "sensors": Table(caption, columns, rows),
        "more": fit.num_sensors - len(rows),
    }
