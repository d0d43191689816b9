"""Var(g) and Σ_h over rounds, one row per sweep."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fedgranger_research.reproduction.drawings.curves import Curve, draw_grid

__all__ = ["draw_communicated"]


def draw_communicated(folder: Path, table: pd.DataFrame) -> None:
    """Draw the traces of the covariances of what is sent down and up."""
    panels = [
        Curve(r"tr Var$(g_2)$, server to client", "gradient_cov", "client2", dashed=None),
        Curve(r"tr $\Sigma_{h_2}$, client to server", "state_cov", "client2", dashed=None),
    ]
    sweeps = ("noise_var", "granger_prior_var", "augmentation_prior_var")
    draw_grid(folder, "communicated", table, [(sweep, panels) for sweep in sweeps])
