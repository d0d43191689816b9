"""Six panels over rounds, one curve per Σ_y."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fedgranger_research.reproduction.drawings.curves import Curve, draw_grid

__all__ = ["draw_aleatoric"]


def draw_aleatoric(folder: Path, table: pd.DataFrame) -> None:
    """Draw the traces of Σ_A and Σ_θ and the errors of the mean."""
    traces = [
        Curve(r"tr $\Sigma_{A_{12}}$", "granger_cov", "client1", "client2"),
        Curve(r"tr $\Sigma_{A_{21}}$", "granger_cov", "client2", "client1"),
        Curve(r"tr $\Sigma_{\theta_1}$", "augmentation_cov", "client1"),
    ]
    rest = [
        Curve(r"tr $\Sigma_{\theta_2}$", "augmentation_cov", "client2"),
        _error("12", "client1", "client2"),
        _error("21", "client2", "client1"),
    ]
    draw_grid(folder, "aleatoric", table, [("noise_var", traces), ("noise_var", rest)])


def _error(block: str, client: str, cause: str) -> Curve:
    title = rf"$\Vert E\hat A_{{{block}}} - A_{{{block}}}\Vert_F$"
    return Curve(title, "granger_error", client, cause, None, is_log=False)
