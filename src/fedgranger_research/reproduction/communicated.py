"""Covariances of what is sent, Var(g) down and Σ_h up, for the three sweeps."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedgranger_research.reproduction.reading import (
    SYMBOLS,
    column,
    ends,
    firsts,
    last_round,
    number,
    select,
    share,
)
from fedgranger_research.reproduction.regimes import SWEEPS, Regime, stack_sweeps, sweeps

__all__ = ["TITLE", "collect", "paragraph", "settings"]

TITLE = "covariances of the messages, Var(g) and Σ_h, for several Σ_y, Σ_A⁰ and Σ_θ⁰"
SWEPT = tuple(SWEEPS)
LETTERS = {"gradient_cov": "tr Var(g_2)", "state_cov": "tr Σ_h2"}


def settings(*, quick: bool = False) -> list[Regime]:
    """What has to be propagated."""
    return sweeps(SWEPT, quick=quick)


def collect(tables: list[pd.DataFrame], *, quick: bool = False) -> pd.DataFrame:
    """The numbers of the figure: traces, for client 2."""
    return stack_sweeps(SWEPT, tables, tuple(LETTERS), quick=quick, client="client2")


def paragraph(table: pd.DataFrame) -> tuple[str, str]:
    """What the paper claims, what these numbers say."""
    claim = (
        "Uncertainty travels up with the augmented state and down with the gradient, and its size "
        "evolves stably for every noise and every prior (the paper shows curves and no numbers)."
    )
    parts = []
    for name in SWEPT:
        symbol, found = SYMBOLS[name], []
        for quantity, letter in LETTERS.items():
            curves = select(table, quantity, "client2", sweep=name)
            level, prior = ends(curves), ends(curves, "prior")
            low, high = min(level), max(level)
            first = firsts(curves)
            found.append(
                f"{letter} starts at {number(first[low])} and {number(first[high])} and ends at "
                f"{number(level[low])} and {number(level[high])} "
                f"(prior: {share(max(prior[low], 0) / level[low])} and "
                f"{share(max(prior[high], 0) / level[high])})"
            )
        smallest, largest = SWEEPS[name][0], SWEEPS[name][-1]
        parts.append(f"at {symbol} {smallest:g} and {largest:g}, {' and '.join(found)}")
    bounded = bool(np.isfinite(column(table, "total")).all())
    finding = (
        f"{'All curves stay finite' if bounded else 'Some curves diverge'}. "
        f"{'; '.join(parts)[0].upper() + '; '.join(parts)[1:]}. Σ_h is what θ's uncertainty does "
        "to one message, so it swings with the measurement of the round; medians over the last "
        f"fifth of {last_round(table)} rounds are given."
    )
    return claim, finding
