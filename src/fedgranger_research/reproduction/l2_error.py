r"""Error of the mean of Â along training: to A, and to the learner's own limit Â*.

A run draws its start and its noise, so its expected squared error is, per block,
\(E\|\hat A - A\|_F^2 = \|E\hat A - A\|_F^2 + \operatorname{tr}\Sigma_A\).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from fedgranger_research.reproduction.reading import (
    SYMBOLS,
    column,
    decades,
    ends,
    firsts,
    number,
    rows_where,
    select,
)
from fedgranger_research.reproduction.regimes import Regime, stack_sweeps, sweeps

__all__ = ["TITLE", "collect", "paragraph", "settings"]

TITLE = "error of Â12 and Â21, to A and to the learner's own limit, for several Σ_y and Σ_A⁰"
SWEPT = ("noise_var", "granger_prior_var")
QUANTITIES = ("granger_cov", "granger_error", "granger_limit_error", "limit_error", "block_norm")
BLOCKS = {"12": ("client1", "client2"), "21": ("client2", "client1")}


def settings(*, quick: bool = False) -> list[Regime]:
    """What has to be propagated."""
    return sweeps(SWEPT, quick=quick)


def collect(tables: list[pd.DataFrame], *, quick: bool = False) -> pd.DataFrame:
    """The numbers of the figure.

    `total` of an error quantity is that of the mean; column `single_run` is the root mean square
    over runs, the spread tr Σ_A included.
    """
    table = stack_sweeps(SWEPT, tables, QUANTITIES, quick=quick)
    keys = ["sweep", "value", "round", "client", "cause"]
    traces = rows_where(table, table["quantity"] == "granger_cov")[[*keys, "total"]]
    renamed = pd.DataFrame(traces).rename(columns={"total": "trace"})
    joined = table.merge(renamed, on=keys, how="left")
    of_mean = np.isin(column(joined, "quantity"), ["granger_error", "granger_limit_error"])
    total, trace = column(joined, "total"), np.maximum(column(joined, "trace"), 0)
    single_run = np.where(of_mean, np.sqrt(total**2 + trace), np.nan)
    return joined.assign(single_run=single_run).drop(columns="trace")


def paragraph(table: pd.DataFrame) -> tuple[str, str]:
    """What the paper claims, what these numbers say."""
    claim = (
        "The error of the mean of Â to A falls along training, does not depend on the prior and "
        "grows when Σ_y is very large."
    )
    parts = []
    for block, (client, cause) in BLOCKS.items():
        to_truth = ends(select(table, "granger_error", client, cause, sweep="noise_var"))
        to_limit = ends(select(table, "granger_limit_error", client, cause, sweep="noise_var"))
        limit = ends(select(table, "limit_error", client, cause, sweep="noise_var"))
        norm = next(iter(ends(select(table, "block_norm", client, cause)).values()))
        middle = sorted(to_truth)[len(to_truth) // 2]
        relative = f" ({number(100 * to_truth[middle] / norm)} % of ‖A{block}‖)" if norm else ""
        parts.append(
            f"Â{block} (‖A{block}‖ = {number(norm)}): the error to A{block} ends at "
            f"{decades(to_truth, 'Σ_y')}. At Σ_y {middle:g} that is {number(to_truth[middle])}"
            f"{relative}, the limit Â{block}* itself is {number(limit[middle])} away, and the mean "
            f"is {number(to_limit[middle])} from the limit, around which constant step sizes keep "
            "it wandering."
        )
    name = "granger_prior_var"
    curves = select(table, "granger_error", "client2", "client1", sweep=name)
    mean, single = ends(curves), ends(curves, "single_run")
    first = firsts(curves, "single_run")
    low, high = min(mean), max(mean)
    parts.append(
        f"Over {SYMBOLS[name]} the mean's error is the same (differences up to "
        f"{number(max(mean.values()) - min(mean.values()))}); that of a single run, which has "
        f"drawn its start, begins at {number(first[low])} ({SYMBOLS[name]} {low:g}) and "
        f"{number(first[high])} ({high:g}) and ends at {number(single[low])} and "
        f"{number(single[high])}."
    )
    parts.append(
        "So the learner converges, to Â* and not to A: Â* can only hold what a client's own "
        "measurements predict."
    )
    return claim, " ".join(parts)
