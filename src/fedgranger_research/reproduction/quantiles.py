"""Are converged estimates normal? Quantiles over 30 block-bootstrap resamples, and their limits."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from fedgranger_research.reproduction.levels import column, number, rows_where, share
from fedgranger_research.reproduction.pictures import GREY, colours, pyplot, save
from fedgranger_research.reproduction.resampling import Resample
from fedgranger_research.reproduction.runner import Item

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
MARKERS = "os^D"
ALTERNATIVES = {
    "a Student t with 5 degrees of freedom": stats.t(5),
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


def markdown(table: pd.DataFrame) -> str:
    """How often normality is rejected, what the test would notice, and a test of absent blocks."""
    size = len(np.unique(column(table, "resample")))
    entries = table.drop_duplicates(ENTRY)
    p, is_shown = column(entries, "shapiro_p"), column(entries, "is_shown")
    lines = [
        f"| Shapiro and Wilk's test at {100 * LEVEL:g} % | rejected | of | smallest p |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {name} | {int((chosen <= LEVEL).sum())} | {len(chosen)} | {number(chosen.min())} |"
        for name, chosen in (("entries shown", p[is_shown]), ("all entries", p))
    ]
    lines += ["", f"| {size} independent draws of | noticed by that test |", "|---|---|"]
    lines += [f"| {name} | {share(x)} |" for name, x in shapiro_power(size).items()]
    absent = column(entries, "z")[~column(entries, "is_present")]
    rejected = float((np.abs(absent) > stats.norm.ppf(1 - LEVEL / 2)).mean())
    lines += [
        "",
        f"Mean / s.d. over resamples rejects {share(rejected)} of the {len(absent)} entries of "
        f"absent blocks at {100 * LEVEL:g} %.",
    ]
    return "\n".join(lines)


def draw(folder: Path, table: pd.DataFrame) -> None:
    """Draw one panel per block, one marker per entry."""
    plt = pyplot()
    shown = rows_where(table, table["is_shown"])
    blocks = list(shown[["effect", "cause"]].drop_duplicates().itertuples(index=False, name=None))
    figure, axes = plt.subplots(
        2, 2, figsize=(7.6, 6.6), sharex=True, sharey=True, layout="constrained"
    )
    limit = 1.1 * float(np.abs(np.asarray(shown["standardised"])).max())
    for axis, (effect, cause) in zip(axes.flat, blocks, strict=True):
        block = rows_where(shown, (shown["effect"] == effect) & (shown["cause"] == cause))
        axis.plot([-limit, limit], [-limit, limit], color=GREY, lw=1, zorder=1)
        entries = list(block[["row", "col"]].drop_duplicates().itertuples(index=False, name=None))
        palette = colours(len(entries))
        for (i, j), colour, marker in zip(entries, palette, MARKERS, strict=True):
            entry = rows_where(block, (block["row"] == i) & (block["col"] == j))
            p = float(np.asarray(entry["shapiro_p"])[0])
            axis.plot(
                np.asarray(entry["normal_quantile"]),
                np.asarray(entry["standardised"]),
                marker,
                ms=4.5,
                mfc="none",
                mec=colour,
                label=f"entry ({i + 1}, {j + 1}), p = {p:.2f}",
            )
        numbers = f"{effect.removeprefix('client')}{cause.removeprefix('client')}"
        present = "present" if np.asarray(block["is_present"])[0] else "absent"
        axis.set_title(rf"$\hat A_{{{numbers}}}$ ({present})")
        axis.legend(loc="upper left", fontsize=7.5, title="Shapiro–Wilk", title_fontsize=7.5)
    for axis in axes[-1]:
        axis.set_xlabel("normal quantile")
    for axis in axes[:, 0]:
        axis.set_ylabel("standardised estimate")
    save(figure, folder, "qq")


ITEM = Item("qq", TITLE, settings, collect, markdown, draw)
