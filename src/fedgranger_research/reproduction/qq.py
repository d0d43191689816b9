"""Are converged estimates normal? Quantiles over 30 block-bootstrap resamples, and their limits."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
from scipy import stats

from fedgranger_research.reproduction.reading import column, number, share
from fedgranger_research.reproduction.resampling import Resample

__all__ = ["SHOWN", "TITLE", "collect", "paragraph", "settings", "shapiro_power"]

TITLE = "normal QQ plots of four blocks over 30 block-bootstrap resamples of a six-client data set"
SHOWN = (
    ("client1", "client2"),
    ("client2", "client5"),
    ("client4", "client3"),
    ("client6", "client3"),
)
"""(effect, cause) of the blocks in the paper's figure."""
ENTRY = ["effect", "cause", "row", "col"]
NUM_RESAMPLES = 30
LEVEL = 0.05
ALTERNATIVES = {
    "Student t with 5 degrees of freedom": stats.t(5),
    "a χ² with 10 degrees of freedom": stats.chi2(10),
    "an exponential": stats.expon(),
}


def settings(*, quick: bool = False) -> list[Resample]:
    """The resamples."""
    if quick:
        return [Resample(index, num_steps=300, block_length=20) for index in range(4)]
    return [Resample(index) for index in range(NUM_RESAMPLES)]


def collect(tables: list[pd.DataFrame], *, quick: bool = False) -> pd.DataFrame:
    """The numbers of the figure: every entry's estimates in order, with their normal quantiles.

    Columns besides those of `Resample.run`: `standardised` (mean 0, s.d. 1 over resamples),
    `normal_quantile` at (k − ½)/n, `shapiro_p` of the entry, `z` = mean / s.d., `is_shown`.
    """
    del quick
    table = pd.concat(tables, ignore_index=True)
    parts = []
    for _, group in table.groupby(ENTRY, sort=True):
        entry = pd.DataFrame(group).sort_values(by="estimate", kind="stable")
        x = column(entry, "estimate")
        n, sd = len(x), x.std(ddof=1)
        block = (column(entry, "effect")[0], column(entry, "cause")[0])
        parts.append(
            entry.assign(
                standardised=(x - x.mean()) / sd,
                normal_quantile=stats.norm.ppf((np.arange(n) + 0.5) / n),
                shapiro_p=float(stats.shapiro(x).pvalue),
                z=x.mean() / sd,
                is_shown=block in SHOWN,
            )
        )
    return pd.concat(parts, ignore_index=True)


@cache
def shapiro_power(size: int, *, repeats: int = 2000, seed: int = 0) -> dict[str, float]:
    """How often Shapiro and Wilk's test, at 5 %, notices each alternative in a sample this size."""
    rng = np.random.default_rng(seed)
    found = {}
    for name, law in ALTERNATIVES.items():
        samples = law.rvs(size=(repeats, size), random_state=rng)
        p = [stats.shapiro(sample).pvalue for sample in samples]
        found[name] = float(np.mean(np.array(p) <= LEVEL))
    return found


def paragraph(table: pd.DataFrame) -> tuple[str, str]:
    """What the paper claims, what these numbers say."""
    claim = (
        "Quantiles of the converged estimates over 30 resamples follow those of a normal "
        "distribution, which is offered as support for the test on single entries."
    )
    size = len(np.unique(column(table, "resample")))
    entries = table.drop_duplicates(ENTRY)
    p, is_shown = column(entries, "shapiro_p"), column(entries, "is_shown")
    shown = p[is_shown]
    low, low_all = int((shown <= LEVEL).sum()), float((p <= LEVEL).mean())
    power = shapiro_power(size)
    noticed = ", ".join(f"{name} in {share(x)}" for name, x in power.items())
    absent = column(entries, "z")[~column(entries, "is_present")]
    rejected = float((np.abs(absent) > stats.norm.ppf(1 - LEVEL / 2)).mean())
    verdict = (
        "The quantiles follow the line"
        if low <= stats.binom.ppf(0.99, len(shown), LEVEL)
        else "The quantiles do not follow the line everywhere"
    )
    finding = (
        f"{verdict}: Shapiro and Wilk's test rejects normality at 5 % for "
        f"{low} of the {len(shown)} entries shown (smallest p {number(float(shown.min()))}) "
        f"and for {share(low_all)} of all {len(entries)} entries, where 5 % are expected from "
        f"normal ones (entries are correlated, so these are not {len(entries)} independent tests). "
        f"What {size} resamples can show: in as many independent draws the test notices {noticed} "
        "of the cases. Resamples of one data set also describe the spread around the learner's own "
        "limit and not around A, and that decides a test: dividing every entry's mean by its "
        f"spread over resamples rejects {share(rejected)} of the {len(absent)} entries of absent "
        "blocks at 5 %, normal or not."
    )
    return claim, finding
