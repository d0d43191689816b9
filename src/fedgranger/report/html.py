"""The report: one HTML page that needs no network and no other file.

All markup is in `templates/`, everything that is drawn is drawn by the scripts in `assets/` from
the numbers in the page. Without scripts the page has all its words and tables.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup

from fedgranger.disk import write_text
from fedgranger.errors import RunError
from fedgranger.inference.edge_movements import EdgeMovement
from fedgranger.manifest_types import Manifest
from fedgranger.report.charts import edge_courses, influence_shapes
from fedgranger.report.checks import audit_view, checks_view
from fedgranger.report.facts import bytes_table, clients_view, fact_groups, privacy_view
from fedgranger.report.first_screen import COMMON_DRIVER, first_screen
from fedgranger.report.pairs import check_edges, has_test, pairs_view
from fedgranger.report.payload import DRAWN, build_payload, to_script_text
from fedgranger.report.time_bands import time_bands_view
from fedgranger.report.training_section import training_view
from fedgranger.report.view import Section, charts_of
from fedgranger.results import ROOT_CAUSE_FILE, Result
from fedgranger.text import format_number, printable

SCRIPTS = ("decide", "format", "circle", "graph", "matrix", "edges", "charts", "page")
MOST_WINDOWS = 12
MOST_EXCURSIONS = 10


def render_report(
    edges: pd.DataFrame,
    manifest: Mapping[str, Any],
    trace: pd.DataFrame,
    *,
    entries: pd.DataFrame | None = None,
    fedgc: pd.DataFrame | None = None,
    uncertainty: pd.DataFrame | None = None,
    prior_time: Mapping[str, float] | None = None,
    root_causes: Mapping[str, Any] | None = None,
    beside: pd.DataFrame | None = None,
    over_time: pd.DataFrame | None = None,
    movements: Mapping[tuple[str, str], EdgeMovement] | None = None,
) -> str:
    """Build the report of a run as one HTML page.

    The page depends on the arguments alone: the same run gives the same text.

    Args:
        edges: one row per ordered pair of clients (`cause`, `effect`, `strength` and, if a test
            was run, `ci_low`, `ci_high`, `statistic`, `df`, `p_value`, `q_value`, `is_edge`).
        manifest: record of the run, or a mapping with parts of one.
        trace: losses per pass, round and client; may be empty.
        entries: single entries with their intervals.
        fedgc: FedGC's own strengths, shown when they are asked for. Without a test the strengths
            of `edges` are taken for these: they are no evidence.
        uncertainty: variances along training (`uncertainty.csv`).
        prior_time: rounds after which the prior hardly matters, per client.
        root_causes: a root-cause analysis (`rca.json`).
        beside: edges of the other test, when both were made.
        over_time: edges in stretches of the record (`edges_over_time.csv`).
        movements: both sides of edges over time, by (cause, effect).

    Raises:
        DataError: if the edge table lacks a needed column.
    """
    pairs = check_edges(edges)
    is_tested = has_test(pairs)
    if not is_tested:
        if fedgc is None and bool(pairs["strength"].notna().any()):
            fedgc = pairs
        pairs = pairs.assign(strength=float("nan"))
    record = Manifest.of(manifest)
    clients, inference = _client_names(pairs, record), record.inference
    page: Section = {
        "version": record.fedgranger_version,
        "clients": clients,
        "has_test": is_tested,
        "common_driver": f"An arrow is not a mechanism. {COMMON_DRIVER}",
        "drawn": DRAWN["test" if is_tested else "none"],
        "first": first_screen(pairs, record),
        "root_causes": root_cause_view(root_causes),
        "pairs": pairs_view(pairs, inference),
        "courses": edge_courses(record, pairs, movements or {}),
        "shapes": influence_shapes(inference),
        "over_time": time_bands_view(over_time, inference),
        "audit": audit_view(inference),
        "training": training_view(trace, uncertainty, prior_time, record.training),
        "checks": checks_view(pairs, entries, inference),
        "client_pages": clients_view(clients, pairs, record),
        "sent": bytes_table(record),
        "privacy": privacy_view(record.privacy),
        "facts": fact_groups(record),
    }
    couplings = record.config.get("couplings")
    payload = build_payload(clients, pairs, entries, fedgc, inference, couplings, beside)
    payload["charts"] = {chart.key: chart.data for chart in charts_of(page)}
    return (
        _templates()
        .get_template("page.html")
        .render(page=page, payload=Markup(to_script_text(payload)), asset=_asset, scripts=SCRIPTS)
    )


def write_report(
    path: Path,
    edges: pd.DataFrame,
    manifest: Mapping[str, Any],
    trace: pd.DataFrame,
    **more: Any,
) -> None:
    """Write the report in one move: a reader sees the old page or the new one, never a half.

    Takes the arguments of `render_report`.

    Raises:
        RunError: if the file cannot be written.
    """
    text = render_report(edges, manifest, trace, **more)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    except OSError as error:
        raise RunError(
            f"report {path}: cannot be written ({error.strerror}); choose a folder you may write to"
        ) from error


def write_run_report(path: str | Path, result: Result, folder: Path | None = None) -> None:
    """Write the page of a run; its root-cause analysis may lie in `folder`, default the page's."""
    path = Path(path)
    inference, uncertainty = result.inference, result.uncertainty
    other = None if inference is None else inference.beside
    write_report(
        path,
        result.edges(),
        result.manifest,
        result.trace,
        entries=None if inference is None else result.entries(),
        fedgc=result.fedgc_edges(),
        beside=None if other is None else result.edges(estimate=other.facts.test),
        uncertainty=None if uncertainty is None else uncertainty.table,
        prior_time=None if uncertainty is None else uncertainty.prior_time,
        root_causes=_root_causes(folder or path.parent),
        over_time=None if inference is None else inference.over_time,
        movements=None if inference is None else inference.movements,
    )


def _root_causes(folder: Path) -> dict[str, Any] | None:
    path = folder / ROOT_CAUSE_FILE
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        root_cause_view(found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunError(
            f"{path}: cannot be read ({error}); run 'fedgranger rca' again or delete it"
        ) from None
    return found


def root_cause_view(found: Mapping[str, Any] | None) -> Section | None:
    """The rankings of `rca.json` per window, and sensors that strayed; None without any."""
    windows: Sequence[Mapping[str, Any]] = (found or {}).get("windows", [])
    excursions = [str(one["text"]) for one in (found or {}).get("excursions", [])]
    if not windows and not excursions:
        return None
    return {
        "excursions": [f"{text}." for text in excursions[:MOST_EXCURSIONS]],
        "strayed": len(excursions) - MOST_EXCURSIONS,
        "scorer": (found or {}).get("scorer", ""),
        "windows": [_window(window) for window in windows[:MOST_WINDOWS]],
        "more": len(windows) - MOST_WINDOWS,
    }


def _window(window: Mapping[str, Any]) -> Section:
    """Who started what is seen in one window; no ranking where none is defined or all is calm."""
    is_calm = all(row.get("onset", 0) is None for row in window["ranking"])
    is_defined = window.get("is_defined") is not False and not is_calm
    ranking = [
        {
            "name": str(row["client"]),
            "share": None if row["probability"] is None else float(row["probability"]),
            "score": format_number(None if row["score"] is None else float(row["score"])),
        }
        for row in (window["ranking"] if is_defined else [])
    ]
    evidence = [str(sentence) for sentence in window.get("evidence", [])]
    return {"name": str(window["name"]), "ranking": ranking, "evidence": evidence}


@cache
def _templates() -> jinja2.Environment:
    """Templates that escape every value and refuse a name that does not exist."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader("fedgranger.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: value if isinstance(value, Markup) else printable(value),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _asset(name: str) -> Markup:
    """A style sheet or script of ours, as it is."""
    path = resources.files("fedgranger.report").joinpath("assets", name)
    return Markup(path.read_text(encoding="utf-8"))


def _client_names(pairs: pd.DataFrame, manifest: Manifest) -> list[str]:
    """Return the clients in the order of the manifest, then any that only the edges name."""
    named = [*manifest.data.clients, *pairs["cause"].tolist(), *pairs["effect"].tolist()]
    return list(dict.fromkeys(named))
