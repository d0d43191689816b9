"""The report: one HTML page that needs no network, no script and no other file."""

import contextlib
import os
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import pandas as pd

from fedgranger.errors import RunError
from fedgranger.report.chart import draw_training_chart
from fedgranger.report.facts import bytes_section, facts_sections, section_of
from fedgranger.report.graph import draw_graph, graph_style
from fedgranger.report.markup import Column, escape, format_number, table
from fedgranger.report.selection import by_strength, check_edges, edge_flags, has_test, select_edges

__all__ = ["render_report", "write_report"]

MAX_ROWS = 60
NUMBER_COLUMNS = {
    "strength": "strength",
    "statistic": "statistic",
    "df": "df",
    "p_value": "p-value",
    "q_value": "q-value",
}
PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>fedgranger report</title>
<style>
$style
</style>
</head>
<body>
<main>
<header>
<h1>Who drives whom</h1>
$headline
</header>
$sections
</main>
<footer>Written by fedgranger$version. A Granger edge says that the past of one client helps to
predict another; it is evidence of influence, not proof of a mechanism.</footer>
</body>
</html>
""")


def render_report(edges: pd.DataFrame, manifest: Mapping[str, Any], trace: pd.DataFrame) -> str:
    """Build the report of a run as one HTML page.

    The page depends on the arguments alone: the same run gives the same text.

    Args:
        edges: one row per ordered pair of clients (`cause`, `effect`, `strength` and, if a test
            was run, `statistic`, `df`, `p_value`, `q_value`, `is_edge`).
        manifest: facts of the run; every key is optional.
        trace: losses per pass, round and client; may be empty.

    Raises:
        DataError: if the edge table lacks a needed column.
    """
    pairs = check_edges(edges)
    clients = _client_names(pairs, manifest)
    facts = facts_sections(manifest)
    sections = [
        _graph_section(clients, pairs),
        _edge_section(pairs),
        _training_section(trace),
        bytes_section(manifest),
        f"<section id='facts'><h2>Facts of the run</h2>\n{facts}\n</section>" if facts else "",
    ]
    style = resources.files("fedgranger.report").joinpath("style.css").read_text(encoding="utf-8")
    version = manifest.get("fedgranger_version")
    return PAGE.substitute(
        style=style + graph_style(),
        headline=_headline(pairs, manifest) + _cautions(manifest),
        sections="\n".join(section for section in sections if section),
        version=f" {escape(version)}" if version else "",
    )


def write_report(
    path: Path, edges: pd.DataFrame, manifest: Mapping[str, Any], trace: pd.DataFrame
) -> None:
    """Write the report in one move: a reader sees the old page or the new one, never a half.

    Raises:
        RunError: if the file cannot be written.
    """
    text = render_report(edges, manifest, trace)
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


def _client_names(pairs: pd.DataFrame, manifest: Mapping[str, Any]) -> list[str]:
    """Return the clients in the order of the manifest, then any that only the edges name."""
    known = section_of(section_of(manifest, "data"), "clients")
    named = [*map(str, known), *pairs["cause"].tolist(), *pairs["effect"].tolist()]
    return list(dict.fromkeys(named))


def _headline(pairs: pd.DataFrame, manifest: Mapping[str, Any]) -> str:
    flags = edge_flags(pairs)
    if has_test(pairs):
        tested = sum(flag is not None for flag in flags)
        found = sum(flag is True for flag in flags)
        verb = "is" if found == 1 else "are"
        text = f"{found} of {tested} possible edges {verb} supported{_level_text(pairs, manifest)}"
        return f"<p class='headline'>{escape(text)}.</p>"
    order = by_strength(pairs)
    if not order or not abs(pairs["strength"].iloc[order[0]]) > 0:
        return "<p class='headline'>No influence between clients was found; no test was run.</p>"
    top = pairs.iloc[order[0]]
    text = (
        f"The strongest influence found is {top['cause']} → {top['effect']} "
        f"(strength {format_number(top['strength'])}); "
        "edges are ranked by strength, no test was run."
    )
    return f"<p class='headline'>{escape(text)}</p>"


def _level_text(pairs: pd.DataFrame, manifest: Mapping[str, Any]) -> str:
    level = section_of(manifest, "inference").get("alpha")
    if not isinstance(level, float):
        return " by the test"
    has_q = "q_value" in pairs.columns and bool(pairs["q_value"].notna().any())
    return f" at {'q' if has_q else 'p'} ≤ {level:g}"


def _cautions(manifest: Mapping[str, Any]) -> str:
    """What gives reason to doubt: doubtful tests, training that did not converge."""
    sentences = [str(note) for note in section_of(manifest, "inference").get("warnings", [])]
    training = section_of(manifest, "training")
    if training.get("converged") is False:
        status = training.get("status")
        reason = f" ({status})" if status else ""
        sentences.append(
            f"FedGC's training stopped before it converged{reason}; its strengths may still change."
        )
    return "".join(
        f"\n<p class='warning'><strong>Caution:</strong> {escape(sentence)}</p>"
        for sentence in sentences
    )


def _graph_section(clients: list[str], pairs: pd.DataFrame) -> str:
    if not clients:
        return ""
    drawn = select_edges(pairs, len(clients))
    count = len(drawn.edges)
    if drawn.is_tested:
        which = "Drawn are the edges that the test supports."
    elif count == len(pairs):
        which = "All edges are drawn, ranked by strength, not tested."
    else:
        which = f"Drawn are the {count} strongest edges, ranked by strength, not tested."
    return (
        "<section id='graph'><h2>Graph</h2>\n<figure><div class='scroll'>\n"
        f"{draw_graph(clients, pairs, standalone=False)}</div>\n<figcaption>{which} "
        "An arrow points from cause to effect; the wider it is, the stronger the influence."
        "</figcaption></figure></section>"
    )


def _edge_section(pairs: pd.DataFrame) -> str:
    """Return the table of pairs: supported edges first, then by strength."""
    if pairs.empty:
        return ""
    flags = edge_flags(pairs)
    order = sorted(by_strength(pairs), key=lambda row: flags[row] is not True)[:MAX_ROWS]
    numbers = [c for c in NUMBER_COLUMNS if c in pairs.columns and bool(pairs[c].notna().any())]
    columns = [Column("cause"), Column("effect")]
    columns += [Column(NUMBER_COLUMNS[name], is_number=True) for name in numbers]
    columns += [Column("edge", is_number=True)] if has_test(pairs) else []
    rows = []
    for row in order:
        pair = pairs.iloc[row]
        cells = [pair["cause"], pair["effect"], *(_cell(pair[name], name) for name in numbers)]
        flag = {True: "yes", False: "no", None: "–"}[flags[row]]
        rows.append([*cells, flag] if has_test(pairs) else cells)
    is_cut = len(pairs) > MAX_ROWS
    note = f"<p>The first {MAX_ROWS} of {len(pairs)} pairs; edges.csv has all.</p>\n"
    caption = "Pairs of clients: " + (
        "supported edges first, then by strength" if has_test(pairs) else "strongest first"
    )
    return (
        f"<section id='edges'><h2>Edges</h2>\n{note if is_cut else ''}"
        f"{table(columns, rows, caption=caption)}\n</section>"
    )


def _cell(value: Any, column: str) -> str:
    if pd.isna(value):
        return "–"
    if column == "df" and float(value).is_integer():
        return f"{value:.0f}"
    return format_number(float(value))


def _training_section(trace: pd.DataFrame) -> str:
    chart = draw_training_chart(trace)
    if not chart:
        return ""
    return (
        f"<section id='training'><h2>Training</h2>\n<figure><div class='scroll'>\n{chart}\n</div>\n"
        "<figcaption>Loss per pass, mean over clients.</figcaption></figure></section>"
    )
