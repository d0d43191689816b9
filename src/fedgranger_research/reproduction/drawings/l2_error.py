"""Errors to A and to the learner's limit over rounds, one row per sweep."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fedgranger_research.reproduction.drawings.curves import Curve, draw_grid

__all__ = ["draw_l2_error"]


def draw_l2_error(folder: Path, table: pd.DataFrame) -> None:
    """Draw the error of the mean (solid) and of one run (dashed) for both blocks."""
    panels = []
    for block, client, cause in (("12", "client1", "client2"), ("21", "client2", "client1")):
        for quantity, target in (("granger_error", "A_"), ("granger_limit_error", r"\hat A^*_")):
            title = rf"$\hat A_{{{block}}}$: error to ${target}{{{block}}}$"
            panels.append(Curve(title, quantity, client, cause, "single_run"))
    sweeps = ("noise_var", "granger_prior_var")
    rows = [(sweep, panels) for sweep in sweeps]
    draw_grid(folder, "l2-error", table, rows, dashed="one run (rms)")
