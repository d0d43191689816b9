"""Section on training: losses, and uncertainty with its split into prior and data."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from fedgranger.report.chart import draw_training_chart, draw_variance_chart
from fedgranger.report.facts import section_of
from fedgranger.report.markup import Column, escape, table

__all__ = ["training_section"]

QUANTITIES = {
    "granger_cov": "Variance of Â, all pairs",
    "augmentation_cov": "Variance of θ, all clients",
    "state_cov": "Variance of the states sent",
    "gradient_cov": "Variance of the gradients sent back",
}


def training_section(
    trace: pd.DataFrame,
    uncertainty: pd.DataFrame | None,
    prior_time: Mapping[str, float] | None,
    manifest: Mapping[str, Any],
) -> str:
    """Return losses, and variances where the run has them; otherwise how to get them."""
    chart = draw_training_chart(trace)
    training = section_of(manifest, "training")
    status = training.get("status")
    if training.get("solver") == "none":
        return f"<section id='training'><h2>Training</h2>\n<p>{escape(status)}.</p>\n</section>"
    if not chart and uncertainty is None:
        return ""
    parts = []
    if chart:
        parts.append(f"<figure>{chart}<figcaption>Mean over clients.</figcaption></figure>")
    if status:
        parts.append(f"<p>{escape(status)}.</p>")
    parts.append("<h3>Uncertainty over training</h3>")
    parts.append(_variances(uncertainty, prior_time))
    return f"<section id='training'><h2>Training</h2>\n{chr(10).join(parts)}\n</section>"


def _variances(uncertainty: pd.DataFrame | None, prior_time: Mapping[str, float] | None) -> str:
    if uncertainty is None:
        return (
            "<p>Not recorded in this run. <code>fedgranger fit … --uncertainty joint</code> "
            "follows every variance along training and tells the prior's part (epistemic) from the "
            "measurement noise's (aleatoric).</p>"
        )
    charts = {
        heading: draw_variance_chart(uncertainty, quantity, heading)
        for quantity, heading in QUANTITIES.items()
    }
    figures = "\n".join(
        f"<div><p class='caption'>{escape(heading)}</p>{chart}</div>"
        for heading, chart in charts.items()
        if chart
    )
    times = ""
    if prior_time:
        rows = [
            [name, f"{rounds:.0f}" if rounds < float("inf") else "not reached in this pass"]
            for name, rounds in prior_time.items()
        ]
        columns = [Column("client"), Column("rounds", is_number=True)]
        caption = "Rounds after which the prior is below 1 % of the variance of Â"
        times = (
            f"<details><summary>{escape(caption)}</summary>"
            f"{table(columns, rows, caption=caption)}</details>"
        )
    return (
        f"<figure><div class='charts'>{figures}</div><figcaption>First pass over the data. What "
        "comes from the prior (epistemic) fades as data arrive; what comes from measurement noise "
        f"(aleatoric) stays.</figcaption></figure>{times}"
    )
