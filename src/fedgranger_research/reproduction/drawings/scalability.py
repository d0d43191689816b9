"""Trace of Cov(Â21) at the end of training over d and over M, ours and the paper's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from fedgranger_research.reproduction.drawings.canvas import (
    colours,
    pyplot,
    rows_where,
    save,
    scientific,
)

__all__ = ["draw_scalability"]

AXES = {"sensor_dim": "sensors per client $d$", "num_clients": "clients $M$"}


def draw_scalability(folder: Path, table: pd.DataFrame) -> None:
    """Draw one panel per axis, one colour per prior; the paper's values are hollow and dashed."""
    plt = pyplot()
    from matplotlib.lines import Line2D

    names = [name for name in AXES if (np.asarray(table["axis"]) == name).any()]
    figure, grid = plt.subplots(
        1,
        len(names),
        figsize=(3.5 * len(names) + 1.4, 3.6),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    axes = grid[0]
    priors = np.unique(np.asarray(table["granger_prior_var"]))
    palette = colours(len(priors))
    for axis, name in zip(axes, names, strict=True):
        for k, (prior, colour) in enumerate(zip(priors, palette, strict=True)):
            rows = (table["axis"] == name) & (table["granger_prior_var"] == prior)
            own = rows_where(table, rows).sort_values(by="size")
            axis.plot(
                own["size"], own["trace"], "o-", color=colour, lw=2.6 - 0.5 * k, ms=8 - 1.5 * k
            )
            printed = rows_where(own, own["paper_trace"] > 0)
            axis.plot(
                printed["size"], printed["paper_trace"], "s--", color=colour, lw=1, mfc="white"
            )
        axis.set_xscale("log", base=2)
        axis.set_xticks(np.unique(np.asarray(rows_where(table, table["axis"] == name)["size"])))
        axis.xaxis.set_major_formatter("{x:.0f}")
        axis.minorticks_off()
        axis.set_yscale("log")
        axis.set_xlabel(AXES[name])
    axes[0].set_ylabel(r"tr Cov$(\hat A_{21})$ at the end")
    handles = [
        Line2D([], [], color=colour, lw=2, label=scientific(prior))
        for prior, colour in zip(priors, palette, strict=True)
    ]
    handles.append(Line2D([], [], color="black", marker="o", label="here"))
    handles.append(Line2D([], [], color="black", ls="--", marker="s", mfc="white", label="paper"))
    axes[-1].legend(
        handles=handles,
        title=r"prior $\Sigma_A^0$",
        loc="center left",
        bbox_to_anchor=(1.02, 0.5),
        alignment="left",
    )
    save(figure, folder, "scalability")
