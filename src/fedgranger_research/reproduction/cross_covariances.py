"""Cross-covariances Γ21, Λ2, Ψ21 along training, for the three sweeps."""

from __future__ import annotations

import pandas as pd

from fedgranger_research.reproduction.reading import (
    SYMBOLS,
    ends,
    last_round,
    number,
    select,
    settling,
)
from fedgranger_research.reproduction.regimes import SWEEPS, Regime, stack_sweeps, sweeps

__all__ = ["TITLE", "collect", "paragraph", "settings"]

TITLE = "cross-covariances Γ21, Λ2 and Ψ21 for several Σ_y, Σ_A⁰ and Σ_θ⁰"
SWEPT = tuple(SWEEPS)
LETTERS = {
    "granger_state_cov": "Γ21",
    "augmentation_state_cov": "Λ2",
    "granger_augmentation_cov": "Ψ21",
}
OF_PAIR = ("granger_state_cov", "granger_augmentation_cov")
SETTLED = 0.2
"""Largest relative change between the last two fifths that is called settled."""


def settings(*, quick: bool = False) -> list[Regime]:
    """What has to be propagated."""
    return sweeps(SWEPT, quick=quick)


def collect(tables: list[pd.DataFrame], *, quick: bool = False) -> pd.DataFrame:
    """The numbers of the figure: Frobenius norms, for Γ21 = Cov(Â21, h_a), Λ2 and Ψ21."""
    return stack_sweeps(SWEPT, tables, tuple(LETTERS), quick=quick, client="client2")


def paragraph(table: pd.DataFrame) -> tuple[str, str]:
    """What the paper claims, what these numbers say."""
    claim = "The cross-covariances converge in every regime, however large the noise."
    parts = []
    moving = []
    for name in SWEPT:
        symbol = SYMBOLS[name]
        found = []
        for quantity, letter in LETTERS.items():
            cause = "client1" if quantity in OF_PAIR else ""
            curves = select(table, quantity, "client2", cause, sweep=name)
            level = ends(curves)
            low, high = min(level), max(level)
            found.append(f"‖{letter}‖ {number(level[low])} to {number(level[high])}")
            moving += [
                f"{letter} at {symbol} {value:g} ({100 * x:.0f} %)"
                for value, x in settling(curves).items()
                if x > SETTLED
            ]
        values = SWEEPS[name]
        parts.append(f"from {symbol} {values[0]:g} to {values[-1]:g}: {', '.join(found)}")
    verdict = (
        f"No median changes by more than {100 * SETTLED:.0f} % between the last two fifths of the "
        "rounds, so they have settled."
        if not moving
        else f"Medians that still change by more than {100 * SETTLED:.0f} % between the last two "
        f"fifths of the rounds: {', '.join(moving)}."
    )
    finding = (
        f"All stay bounded. After {last_round(table)} rounds the medians are, "
        f"{'; '.join(parts)}. Γ and Λ are covariances with the message h_a = h_c + θy of one "
        "round, so they swing with its measurement and have no limit round by round, only a level. "
        f"{verdict}"
    )
    return claim, finding
