"""The section on training: losses over passes, and variances where the run has them."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedgranger.manifest_types import TrainingFacts
from fedgranger.report.charts import few_places
from fedgranger.report.pairs import numbers
from fedgranger.report.view import Chart, Column, Section, Table
from fedgranger.text import enumerated, format_digits

MAX_POINTS = 600
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
    training: TrainingFacts,
) -> Section | None:
    """Losses, and variances where the run has them; None when there is nothing to say."""
    losses = variances = prior_times = None
    is_run = training.solver != "none"
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
        "status": training.status,
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
        for k in few_places(len(places))
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
