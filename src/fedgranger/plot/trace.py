"""Training over time: losses over the passes, or uncertainty over the rounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fedgranger.errors import RunError
from fedgranger.option_fields import check_choice
from fedgranger.plot.canvas import BLUE, ORANGE, PLAIN, choose_axes, set_legend, tidy
from fedgranger.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedgranger.results import Result

LOSSES = {"local_loss": ("local loss (clients)", "-"), "server_loss": ("server loss", "--")}
NORMS = (
    "granger_augmentation_cov",
    "augmentation_data_cov",
    "augmentation_state_cov",
    "granger_state_cov",
)
"""Cross-covariances: their sizes are norms, whose parts do not add up."""


def trace(
    result: Result,
    *,
    quantity: str = "loss",
    client: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how training went, on a logarithmic axis.

    `quantity="loss"`: the clients' and the server's loss over the passes, averaged over clients.
    Both should fall and then stay level.

    A covariance of `result.uncertainty` (`granger_cov`, `augmentation_cov`, …): its trace over the
    rounds of the first pass, as two areas on top of each other. The lower one comes from
    measurement noise (aleatoric) and stays, the upper one from the prior (epistemic) and should
    vanish. The axis is logarithmic: read the borders, not the areas. Cross-covariances are drawn
    as lines, because the norms of two parts do not add up.

    Args:
        result: of a fit; covariances need a fit with uncertainty='joint' or 'blockwise'.
        quantity: `loss` or a value of `result.uncertainty.table["quantity"]`.
        client: whose; default all of them together (mean loss, summed traces).
        ax: where to draw; default a new figure.
    """
    if client is not None and client not in result.clients:
        raise RunError(f"no client {client!r}; the run has {', '.join(result.clients)}")
    if quantity == "loss":
        ax = _draw_losses(ax, result.trace, client)
    else:
        ax = _draw_quantity(ax, _sizes(result, quantity, client), quantity)
    ax.set_title("all clients" if client is None else shorten(client), fontsize=10, **PLAIN)
    return ax


def _draw_losses(ax: Axes | None, table: pd.DataFrame, client: str | None) -> Axes:
    if client is not None:
        table = table.loc[table["client"] == client]
    means = pd.DataFrame(table.groupby("pass_index")[list(LOSSES)].mean())
    passes = means.index.to_numpy()
    losses = {name: _positive(means[name].to_numpy(dtype=float)) for name in LOSSES}
    if not any(np.isfinite(loss).any() for loss in losses.values()):
        raise RunError("the trace holds no positive loss; there is nothing to draw")
    ax = choose_axes(ax, 5.6, 3.4)
    for (name, (label, style)), colour in zip(LOSSES.items(), (BLUE, ORANGE), strict=True):
        marker = "o" if len(passes) == 1 else ""
        ax.plot(passes, losses[name], ls=style, color=colour, lw=1.8, marker=marker, label=label)
    _finish(ax, "pass", "mean loss")
    ax.locator_params(axis="x", integer=True)
    set_legend(ax, ax.get_lines()[-2:])
    return ax


def _sizes(result: Result, quantity: str, client: str | None) -> pd.DataFrame:
    """Columns total, prior, data by round, over the chosen clients and all causes."""
    if result.uncertainty is None:
        raise RunError(
            f"quantity={quantity!r} needs covariances, which this run did not keep; "
            "fit with uncertainty='joint' or 'blockwise', or draw quantity='loss'"
        )
    table = result.uncertainty.table
    check_choice("quantity", quantity, ("loss", *sorted(set(table["quantity"]))))
    chosen = table["quantity"] == quantity
    if client is not None:
        chosen &= table["client"] == client
    parts = table.loc[chosen, ["round", "total", "prior", "data"]]
    power = 2 if quantity in NORMS else 1
    by_round = (parts.set_index("round") ** power).groupby(level="round")
    return by_round.sum(min_count=1) ** (1 / power)


def _draw_quantity(ax: Axes | None, sizes: pd.DataFrame, quantity: str) -> Axes:
    rounds = sizes.index.to_numpy()
    total, prior, data = (sizes[name].to_numpy(dtype=float) for name in ("total", "prior", "data"))
    if not (total > 0).any():
        raise RunError(f"{quantity} is zero throughout; a logarithmic axis cannot show it")
    ax = choose_axes(ax, 5.6, 3.4)
    floor = 0.5 * min(part[part > 0].min() for part in (total, data) if (part > 0).any())
    floor = max(floor, 1e-4 * total[total > 0].min())
    is_split = bool(np.isfinite(prior).any())
    (line,) = ax.plot(rounds, _positive(total), color="black", lw=1.6, label="total")
    handles: list = [line]
    if quantity in NORMS:
        if is_split:
            handles += ax.plot(
                rounds, _positive(prior), color=BLUE, ls="--", lw=1.6, label="prior alone"
            )
    elif is_split:
        middle = np.maximum(data, floor)
        upper = ax.fill_between(
            rounds,
            middle,
            np.maximum(total, middle),
            color=BLUE,
            alpha=0.75,
            lw=0,
            label="from the prior (epistemic)",
        )
        lower = ax.fill_between(
            rounds, floor, middle, color="#f0b27a", lw=0, label="from the data's noise (aleatoric)"
        )
        handles += [upper, lower]
        ax.set_ylim(bottom=floor)
    kind = "norm" if quantity in NORMS else "trace"
    _finish(ax, "round", f"{kind} of {quantity}")
    set_legend(ax, handles, frameon=True, framealpha=0.9, edgecolor="none")
    return ax


def _positive(values: np.ndarray) -> np.ndarray:
    """Gaps where a logarithmic axis has no place."""
    return np.where(np.isfinite(values) & (values > 0), values, np.nan)


def _finish(ax: Axes, x_label: str, y_label: str) -> None:
    ax.set_yscale("log")
    ax.margins(x=0.01)
    ax.set_xlabel(x_label)
    ax.set_ylabel(y_label, **PLAIN)
    tidy(ax, grid="y")
