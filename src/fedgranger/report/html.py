"""The report: one HTML page that needs no network and no other file.

The page is complete without its script: the script only makes level, correction and test
changeable, and adds the matrix and the forest plot.
"""

import contextlib
import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd

from fedgranger.errors import RunError
from fedgranger.report.audit import audit_section
from fedgranger.report.checks import checks_section
from fedgranger.report.clients import clients_section
from fedgranger.report.facts import bytes_section, facts_sections, section_of
from fedgranger.report.headline import cautions, headline
from fedgranger.report.markup import escape
from fedgranger.report.pairs import forest_section, graph_section, matrix_section, pairs_section
from fedgranger.report.payload import build_payload, to_script_text
from fedgranger.report.privacy import privacy_section
from fedgranger.report.root_cause import root_cause_section
from fedgranger.report.selection import check_edges, has_test
from fedgranger.report.training import training_section

__all__ = ["render_report", "write_report"]

SCRIPTS = ("decide.js", "format.js", "graph.js", "matrix.js", "edges.js", "page.js")
PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>fedgranger report</title>
<style>
$style
</style>
<script>
document.documentElement.dataset.theme =
  matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
</script>
</head>
<body>
<main>
<header>
<h1>Who drives whom</h1>
$headline
</header>
<nav aria-label="Sections">$navigation</nav>
$sections
</main>
<footer>Written by fedgranger$version. A Granger edge says that the past of one client helps to
predict another; it is evidence of influence, not proof of a mechanism.</footer>
<div id="tip" role="tooltip" hidden></div>
<script type="application/json" id="run-data">$payload</script>
<script>
$script
</script>
</body>
</html>
""")
SECTIONS = {
    "root-cause": "Root cause",
    "graph": "Graph",
    "matrix": "Matrix",
    "forest": "Intervals",
    "edges": "Pairs",
    "audit": "Can they be trusted?",
    "training": "Training",
    "checks": "Checks",
    "clients": "Clients",
    "sent": "What was sent",
    "privacy": "Privacy",
    "facts": "Facts",
}


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
) -> str:
    """Build the report of a run as one HTML page.

    The page depends on the arguments alone: the same run gives the same text.

    Args:
        edges: one row per ordered pair of clients (`cause`, `effect`, `strength` and, if a test
            was run, `ci_low`, `ci_high`, `statistic`, `df`, `p_value`, `q_value`, `is_edge`).
        manifest: facts of the run; every key is optional.
        trace: losses per pass, round and client; may be empty.
        entries: single entries with their intervals.
        fedgc: FedGC's own strengths, shown when they are asked for. Without a test the strengths
            of `edges` are taken for these: they are no evidence.
        uncertainty: variances along training (`uncertainty.csv`).
        prior_time: rounds after which the prior hardly matters, per client.
        root_causes: a root-cause analysis (`rca.json`).
        beside: edges of the other test, when both were made.

    Raises:
        DataError: if the edge table lacks a needed column.
    """
    pairs = check_edges(edges)
    if not has_test(pairs):
        if fedgc is None and bool(pairs["strength"].notna().any()):
            fedgc = pairs
        pairs = pairs.assign(strength=float("nan"))
    clients = _client_names(pairs, manifest)
    facts = facts_sections(manifest)
    inference, config = section_of(manifest, "inference"), section_of(manifest, "config")
    sections = {
        "root-cause": root_cause_section(root_causes),
        "graph": graph_section(clients, pairs),
        "matrix": matrix_section(pairs),
        "forest": forest_section(pairs),
        "edges": pairs_section(pairs, inference),
        "audit": audit_section(manifest),
        "training": training_section(trace, uncertainty, prior_time, manifest),
        "checks": checks_section(pairs, entries, manifest),
        "clients": clients_section(clients, pairs, manifest),
        "sent": bytes_section(manifest),
        "privacy": privacy_section(manifest),
        "facts": f"<section id='facts'><h2>Facts of the run</h2>\n{facts}\n</section>"
        if facts
        else "",
    }
    links = [
        f"<a href='#{key}'>{escape(SECTIONS[key])}</a>" for key, text in sections.items() if text
    ]
    couplings = config.get("couplings")
    payload = build_payload(clients, pairs, entries, fedgc, inference, couplings, beside)
    version = manifest.get("fedgranger_version")
    return PAGE.substitute(
        style=_asset("style.css"),
        headline=headline(pairs, manifest) + cautions(manifest),
        navigation="\n".join(links),
        sections="\n".join(section for section in sections.values() if section),
        version=f" {escape(version)}" if version else "",
        payload=to_script_text(payload),
        script="\n".join(_asset(name) for name in SCRIPTS) if len(pairs) else "",
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
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8", newline="\n")
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise RunError(
            f"report {path}: cannot be written ({error.strerror}); choose a folder you may write to"
        ) from error


def _asset(name: str) -> str:
    return resources.files("fedgranger.report").joinpath("assets", name).read_text(encoding="utf-8")


def _client_names(pairs: pd.DataFrame, manifest: Mapping[str, Any]) -> list[str]:
    """Return the clients in the order of the manifest, then any that only the edges name."""
    known = section_of(section_of(manifest, "data"), "clients")
    named = [*map(str, known), *pairs["cause"].tolist(), *pairs["effect"].tolist()]
    return list(dict.fromkeys(named))
