"""Section on training: losses, and uncertainty with its split into prior and data."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from fedgranger.report.charts import loss_chart, variance_chart
from fedgranger.report.facts import section_of
from fedgranger.report.view import Column, Table, Training

QUANTITIES = {
    "granger_cov": "Variance of Â, all pairs",
    "augmentation_cov": "Variance of θ, all clients",
    "state_cov": "Variance of the states sent",
    "gradient_cov": "Variance of the gradients sent back",
}


def training_view(
    trace: pd.DataFrame,
    uncertainty: pd.DataFrame | None,
    prior_time: Mapping[str, float] | None,
    manifest: Mapping[str, Any],
) -> Training | None:
    """Losses, and variances where the run has them; None when there is nothing to say."""
    training = section_of(manifest, "training")
    status = str(training.get("status") or "")
    if training.get("solver") == "none":
        return Training(is_run=False, status=status, losses=None, variances=None, prior_times=None)
    losses = loss_chart(trace)
    if losses is None and uncertainty is None:
        return None
    variances = None
    if uncertainty is not None:
        drawn = (variance_chart(uncertainty, key, title) for key, title in QUANTITIES.items())
        variances = tuple(chart for chart in drawn if chart)
    return Training(
        is_run=True,
        status=status,
        losses=losses,
        variances=variances,
        prior_times=_prior_times(prior_time) if prior_time and variances is not None else None,
    )


def _prior_times(prior_time: Mapping[str, float]) -> Table:
    rows = [
        [name, f"{rounds:.0f}" if rounds < float("inf") else "not reached in this pass"]
        for name, rounds in prior_time.items()
    ]
    columns = [Column("client"), Column("rounds", is_number=True)]
    return Table("Rounds after which the prior is below 1 % of the variance of Â", columns, rows)
