"""The picture of `dp`: FedGC with noisy messages above, private edges below."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fedgranger_research.reproduction.levels import column, grouped, rows_where
from fedgranger_research.reproduction.pictures import GREY, colours, pyplot, save

WAYS = {"down": "server → client", "up": "client → server"}
PANELS = {
    "edge_size": "size at 5 %",
    "edge_power": "power at 5 %",
    "f1": "F1 (BH)",
    "refused": "share refused",
}
LEVEL = 0.05
STYLES = {"event": "-", "window": (0, (4, 2))}
NEIGHBOUR_LABELS = {"event": "one event", "window": "10 events"}


def draw(folder: Path, table: pd.DataFrame) -> None:
    """Write dp.png and dp.svg."""
    plt = pyplot()
    figure, axes = plt.subplots(2, 4, figsize=(15.6, 6.2), layout="constrained")
    training = rows_where(table, table["part"] == "training")
    for k, (way, words) in enumerate(WAYS.items()):
        own = rows_where(training, training["direction"] == way)
        _traces(axes[0, k], own, words)
        _errors(axes[0, 2 + k], own, words)
    edges = rows_where(table, table["part"] == "edges")
    _lower_row(axes[1], edges)
    save(figure, folder, "dp")


def _curve(table: pd.DataFrame, quantity: str, by: str) -> tuple[np.ndarray, ...]:
    own = rows_where(table, table["quantity"] == quantity).sort_values(by=by)
    return tuple(column(own, name).astype(float) for name in (by, "mean", "sd", "se"))


def _traces(axis: Any, table: pd.DataFrame, words: str) -> None:
    sd, trace, spread, _ = _curve(table, "trained_granger_cov", "noise_sd")
    colour, other = colours(2)
    some = sd > 0
    axis.fill_between(
        sd[some],
        np.maximum(trace - spread, 0.3 * trace)[some],
        (trace + spread)[some],
        color=colour,
        alpha=0.15,
        lw=0,
    )
    axis.plot(sd[some], trace[some], "-", color=colour, label="theory, mean ± s.d.")
    given = _curve(table, "given_granger_cov", "noise_sd")[1]
    drawn = _curve(table, "drawn_granger_cov", "noise_sd")[1]
    axis.plot(sd[some], given[some], "--", color=other, label="messages alone, theory")
    axis.plot(sd[some], drawn[some], "o", ms=4, mfc="none", color=other, label="the same, drawn")
    axis.axhline(trace[~some][0], color=GREY, lw=0.8, ls=":", label="no noise")
    axis.set(xscale="log", yscale="log", xlabel=r"$\sigma$", ylim=(1e-9, 2e-2))
    axis.set_title(rf"tr $\Sigma_{{A_{{21}}}}$, noise {words}")
    axis.legend(fontsize=7.5, loc="center left")


def _errors(axis: Any, table: pd.DataFrame, words: str) -> None:
    colour, other = colours(2)
    sd, error, spread, _ = _curve(table, "granger_error", "noise_sd")
    some = sd > 0
    axis.errorbar(
        sd[some],
        error[some],
        spread[some],
        fmt="o-",
        ms=4,
        capsize=2,
        color=colour,
        label="end of training, mean ± s.d.",
    )
    limit = _curve(table, "limit_error", "noise_sd")[1]
    axis.plot(sd[some], limit[some], "--", color=other, label=r"limit $\hat A_{21}^*$")
    axis.set(xscale="log", xlabel=r"$\sigma$")
    axis.set_ylim(bottom=0)
    axis.set_title(rf"$\Vert\hat A_{{21}} - A_{{21}}\Vert_F$, noise {words}")
    axis.legend(fontsize=7.5, loc="lower left")


def _lower_row(axes: Any, edges: pd.DataFrame) -> None:
    from matplotlib.lines import Line2D

    by_hand = rows_where(edges, edges["test"] == "debiased")
    groups = grouped(by_hand, ["num_steps", "models"])
    palette = colours(len(groups))
    for (_, group), colour in zip(groups, palette, strict=True):
        for neighbours, style in STYLES.items():
            own = rows_where(group, group["neighbours"] == neighbours)
            if own.empty:
                continue
            clean = rows_where(group, group["neighbours"] == "none")
            for axis, quantity in zip(axes, PANELS, strict=True):
                epsilon, mean, _, se = _curve(own, quantity, "epsilon")
                axis.errorbar(
                    epsilon, mean, se, fmt="o", ls=style, ms=3, capsize=2, color=colour, lw=1.3
                )
                end = _curve(clean, quantity, "epsilon")[1]
                axis.plot([3 * epsilon[-1]], end, "D", ms=4, color=colour)
    for axis, title in zip(axes, PANELS.values(), strict=True):
        axis.set(xscale="log", xlabel=r"$\varepsilon$ (◆: no noise)", title=title, xlim=(3, 5000))
        axis.set_ylim(-0.03, 1.05)
    axes[0].axhline(LEVEL, color=GREY, lw=0.8, ls=":")
    largest = float(np.nanmax(_all_means(by_hand, "edge_size")))
    axes[0].set_ylim(-0.01, max(0.2, 1.2 * largest))
    handles = [
        Line2D([], [], color=colour, label=f"T = {num_steps:.0f}, {models}")
        for ((num_steps, models), _), colour in zip(groups, palette, strict=True)
    ]
    handles += [
        Line2D([], [], color="black", ls=style, label=NEIGHBOUR_LABELS[name])
        for name, style in STYLES.items()
    ]
    axes[-1].legend(handles=handles, fontsize=7.5, loc="center left", bbox_to_anchor=(1.02, 0.5))


def _all_means(table: pd.DataFrame, quantity: str) -> np.ndarray:
    return column(rows_where(table, table["quantity"] == quantity), "mean").astype(float)
