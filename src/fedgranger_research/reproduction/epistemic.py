"""Traces and error along training for several priors Σ_A⁰ and Σ_θ⁰ (two rows)."""

from __future__ import annotations

import pandas as pd

from fedgranger_research.reproduction.reading import (
    SYMBOLS,
    decades,
    ends,
    last_round,
    number,
    select,
    share,
    spread_over,
)
from fedgranger_research.reproduction.regimes import Regime, stack_sweeps, sweeps

__all__ = ["TITLE", "collect", "paragraph", "settings"]

TITLE = "traces of Σ_A21 and Σ_θ2 and the error of Â21 for several priors Σ_A⁰ and Σ_θ⁰"
SWEPT = ("granger_prior_var", "augmentation_prior_var")
QUANTITIES = (
    "granger_cov",
    "augmentation_cov",
    "granger_error",
    "time_constant",
    "server_time_constant",
)
INDEPENDENT = 1.05
"""Largest ratio between regimes that is still called independent of the prior."""


def settings(*, quick: bool = False) -> list[Regime]:
    """What has to be propagated."""
    return sweeps(SWEPT, quick=quick)


def collect(tables: list[pd.DataFrame], *, quick: bool = False) -> pd.DataFrame:
    """The numbers of the figure."""
    return stack_sweeps(SWEPT, tables, QUANTITIES, quick=quick)


def paragraph(table: pd.DataFrame) -> tuple[str, str]:
    """What the paper claims, what these numbers say."""
    claim = (
        "Neither the course nor the level at which the covariances settle depends on the variance "
        "of the starting values."
    )
    rounds = last_round(table)
    server, slow = (
        next(iter(ends(select(table, name, "client2", sweep=SWEPT[0])).values()))
        for name in ("server_time_constant", "time_constant")
    )
    parts = [
        f"{rounds} rounds are {number(rounds / server)} time constants of Â21 "
        f"({number(server)} rounds) but {number(rounds / slow)} of the slowest direction of θ2 "
        f"({number(slow)} rounds)."
    ]
    errors = []
    for name in SWEPT:
        symbol = SYMBOLS[name]
        granger = select(table, "granger_cov", "client2", "client1", sweep=name)
        theta = select(table, "augmentation_cov", "client2", sweep=name)
        parts.append(f"Over {symbol}:")
        for text, curves in (("tr Σ_A21", granger), ("tr Σ_θ2", theta)):
            level, prior = ends(curves), ends(curves, "prior")
            largest = max(level)
            ratio = spread_over(level.values())
            verdict = "independent of it" if ratio < INDEPENDENT else "not independent of it"
            parts.append(
                f"{text} ends at {decades(level, symbol)}, a factor {number(ratio)} apart, "
                f"{verdict} ({share(max(prior[largest], 0) / level[largest])} is prior at "
                f"{symbol} {largest:g});"
            )
        parts[-1] = parts[-1][:-1] + "."
        error = ends(select(table, "granger_error", "client2", "client1", sweep=name))
        errors.append(max(error.values()) - min(error.values()))
    parts.append(
        f"The error of the mean differs by at most {number(max(errors))} between regimes: the mean "
        "follows an equation without the prior's variance in it."
    )
    return claim, " ".join(parts)
