"""Three panels over rounds for each of the two priors."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fedgranger_research.reproduction.drawings.curves import Curve, draw_grid

__all__ = ["draw_epistemic"]


def draw_epistemic(folder: Path, table: pd.DataFrame) -> None:
    """Draw the traces of Σ_A21 and Σ_θ2 and the error of the mean, one row per prior."""
    panels = [
        Curve(r"tr $\Sigma_{A_{21}}$", "granger_cov", "client2", "client1"),
        Curve(r"tr $\Sigma_{\theta_2}$", "augmentation_cov", "client2"),
        Curve(
            r"$\Vert E\hat A_{21} - A_{21}\Vert_F$",
            "granger_error",
            "client2",
            "client1",
            None,
            is_log=False,
        ),
    ]
    sweeps = ("granger_prior_var", "augmentation_prior_var")
    draw_grid(folder, "epistemic", table, [(sweep, panels) for sweep in sweeps])
