"""Normal QQ plots of the four blocks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from fedgranger_research.reproduction.drawings.canvas import GREY, colours, pyplot, rows_where, save

__all__ = ["draw_qq"]

MARKERS = "os^D"


def draw_qq(folder: Path, table: pd.DataFrame) -> None:
    """Draw one panel per block, one marker per entry."""
    plt = pyplot()
    shown = rows_where(table, table["is_shown"])
    blocks = list(shown[["effect", "cause"]].drop_duplicates().itertuples(index=False, name=None))
    figure, axes = plt.subplots(
        2, 2, figsize=(7.6, 6.6), sharex=True, sharey=True, layout="constrained"
    )
    limit = 1.1 * float(np.abs(np.asarray(shown["standardised"])).max())
    for axis, (effect, cause) in zip(axes.flat, blocks, strict=True):
        block = rows_where(shown, (shown["effect"] == effect) & (shown["cause"] == cause))
        axis.plot([-limit, limit], [-limit, limit], color=GREY, lw=1, zorder=1)
        entries = list(block[["row", "col"]].drop_duplicates().itertuples(index=False, name=None))
        palette = colours(len(entries))
        for (i, j), colour, marker in zip(entries, palette, MARKERS, strict=True):
            entry = rows_where(block, (block["row"] == i) & (block["col"] == j))
            p = float(np.asarray(entry["shapiro_p"])[0])
            axis.plot(
                np.asarray(entry["normal_quantile"]),
                np.asarray(entry["standardised"]),
                marker,
                ms=4.5,
                mfc="none",
                mec=colour,
                label=f"entry ({i + 1}, {j + 1}), p = {p:.2f}",
            )
        numbers = f"{effect.removeprefix('client')}{cause.removeprefix('client')}"
        present = "present" if np.asarray(block["is_present"])[0] else "absent"
        axis.set_title(rf"$\hat A_{{{numbers}}}$ ({present})")
        axis.legend(loc="upper left", fontsize=7.5, title="Shapiro–Wilk", title_fontsize=7.5)
    for axis in axes[-1]:
        axis.set_xlabel("normal quantile")
    for axis in axes[:, 0]:
        axis.set_ylabel("standardised estimate")
    save(figure, folder, "qq")
