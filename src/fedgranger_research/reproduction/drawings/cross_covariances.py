"""Γ21, Λ2 and Ψ21 over rounds, one row per sweep."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fedgranger_research.reproduction.drawings.curves import Curve, draw_grid

__all__ = ["draw_cross_covariances"]


def draw_cross_covariances(folder: Path, table: pd.DataFrame) -> None:
    """Draw the Frobenius norms of the cross-covariances."""
    panels = [
        Curve(r"$\Vert\Gamma_{21}\Vert_F$", "granger_state_cov", "client2", "client1", None),
        Curve(r"$\Vert\Lambda_2\Vert_F$", "augmentation_state_cov", "client2", "", None),
        Curve(r"$\Vert\Psi_{21}\Vert_F$", "granger_augmentation_cov", "client2", "client1", None),
    ]
    sweeps = ("noise_var", "granger_prior_var", "augmentation_prior_var")
    draw_grid(folder, "cross-covariances", table, [(sweep, panels) for sweep in sweeps])
