"""Root causes: how probable each client is, against guessing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fedgranger.errors import DataError
from fedgranger.plot.canvas import (
    BLUE,
    GREY,
    ORANGE,
    PLAIN,
    check_count,
    choose_axes,
    set_legend,
    tidy,
)
from fedgranger.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

REQUIRED = ("client", "score", "probability")


def rca(ranking: pd.DataFrame, *, max_clients: int = 20, ax: Axes | None = None) -> Axes:
    """Draw a ranking of root causes: one bar per client, in the order of the table.

    The length of a bar is the share of resamples in which the client comes first; the first bar is
    highlighted. The dashed line is guessing, 1/M: a first bar that does not pass it clearly, or
    the others, says nothing. The score stands beside the bar, with its interval if there is one.

    Args:
        ranking: columns `client`, `score`, `probability`, best first; `ci_low` and `ci_high`, if
            given, are an interval for the score.
        max_clients: most bars drawn, from the first; the line counts all clients.
        ax: where to draw; default a new figure.
    """
    check_count("max_clients", max_clients)
    _check(ranking)
    shown = ranking.head(max_clients)
    probability = shown["probability"].to_numpy(dtype=float)
    y = np.arange(len(shown))
    ax = choose_axes(ax, 5.6, 1.2 + 0.3 * len(shown))
    colours = [ORANGE if k == 0 else BLUE for k in y]
    ax.barh(y, probability, color=colours, height=0.7, zorder=2)
    chance = ax.axvline(
        1 / len(ranking), color=GREY, ls="--", lw=1.2, zorder=3, label=f"guessing, 1/{len(ranking)}"
    )
    has_interval = "ci_low" in shown
    for k, text in enumerate(_scores(shown, has_interval=has_interval)):
        ax.annotate(
            text,
            (probability[k], k),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color="#333333",
            zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )
    ax.set_yticks(y, [shorten(name) for name in shown["client"]], fontsize=9, **PLAIN)
    ax.set_ylim(len(y) - 0.4, -0.6)
    room = 1.35 if has_interval else 1.12  # for the longest bar's text
    ax.set_xlim(0.0, room * max(float(probability.max()), 1 / len(ranking)))
    ax.set_xticks([tick for tick in ax.get_xticks() if tick <= 1])
    ax.tick_params(axis="y", length=0)
    interval = " and its interval" if has_interval else ""
    ax.set_xlabel(f"probability (beside the bar: score{interval})")
    if len(shown) < len(ranking):
        ax.set_title(f"the first {len(shown)} of {len(ranking)} clients", fontsize=10, loc="left")
    tidy(ax, grid="x")
    set_legend(ax, [chance], loc="lower right", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
    return ax


def _scores(shown: pd.DataFrame, *, has_interval: bool) -> list[str]:
    """`9.1 [7.2, 11]`; a score that is not known is a dash."""
    columns = ["score", "ci_low", "ci_high"] if has_interval else ["score"]
    texts = []
    for numbers in shown[columns].to_numpy(dtype=float, na_value=np.nan):
        score, *ends = (f"{x:.3g}" if np.isfinite(x) else "–" for x in numbers)
        texts.append(f"{score} [{', '.join(ends)}]" if ends else score)
    return texts


def _check(ranking: pd.DataFrame) -> None:
    if not isinstance(ranking, pd.DataFrame):
        hint = "its .table" if hasattr(ranking, "table") else "a table (pandas DataFrame)"
        raise DataError(f"ranking is {type(ranking).__name__}; give {hint}")
    ends = [name for name in ("ci_low", "ci_high") if name in ranking.columns]
    missing = [name for name in REQUIRED if name not in ranking.columns]
    if len(ends) == 1:
        missing.append("ci_high" if ends == ["ci_low"] else "ci_low")
    if missing:
        raise DataError(
            f"ranking: column(s) {', '.join(missing)} missing; give {', '.join(REQUIRED)} and, "
            "for intervals, both ci_low and ci_high"
        )
    if ranking.empty:
        raise DataError("ranking has no rows; give at least one client")
    for name in ("score", *ends, "probability"):
        try:
            values = ranking[name].to_numpy(dtype=float, na_value=np.nan)
        except (TypeError, ValueError):
            raise DataError(f"ranking: column {name} holds text; give numbers") from None
        if name == "probability" and not ((values >= 0) & (values <= 1)).all():
            row = int(np.argmin((values >= 0) & (values <= 1)))
            raise DataError(
                f"ranking: client {str(ranking['client'].iloc[row])!r} has probability "
                f"{values[row]:g}; give a number between 0 and 1"
            )
