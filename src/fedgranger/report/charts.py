"""Numbers and words of the charts on tests and edges, which the page's script draws."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from fedgranger.inference.edge_movements import EdgeMovement
from fedgranger.inference.response_words import edge_sentences, response_sentences, shape_sentence
from fedgranger.manifest_types import Manifest
from fedgranger.report.view import Chart, Section
from fedgranger.tested_facts import CurveFacts, InferenceFacts, QuantileFacts, ResponseFacts
from fedgranger.text import elapsed, format_number, format_probability, time_unit

TABLE_ROWS = 9
BINS = 10


def p_histogram(key: str, p_values: np.ndarray, what: str) -> Chart | None:
    """How the p-values spread over 0…1; absent edges alone would give a level one."""
    known = p_values[np.isfinite(p_values)]
    if not len(known):
        return None
    counts = np.histogram(known, bins=BINS, range=(0.0, 1.0))[0].tolist()
    rest = ", ".join(map(str, counts[1:]))
    words = f"{counts[0]} of {len(known)} below {1 / BINS:g}; the rest {rest}"
    rows = [[f"{k / BINS:g} to {(k + 1) / BINS:g}", str(n)] for k, n in enumerate(counts)]
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
    rows = [[format_number(value) for value in points[k]] for k in few_places(len(points))]
    title, data = "Whitened one-step errors, quantiles", {"kind": "normal", "points": points}
    return Chart(key, title, words, data, ("normal", "errors"), rows)


def p_quantiles(key: str, found: QuantileFacts | None) -> Chart | None:
    """The audit's `observed` p-values against uniform ones (`level`) with their band."""
    if found is None or not found.level:
        return None
    rows = list(zip(found.level, found.observed, found.low, found.high, strict=True))
    outside = sum(not low <= p <= high for _, p, low, high in rows)
    words = f"{outside} of {len(rows)} quantiles outside the 95 % band"
    cells = [[format_probability(value) for value in row] for row in rows]
    title, data = "P-values of the copies, quantiles", {"kind": "uniform", "rows": rows}
    return Chart(key, title, words, data, ("p if uniform", "p on copies", "band from", "to"), cells)


def influence_shapes(inference: InferenceFacts) -> Section | None:
    """Curves of the edges that the nonlinear test found; None for other tests."""
    curves = inference.curves
    if not curves:
        return None
    drawn = [_curve_chart(k, edge, curve) for k, (edge, curve) in enumerate(curves.items())]
    kinds = inference.kinds_found or {}
    words = (shape_sentence(edge, kinds.get(edge) or [], inference) for edge in curves)
    return {"charts": tuple(drawn), "words": tuple(words)}


def edge_courses(
    manifest: Manifest,
    pairs: pd.DataFrame,
    movements: Mapping[tuple[str, str], EdgeMovement],
) -> Section | None:
    """What every edge does, in sensors where they are known; None without edges.

    `pair` is the edge's row among the pairs: the page shows it when its arrow is clicked.
    """
    inference, data, step = manifest.inference, manifest.data, manifest.data.step_seconds
    responses, sensors = inference.responses or {}, inference.sensor_responses or {}
    words, linear = edge_sentences(inference, data), response_sentences(inference, data)
    edges = []
    for pair, edge in enumerate(zip(pairs["cause"], pairs["effect"], strict=True)):
        name, place = f"{edge[0]} -> {edge[1]}", len(edges)
        if name not in responses:
            continue
        found = sensors.get(name, responses[name])
        charts, sign = [_course_chart(place, name, found, step)], _sign(found)
        if edge in movements:
            charts.append(_movement_chart(place, name, movements[edge], sign, step))
        behind = [
            (f"{client}, sensors behind it", _sensors_text(own, sign))
            for client, own in zip(edge, (found.cause_sensors, found.effect_sensors), strict=True)
            if own is not None
        ]
        sentence = words[name]
        if linear[name] not in sentence:
            sentence += f". Drawn here is its linear part: {linear[name]}"
        edges.append({"pair": pair, "charts": tuple(charts), "words": sentence, "behind": behind})
    return {"edges": tuple(edges)} if edges else None


def _sign(found: ResponseFacts) -> int:
    """A combination of states has no sign of its own: the cause's first sensor goes up with it."""
    first = (found.cause_sensors or [("", 1.0)])[0]
    return 1 if first[1] >= 0 else -1


def _sensors_text(sensors: Sequence[tuple[str, float]], sign: int) -> str:
    return ", ".join(f"{name} ({sign * correlation:+.2f})" for name, correlation in sensors)


def _movement_chart(
    place: int, edge: str, found: EdgeMovement, sign: int, step: float | None
) -> Chart:
    """Cause and effect side by side in the stretch in which the cause moves most."""
    count, (size, unit) = len(found.values), time_unit(len(found.values) - 1, step)
    values = np.round(sign * found.values, 2).tolist()
    cells = [[elapsed(k, step), *map(format_number, values[k])] for k in few_places(count)]
    data = {"kind": "sides", "rows": values, "step": size, "x": f"{unit} after {found.start}"}
    headings = ("after", "cause, s.d.", "effect, s.d.")
    words = f"cause and effect in the {elapsed(count, step)} from {found.start}"
    return Chart(f"movement-{place}", f"{edge} from {found.start}", words, data, headings, cells)


def _course_chart(place: int, edge: str, found: ResponseFacts, step_seconds: float | None) -> Chart:
    whole, gone, peak = len(found.value), found.gone, found.peak
    count = whole if gone is None else min(2 * gone + 2, whole)
    size, unit = time_unit(count - 1, step_seconds)
    curve = (part[:count] for part in (found.value, found.low, found.high))
    rows = list(zip((step * size for step in range(count)), *curve, strict=True))
    cells = [
        [elapsed(k, step_seconds), *map(format_number, rows[k][1:])] for k in few_places(count)
    ]
    words = f"largest, {found.value[peak]:+.3g}, after {elapsed(peak, step_seconds)}"
    title = edge
    if found.cause_sensor is not None:
        title = f"{edge}: {found.cause_sensor} to {found.effect_sensor}"
    data = {"kind": "curve", "rows": rows, "x": f"{unit} after", "y": "change"}
    headings = ("after", "change", "band from", "to")
    return Chart(f"course-{place}", title, words, data, headings, cells)


def _curve_chart(place: int, edge: str, curve: CurveFacts) -> Chart:
    rows = list(zip(curve.at, curve.value, curve.low, curve.high, strict=True))
    cells = [[format_number(value) for value in rows[k]] for k in few_places(len(rows))]
    words = f"{rows[0][1]:+.2f} at -2, {rows[len(rows) // 2][1]:+.2f} at 0, {rows[-1][1]:+.2f} at 2"
    headings = ("cause, s.d.", "effect, s.d.", "band from", "to")
    return Chart(f"shape-{place}", edge, words, {"kind": "curve", "rows": rows}, headings, cells)


def few_places(count: int) -> list[int]:
    """At most nine places spread over a series, its ends among them."""
    return sorted({round(k) for k in np.linspace(0, count - 1, TABLE_ROWS)})
