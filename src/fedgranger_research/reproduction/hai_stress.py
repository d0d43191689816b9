"""HAI under stress: the figure and its text; `hai_regime` computes one setting."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from fedgranger.errors import DataError
from fedgranger_research.reproduction.hai_regime import CLIENTS, HaiRegime
from fedgranger_research.reproduction.reading import (
    column,
    ends,
    firsts,
    last_round,
    number,
    rows_where,
    select,
    settling,
    share,
    spread_over,
)
from fedgranger_research.reproduction.runner import Item

__all__ = ["BLOCKS", "SWEEPS", "hai_stress_item"]

TITLE = "HAI, normal operation: traces of Σ_A and Σ_θ and the error of Â for several Σ_y and Σ_A⁰"
SWEEPS: dict[str, tuple[float, float, float]] = {
    "noise_var": (1e-2, 1e-1, 1.0),
    "granger_prior_var": (1e-4, 1e-2, 1.0),
}
"""Low, medium and high Σ_y (per sensor, whose recorded variance is 1) and Σ_A⁰ (per entry)."""
BLOCKS = tuple((effect, cause) for effect in CLIENTS for cause in CLIENTS if cause != effect)
QUANTITIES = (
    "granger_cov",
    "augmentation_cov",
    "granger_error",
    "granger_limit_error",
    "limit_error",
    "block_norm",
    "time_constant",
    "server_time_constant",
    "sensors",
    "self_radius",
)
DECAYED = 0.05
"""A prior below this share of a trace no longer matters; levels this close are the same."""
PERCENT = f"{100 * DECAYED:.0f} %"


def hai_stress_item(folder: Path) -> Item:
    """The figure for the data below a folder (its subfolder `hai`).

    Raises:
        DataError: there is none.
    """
    path = folder / "hai"
    if not path.is_dir():
        raise DataError(
            f"{folder}: has no subfolder hai; give --data a folder with one that holds the "
            "publisher's files ('fedgranger datasets info hai' says which)"
        )
    return Item("hai-stress", TITLE, partial(_settings, path), _collect, _paragraph)


def _swept(*, quick: bool) -> list[tuple[str, float]]:
    """Quick: the extremes."""
    step = 2 if quick else 1
    return [(name, value) for name, values in SWEEPS.items() for value in values[::step]]


def _settings(path: Path, *, quick: bool = False) -> list[HaiRegime]:
    base = HaiRegime(path, num_rounds=201, num_checkpoints=8) if quick else HaiRegime(path)
    return [replace(base, **{name: value}) for name, value in _swept(quick=quick)]


def _collect(tables: list[pd.DataFrame], *, quick: bool = False) -> pd.DataFrame:
    """The numbers of the figure; column `single_run` as in `l2_error.collect`."""
    parts = []
    for (name, value), table in zip(_swept(quick=quick), tables, strict=True):
        chosen = rows_where(table, table["quantity"].isin(QUANTITIES))
        chosen.insert(0, "sweep", name)
        chosen.insert(1, "value", value)
        parts.append(chosen)
    table = pd.concat(parts, ignore_index=True)
    keys = ["sweep", "value", "round", "client", "cause"]
    traces = rows_where(table, table["quantity"] == "granger_cov")[[*keys, "total"]]
    joined = table.merge(
        pd.DataFrame(traces).rename(columns={"total": "trace"}), on=keys, how="left"
    )
    of_mean = np.isin(column(joined, "quantity"), ["granger_error", "granger_limit_error"])
    total, trace = column(joined, "total"), np.maximum(column(joined, "trace"), 0)
    single_run = np.where(of_mean, np.sqrt(total**2 + trace), np.nan)
    return joined.assign(single_run=single_run).drop(columns="trace")


def _paragraph(table: pd.DataFrame) -> tuple[str, str]:
    claim = (
        "For HAI the paper draws the error of Â's mean to A, block by block, for several Σ_y and "
        "Σ_A⁰ (what A is for HAI it does not say), and traces of a nonlinear model only. Its text "
        "says that all traces settle, that their level does not depend on the prior, and that a "
        "larger Σ_y makes variances decay faster and, when very large, the estimate worse."
    )
    parts = [_about_run(table), _about_noise(table), _about_prior(table), _about_error(table)]
    return claim, " ".join(parts)


def _about_run(table: pd.DataFrame) -> str:
    sensors = ", ".join(f"{m} {_fact(table, 'sensors', m):.0f}" for m in CLIENTS)
    radii = ", ".join(number(_fact(table, "self_radius", m)) for m in CLIENTS)
    return (
        f"{last_round(table)} rounds (levels are medians over the last fifth), live sensors "
        f"{sensors}, two states each, ρ(A_mm) {radii}; A is replaced by Â°, the learner's limit "
        "without added noise."
    )


def _about_noise(table: pd.DataFrame) -> str:
    low, *_, high = SWEEPS["noise_var"]
    level = _levels(table, "granger_cov", "noise_var")
    growth = [x[high] / x[low] for x in level.values()]
    left, ratio, moving = [], [], []
    for client in CLIENTS:
        theta = select(table, "augmentation_cov", client, sweep="noise_var")
        start, prior, total = firsts(theta, "prior"), ends(theta, "prior"), ends(theta)
        shares = [share(max(prior[value], 0) / start[value]) for value in (low, high)]
        left.append(f"{shares[0]} and {shares[1]} (θ{client[1:]})")
        ratio.append(f"{number(total[high] / total[low])} (θ{client[1:]})")
        moving += [f"{v:g} (θ{client[1:]})" for v, x in settling(theta).items() if x > DECAYED]
    return (
        f"Noise: tr Σ_A ends between {_span(level, low)} at Σ_y {low:g} and between "
        f"{_span(level, high)} at {high:g}, {number(min(growth))} to {number(max(growth))} times "
        f"as much. Of θ's prior {', '.join(left)} are left at Σ_y {low:g} and {high:g}; tr Σ_θ "
        f"itself, noise included, ends {', '.join(ratio)} times as large at {high:g} as at "
        f"{low:g}, and still changes by over {PERCENT} between the last two fifths at Σ_y "
        f"{', '.join(moving) or 'nowhere'}. The prior is still over {PERCENT} of tr Σ_A in "
        f"{_held(table, 'noise_var', low)[1]} at Σ_y {low:g} and in "
        f"{_held(table, 'noise_var', high)[1]} at {high:g}."
    )


def _about_prior(table: pd.DataFrame) -> str:
    sweep = "granger_prior_var"
    low, *_, high = SWEEPS[sweep]
    ratio = {b: spread_over(x.values()) for b, x in _levels(table, "granger_cov", sweep).items()}
    free = [b for b in BLOCKS if ratio[b] < 1 + DECAYED]
    apart = [f"{number(ratio[b])} ({_name(b)})" for b in BLOCKS if b not in free]
    held, text = _held(table, sweep, high)
    prior = _levels(table, "granger_cov", sweep, "prior")
    # linear in Σ_A⁰ and Σ_θ⁰, and the second is the same everywhere
    own = [(x[high] - x[low]) / (1 - low / high) / x[high] for b, x in prior.items() if b in held]
    whose = f": {share(max(own))} of it at most is Â's own start, the rest is θ's" if own else ""
    rounds, times = last_round(table), []
    for m in CLIENTS:
        server, slow = (_fact(table, f"{x}time_constant", m, sweep) for x in ("server_", ""))
        times.append(f"{number(rounds / server)} and {number(rounds / slow)} ({m})")
    return (
        f"Prior: with Σ_A⁰ from {low:g} to {high:g} the level of tr Σ_A is the same within "
        f"{PERCENT} in {_names(free)}"
        f"{' and differs by a factor ' + ', '.join(apart) if apart else ''}. The pass is "
        f"{', '.join(times)} time constants long of Â alone and of the slowest direction of "
        f"(θ, Â). At Σ_A⁰ {high:g} a prior is over {PERCENT} of tr Σ_A in {text}{whose}."
    )


def _about_error(table: pd.DataFrame) -> str:
    low, *_, high = SWEEPS["noise_var"]
    error, to_limit, moved = (
        _levels(table, name, "noise_var", unit="block_norm")
        for name in ("granger_error", "granger_limit_error", "limit_error")
    )
    texts = [f"{number(x[low])} and {number(x[high])} ({_name(b)})" for b, x in error.items()]
    worse = [b for b, x in error.items() if x[high] > x[low]]
    above = [sum(x[value] > 1 for x in error.values()) for value in (low, high)]
    mean, single = (
        _levels(table, "granger_error", "granger_prior_var", name)
        for name in ("total", "single_run")
    )
    apart = max(max(x.values()) - min(x.values()) for x in mean.values())
    ratio = max(spread_over(x.values()) for x in single.values())
    return (
        f"Error of the mean to Â° in units of ‖Â°‖, at Σ_y {low:g} and {high:g}: "
        f"{', '.join(texts)}. It starts at 1 (the mean of the start is 0) and ends above 1 in "
        f"{above[0]} and {above[1]} of 6 blocks; to the regime's own limit Â* it is between "
        f"{_span(to_limit, low)} and between {_span(to_limit, high)}. No drawn noise or start is "
        "in the mean: what moves it are the recorded rows, one per round at a constant step size, "
        f"and a θ that has not arrived. A larger Σ_y makes the error larger in {_names(worse)}; it "
        f"acts like ridge and at {high:g} takes Â* between {_span(moved, high)} ‖Â°‖ away from Â°. "
        f"Over Σ_A⁰ the mean's error differs by at most {number(apart)}, that of a single run ends "
        f"at most a factor {number(ratio)} apart."
    )


def _levels(
    table: pd.DataFrame, quantity: str, sweep: str, name: str = "total", unit: str | None = None
) -> dict[tuple[str, str], dict[float, float]]:
    """Ends of every block and regime, in units of another quantity if given."""
    found = {b: ends(select(table, quantity, *b, sweep=sweep), name) for b in BLOCKS}
    if unit is None:
        return found
    units = _levels(table, unit, sweep)
    return {b: {v: x / units[b][v] for v, x in level.items()} for b, level in found.items()}


def _held(table: pd.DataFrame, sweep: str, value: float) -> tuple[list[tuple[str, str]], str]:
    """Blocks whose trace still holds the prior, and the same in words with the largest share."""
    total, prior = (_levels(table, "granger_cov", sweep, name) for name in ("total", "prior"))
    shares = {b: prior[b][value] / total[b][value] for b in BLOCKS}
    held = [b for b in BLOCKS if shares[b] > DECAYED]
    return held, f"{_names(held)} (up to {share(max(shares.values()))})" if held else "no block"


def _fact(table: pd.DataFrame, name: str, client: str, sweep: str = "noise_var") -> float:
    """What is the same in all regimes of a sweep, or its value in the first."""
    return next(iter(ends(select(table, name, client, sweep=sweep)).values()))


def _span(levels: dict[tuple[str, str], dict[float, float]], value: float) -> str:
    low, *_, high = sorted(BLOCKS, key=lambda b: levels[b][value])
    return " and ".join(f"{number(levels[b][value])} ({_name(b)})" for b in (low, high))


def _names(blocks: Iterable[tuple[str, str]]) -> str:
    return ", ".join(_name(b) for b in blocks) or "no block"


def _name(block: tuple[str, str]) -> str:
    return f"Â{block[0][1:]}{block[1][1:]}"
