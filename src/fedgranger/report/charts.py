"""Numbers and words of the charts, which the page's script draws; the section on training."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from fedgranger.inference.edge_movements import EdgeMovement
from fedgranger.inference.response_words import edge_sentences, response_sentences, shape_sentence
from fedgranger.report.pairs import numbers
from fedgranger.report.view import Chart, Column, Section, Table, section_of
from fedgranger.text import (
    elapsed,
    enumerated,
    format_digits,
    format_number,
    format_probability,
    time_unit,
)

MAX_POINTS = 600
TABLE_ROWS = 9
DECADES = 8
"""A line that falls further below the others than this is cut off, so the rest stays readable."""
LOSSES = {"local": ("local_loss", "local loss"), "server": ("server_loss", "server loss")}
SOURCES = {"total": "total", "data": "from data", "prior": "from prior"}
QUANTITIES = {
    "granger_cov": "Variance of Â, all pairs",
    "augmentation_cov": "Variance of θ, all clients",
    "state_cov": "Variance of the states sent",
    "gradient_cov": "Variance of the gradients sent back",
}


class Line(NamedTuple):
    """A named series of positive values; the style decides colour and dash."""

    label: str
    style: str
    x: np.ndarray
    y: np.ndarray


def training_view(
    trace: pd.DataFrame,
    uncertainty: pd.DataFrame | None,
    prior_time: Mapping[str, float] | None,
    manifest: Mapping[str, Any],
) -> Section | None:
    """Losses, and variances where the run has them; None when there is nothing to say."""
    training = section_of(manifest, "training")
    losses = variances = prior_times = None
    is_run = training.get("solver") != "none"
    if is_run:
        losses = loss_chart(trace)
        if losses is None and uncertainty is None:
            return None
        if uncertainty is not None:
            drawn = (variance_chart(uncertainty, key, title) for key, title in QUANTITIES.items())
            variances = tuple(chart for chart in drawn if chart)
            prior_times = _prior_times(prior_time) if prior_time else None
    return {
        "is_run": is_run,
        "status": str(training.get("status") or ""),
        "losses": losses,
        "variances": variances,
        "prior_times": prior_times,
    }


def _prior_times(prior_time: Mapping[str, float]) -> Table:
    rows = [
        [name, f"{rounds:.0f}" if rounds < float("inf") else "not reached in this pass"]
        for name, rounds in prior_time.items()
    ]
    columns = [Column("client"), Column("rounds", is_number=True)]
    return Table("Rounds after which the prior is below 1 % of the variance of Â", columns, rows)


def loss_chart(trace: pd.DataFrame) -> Chart | None:
    """The losses of a run (`trace.parquet`), averaged over clients and rounds within each pass.

    Values that a log axis cannot show (zero, negative, not finite) are left out.
    """
    passes = numbers(trace, "pass_index")
    lines = []
    for style, (column, label) in LOSSES.items():
        losses = numbers(trace, column)
        is_given = np.isfinite(losses) & np.isfinite(passes)
        distinct, group = np.unique(passes[is_given], return_inverse=True)
        means = np.bincount(group, weights=losses[is_given]) / np.bincount(group)
        lines.append(Line(label, style, distinct, means))
    lines = _positive(lines)
    title = f"Training: {enumerated([line.label for line in lines])} over passes"
    return _line_chart("losses", title, lines, "pass", "mean loss (log scale)")


def variance_chart(table: pd.DataFrame, quantity: str, heading: str) -> Chart | None:
    """One quantity of `uncertainty.csv` over the rounds, summed over clients and causes."""
    rows = table.loc[table["quantity"] == quantity]
    sums = rows.groupby("round")[list(SOURCES)].sum(min_count=1)
    x = sums.index.to_numpy(dtype=float)
    lines = [Line(label, name, x, numbers(sums, name)) for name, label in SOURCES.items()]
    lines = _positive(lines)
    floor = max((line.y.max() for line in lines), default=0.0) * 10.0**-DECADES
    return _line_chart(f"variance-{quantity}", heading, _positive(lines, floor), "round", "")


def p_histogram(key: str, p_values: np.ndarray, what: str, bins: int = 10) -> Chart | None:
    """How the p-values spread over 0…1; absent edges alone would give a level one."""
    known = p_values[np.isfinite(p_values)]
    if not len(known):
        return None
    counts = np.histogram(known, bins=bins, range=(0.0, 1.0))[0].tolist()
    rest = ", ".join(map(str, counts[1:]))
    words = f"{counts[0]} of {len(known)} below {1 / bins:g}; the rest {rest}"
    rows = [[f"{k / bins:g} to {(k + 1) / bins:g}", str(n)] for k, n in enumerate(counts)]
    data = {"kind": "bars", "counts": counts}
    return Chart(key, f"p-values of all {what}", words, data, ("p", "number"), rows)


def error_quantiles(key: str, quantiles: Sequence[float | None]) -> Chart | None:
    """Quantiles of a client's errors at (i + ½)/n against the standard normal's."""
    values = np.array([np.nan if q is None else q for q in quantiles], dtype=float)
    if not len(values) or not np.isfinite(values).all():
        return None
    expected = stats.norm.ppf((np.arange(len(values)) + 0.5) / len(values))
    words = f"outermost quantiles {values[0]:.2f} and {values[-1]:.2f}, normal {expected[-1]:.2f}"
    points = np.round(np.column_stack([expected, values]), 3).tolist()
    rows = [[format_number(value) for value in points[k]] for k in _few(len(points))]
    title, data = "Whitened one-step errors, quantiles", {"kind": "normal", "points": points}
    return Chart(key, title, words, data, ("normal", "errors"), rows)


def p_quantiles(key: str, quantiles: Mapping[str, Sequence[float]]) -> Chart | None:
    """The audit's `observed` p-values against uniform ones (`level`) with their band."""
    names = ("level", "observed", "low", "high")
    rows = list(zip(*(quantiles.get(name) or [] for name in names), strict=True))
    if not rows:
        return None
    outside = sum(not low <= p <= high for _, p, low, high in rows)
    words = f"{outside} of {len(rows)} quantiles outside the 95 % band"
    cells = [[format_probability(value) for value in row] for row in rows]
    title, data = "P-values of the copies, quantiles", {"kind": "uniform", "rows": rows}
    return Chart(key, title, words, data, ("p if uniform", "p on copies", "band from", "to"), cells)


def influence_shapes(inference: Mapping[str, Any]) -> Section | None:
    """Curves of the edges that the nonlinear test found; None for other tests."""
    curves = inference.get("curves") or {}
    if not curves:
        return None
    drawn = [_curve_chart(k, edge, curve) for k, (edge, curve) in enumerate(curves.items())]
    kinds = inference.get("kinds_found") or {}
    words = (shape_sentence(edge, kinds.get(edge) or [], inference) for edge in curves)
    return {"charts": tuple(drawn), "words": tuple(words)}


def edge_courses(
    manifest: Mapping[str, Any],
    pairs: pd.DataFrame,
    movements: Mapping[tuple[str, str], EdgeMovement],
) -> Section | None:
    """What every edge does, in sensors where they are known; None without edges.

    `pair` is the edge's row among the pairs: the page shows it when its arrow is clicked.
    """
    inference, data = section_of(manifest, "inference"), section_of(manifest, "data")
    responses, words = inference.get("responses") or {}, edge_sentences(inference, data)
    linear = response_sentences(inference, data)
    step = section_of(data, "period").get("step_seconds")
    edges = []
    for pair, edge in enumerate(zip(pairs["cause"], pairs["effect"], strict=True)):
        name, place = f"{edge[0]} -> {edge[1]}", len(edges)
        if name not in responses:
            continue
        found = (inference.get("sensor_responses") or {}).get(name) or responses[name]
        charts, sign = [_course_chart(place, name, found, step)], _sign(found)
        if edge in movements:
            charts.append(_movement_chart(place, name, movements[edge], sign, step))
        behind = [
            (f"{client}, sensors behind it", _sensors_text(found[f"{side}_sensors"], sign))
            for side, client in zip(("cause", "effect"), edge, strict=True)
            if f"{side}_sensors" in found
        ]
        sentence = words[name]
        if linear[name] not in sentence:
            sentence += f". Drawn here is its linear part: {linear[name]}"
        edges.append({"pair": pair, "charts": tuple(charts), "words": sentence, "behind": behind})
    return {"edges": tuple(edges)} if edges else None


def _sign(found: Mapping[str, Any]) -> int:
    """A combination of states has no sign of its own: the cause's first sensor goes up with it."""
    first = (found.get("cause_sensors") or [("", 1.0)])[0]
    return 1 if first[1] >= 0 else -1


def _sensors_text(sensors: Sequence[tuple[str, float]], sign: int) -> str:
    return ", ".join(f"{name} ({sign * correlation:+.2f})" for name, correlation in sensors)


def _movement_chart(
    place: int, edge: str, found: EdgeMovement, sign: int, step: float | None
) -> Chart:
    """Cause and effect side by side in the stretch in which the cause moves most."""
    count, (size, unit) = len(found.values), time_unit(len(found.values) - 1, step)
    values = np.round(sign * found.values, 2).tolist()
    cells = [[elapsed(k, step), *map(format_number, values[k])] for k in _few(count)]
    data = {"kind": "sides", "rows": values, "step": size, "x": f"{unit} after {found.start}"}
    headings = ("after", "cause, s.d.", "effect, s.d.")
    words = f"cause and effect in the {elapsed(count, step)} from {found.start}"
    return Chart(f"movement-{place}", f"{edge} from {found.start}", words, data, headings, cells)


def _course_chart(
    place: int, edge: str, found: Mapping[str, Any], step_seconds: float | None
) -> Chart:
    whole, gone, peak = len(found["value"]), found["gone"], found["peak"]
    count = whole if gone is None else min(2 * gone + 2, whole)
    size, unit = time_unit(count - 1, step_seconds)
    curve = (found[name][:count] for name in ("value", "low", "high"))
    rows = list(zip((step * size for step in range(count)), *curve, strict=True))
    cells = [[elapsed(k, step_seconds), *map(format_number, rows[k][1:])] for k in _few(count)]
    words = f"largest, {found['value'][peak]:+.3g}, after {elapsed(peak, step_seconds)}"
    title = edge
    if "cause_sensor" in found:
        title = f"{edge}: {found['cause_sensor']} to {found['effect_sensor']}"
    data = {"kind": "curve", "rows": rows, "x": f"{unit} after", "y": "change"}
    headings = ("after", "change", "band from", "to")
    return Chart(f"course-{place}", title, words, data, headings, cells)


def _curve_chart(place: int, edge: str, curve: Mapping[str, Any]) -> Chart:
    names = ("at", "value", "low", "high")
    rows = list(zip(*(curve[name] for name in names), strict=True))
    cells = [[format_number(value) for value in rows[k]] for k in _few(len(rows))]
    words = f"{rows[0][1]:+.2f} at -2, {rows[len(rows) // 2][1]:+.2f} at 0, {rows[-1][1]:+.2f} at 2"
    headings = ("cause, s.d.", "effect, s.d.", "band from", "to")
    return Chart(f"shape-{place}", edge, words, {"kind": "curve", "rows": rows}, headings, cells)


def _line_chart(key: str, title: str, lines: list[Line], x: str, y: str) -> Chart | None:
    if not lines:
        return None
    words = "; ".join(
        f"{line.label} from {line.y[0]:.3g} at {x} {line.x[0]:g} "
        f"to {line.y[-1]:.3g} at {x} {line.x[-1]:g}"
        for line in lines
    )
    drawn = [
        {
            "label": line.label,
            "style": line.style,
            "x": line.x.tolist(),
            "y": [float(f"{value:.5g}") for value in line.y],
        }
        for line in lines
    ]
    data = {"kind": "lines", "x": x, "y": y, "lines": drawn}
    headings = (x, *(line.label for line in lines))
    return Chart(key, title, words, data, headings, _line_rows(lines))


def _line_rows(lines: list[Line]) -> list[list[str]]:
    """A few of the points of all lines."""
    places = np.unique(np.concatenate([line.x for line in lines]))
    known = [dict(zip(line.x.tolist(), line.y.tolist(), strict=True)) for line in lines]
    return [
        [f"{places[k]:g}", *(format_digits(values.get(float(places[k]))) for values in known)]
        for k in _few(len(places))
    ]


def _positive(lines: list[Line], floor: float = 0.0) -> list[Line]:
    """Points that a log axis can show, at most about `MAX_POINTS` per line, the last one kept."""
    kept = []
    for line in lines:
        is_shown = np.isfinite(line.y) & (line.y > 0) & (line.y >= floor)
        stride = max(math.ceil(is_shown.sum() / MAX_POINTS), 1)
        x, y = (values[is_shown][::-1][::stride][::-1] for values in (line.x, line.y))
        if len(x):
            kept.append(line._replace(x=x, y=y))
    return kept


def _few(count: int) -> list[int]:
    """At most nine places spread over a series, its ends among them."""
    return sorted({round(k) for k in np.linspace(0, count - 1, TABLE_ROWS)})
