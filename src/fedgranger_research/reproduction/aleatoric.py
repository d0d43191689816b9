"""Traces and errors along training for several measurement variances Σ_y (six panels)."""

from __future__ import annotations

import pandas as pd

from fedgranger_research.reproduction.reading import (
    decades,
    ends,
    firsts,
    last_round,
    number,
    select,
    settling,
    share,
)
from fedgranger_research.reproduction.regimes import Regime, stack_sweeps, sweeps

__all__ = ["TITLE", "collect", "paragraph", "settings"]

TITLE = "traces of Σ_A and Σ_θ and the error of Â for several Σ_y"
SWEPT = ("noise_var",)
QUANTITIES = (
    "granger_cov",
    "augmentation_cov",
    "granger_error",
    "limit_error",
    "block_norm",
    "time_constant",
    "server_time_constant",
)


def settings(*, quick: bool = False) -> list[Regime]:
    """What has to be propagated."""
    return sweeps(SWEPT, quick=quick)


def collect(tables: list[pd.DataFrame], *, quick: bool = False) -> pd.DataFrame:
    """The numbers of the figure."""
    return stack_sweeps(SWEPT, tables, QUANTITIES, quick=quick)


def paragraph(table: pd.DataFrame) -> tuple[str, str]:
    """What the paper claims, what these numbers say."""
    claim = (
        "All traces settle for every Σ_y; a larger Σ_y makes the variances decay faster and makes "
        "the estimate worse only at the largest values."
    )
    granger = select(table, "granger_cov", "client2", "client1")
    theta = select(table, "augmentation_cov", "client2")
    level, prior = ends(granger), ends(granger, "prior")
    theta_level, theta_prior = ends(theta), ends(theta, "prior")
    shares = {v: max(prior[v], 0.0) / level[v] for v in level}
    theta_shares = {v: max(theta_prior[v], 0.0) / theta_level[v] for v in level}
    slow = ends(select(table, "time_constant", "client2"))
    moving = {v: x for v, x in settling(theta).items() if x > 0.05}
    error = ends(select(table, "granger_error", "client2", "client1"))
    limit = ends(select(table, "limit_error", "client2", "client1"))
    norm = next(iter(ends(select(table, "block_norm", "client2", "client1")).values()))
    rounds, low, high = last_round(table), min(level), max(level)
    start = firsts(theta, "prior")
    drop = {v: theta_prior[v] / start[v] for v in level}
    faster = drop[high] < drop[low]
    settled = (
        "all curves of tr Σ_θ2 have settled"
        if not moving
        else "tr Σ_θ2 is still moving (over 5 % between the last two fifths) at Σ_y "
        + ", ".join(f"{v:g}" for v in moving)
    )
    finding = (
        f"After {rounds} rounds (medians over the last fifth) tr Σ_A21 is "
        f"{decades(level, 'Σ_y')}: a factor {number(level[high] / level[low])} from Σ_y {low:g} to "
        f"{high:g}. "
        f"A larger Σ_y {'does' if faster else 'does not'} speed up the decay: of the prior of θ2, "
        f"{share(max(drop[low], 0))} is left at Σ_y {low:g} and {share(max(drop[high], 0))} at "
        f"{high:g}; eight sensors see only two states, so the other six directions of θ move by "
        f"noise and ridge alone (slowest time constant {decades(slow, 'Σ_y')} rounds). "
        f"{settled[0].upper() + settled[1:]}, and the prior is still {_range(theta_shares)} of "
        f"tr Σ_θ2 and {_range(shares)} of tr Σ_A21: a curve that has become flat "
        "need not be free of the prior. "
        f"The error of the mean, ‖E Â21 − A21‖, ends at {decades(error, 'Σ_y')} with ‖A21‖ = "
        f"{number(norm)}; the learner's own limit Â21* lies {number(min(limit.values()))} to "
        f"{number(max(limit.values()))} from A21, so most of that error is where the learner goes "
        "and not how noisily it goes there."
    )
    return claim, finding


def _range(shares: dict[float, float]) -> str:
    low, high = min(shares), max(shares)
    return f"{share(shares[low])} (Σ_y {low:g}) to {share(shares[high])} (Σ_y {high:g})"
