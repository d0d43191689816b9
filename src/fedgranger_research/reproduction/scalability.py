"""Trace of Cov(Â21) at the end of training, for more sensors and for more clients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from fedgranger.data.linear_system import client_names
from fedgranger_research.reproduction.reading import (
    column,
    number,
    rows_where,
    share,
    spread_over,
)
from fedgranger_research.reproduction.regimes import Regime
from fedgranger_research.reproduction.system import STATE_DIM

__all__ = ["PAPER_TRACES", "TITLE", "collect", "markdown", "paragraph", "settings"]

TITLE = "trace of Cov(Â21) at the end of training for d = 16…128 and M = 2…16, prior 1e-6…1"
PRIORS = (1e-6, 1e-4, 1e-2, 1.0)
SIZES = {"sensor_dim": (16, 32, 64, 128), "num_clients": (2, 4, 8, 16)}
LETTERS = {"sensor_dim": "d", "num_clients": "M"}
PAPER_TRACES = {
    "sensor_dim": {
        1e-6: (1e-9, 1e-5, 1e-7, 1e-7),
        1e-4: (1e-8, 1e-5, 1e-7, 1e-7),
        1e-2: (1.0e-4, 4.0e-4, 1.0e-4, 1e-5),
        1.0: (1.6722, 1.9733, 2.4601, 1.5882),
    },
    "num_clients": {
        1e-6: (1e-5, 1e-5, 1e-5, 1e-6),
        1e-4: (1e-5, 1e-5, 1e-5, 1e-6),
        1e-2: (0.0001, 0.0002, 0.0002, 0.0),
        1.0: (1.7233, 1.6456, 2.5835, 4.7),
    },
}
"""As printed; powers of ten alone are orders of magnitude there."""
INDEPENDENT = 1.05
"""Largest ratio between priors Σ_A⁰ that is still called independent of them."""


def settings(*, quick: bool = False) -> list[Regime]:
    """What has to be propagated: automatic step sizes, so that every size is equally stable."""
    return [regime for _, _, _, regime in _grid(quick=quick)]


def collect(tables: list[pd.DataFrame], *, quick: bool = False) -> pd.DataFrame:
    """One row per size and prior.

    Columns: axis, size, granger_prior_var, trace, prior_share, rounds, server_time_constants and
    time_constants (rounds trained, in time constants of Â and of the slowest direction of the
    row), paper_trace, paper_decay (time constants after which a prior that only decays would be
    at the paper's trace; NaN if that is zero or above the start).
    """
    rows = []
    for (axis, size, prior, regime), table in zip(_grid(quick=quick), tables, strict=True):
        effect, cause = client_names(regime.num_clients)[1::-1]
        own = rows_where(table, table["client"] == effect)
        of_pair = (own["quantity"] == "granger_cov") & (own["cause"] == cause)
        curve = rows_where(own, of_pair).sort_values(by="round")
        marks, trace, part = (column(curve, name) for name in ("round", "total", "prior"))
        constants = {
            name: float(column(rows_where(own, own["quantity"] == name), "total")[0])
            for name in ("server_time_constant", "time_constant")
        }
        printed = PAPER_TRACES[axis][prior][SIZES[axis].index(size)]
        rounds = int(marks[-1])
        rows.append(
            {
                "axis": axis,
                "size": size,
                "granger_prior_var": prior,
                "trace": float(trace[-1]),
                "prior_share": max(float(part[-1] / trace[-1]), 0.0),
                "rounds": rounds,
                "server_time_constants": rounds / constants["server_time_constant"],
                "time_constants": rounds / constants["time_constant"],
                "paper_trace": printed,
                "paper_decay": _decay(printed, float(trace[0])),
            }
        )
    return pd.DataFrame(rows)


def paragraph(table: pd.DataFrame) -> tuple[str, str]:
    """What the paper claims, what these numbers say."""
    claim = (
        "At convergence the trace of Cov(Â21) is about the same for all d, and it is reported for "
        "M = 2 to 16; at prior variance 1 it prints values between 1.59 and 4.7, at 1e-6 between "
        "1e-9 and 1e-5."
    )
    parts = []
    for axis, letter in _axes(table):
        own = rows_where(table, table["axis"] == axis)
        ones = _at_largest_prior(own)
        sizes, traces = column(ones, "size"), column(ones, "trace")
        server, slowest = column(ones, "server_time_constants"), column(ones, "time_constants")
        shares, rounds = column(ones, "prior_share"), int(column(ones, "rounds").max())
        ratios = [ratio for _, ratio, _ in _by_size(own)]
        parts.append(
            f"With prior 1 and {letter} = {', '.join(map(str, sizes))} the trace is "
            f"{', '.join(map(number, traces))} after {rounds} rounds, of which "
            f"{', '.join(map(share, shares))} is still prior. These rounds are "
            f"{', '.join(map(number, server))} time constants of Â and "
            f"{', '.join(map(number, slowest))} of the slowest direction of (θ, Â). Between the "
            f"priors Σ_A⁰ the trace differs by a factor {', '.join(map(number, ratios))}."
        )
    top = _at_largest_prior(table)
    printed, decay = column(top, "paper_trace"), column(top, "paper_decay")
    start = STATE_DIM**2 * column(top, "granger_prior_var").max()
    younger = np.isfinite(decay)
    priors = column(table, "granger_prior_var")
    least = column(rows_where(table, priors == priors.min()), "paper_trace")
    parts.append(
        f"Four entries with variance 1 start at a trace of {number(start)}. A prior that decays "
        "with the time constant of Â and nothing else passes the paper's values at prior 1 after "
        f"{number(decay[younger].min())} to {number(decay[younger].max())} time constants"
        f"{_above(printed[~younger])}. A steady state has no prior in it, yet at the smallest "
        f"prior the paper prints {number(least.min())} to {number(least.max())} for the same "
        "systems: what it prints at prior 1 is a prior that has not decayed."
    )
    inherited = [
        f"{letter} = {size}"
        for axis, letter in _axes(table)
        for size, ratio, part in _by_size(rows_where(table, table["axis"] == axis))
        if ratio < INDEPENDENT and part > 0.5
    ]
    if inherited:
        parts.append(
            f"At {', '.join(inherited)} more than half of the trace is prior although it does not "
            "depend on Σ_A⁰, so it is the prior of θ: directions of θ that no state reaches keep "
            "it, and noise passes it on to Â."
        )
    return claim, " ".join(parts)


def _axes(table: pd.DataFrame) -> list[tuple[str, str]]:
    """What was varied, with its letter."""
    found = column(table, "axis")
    return [(axis, letter) for axis, letter in LETTERS.items() if (found == axis).any()]


def _by_size(own: pd.DataFrame) -> list[tuple[int, float, float]]:
    """Per size: largest over smallest trace between the priors, and the least share of prior."""
    found = []
    for size in np.unique(column(own, "size")):
        rows = rows_where(own, own["size"] == size)
        ratio = spread_over(column(rows, "trace"))
        found.append((int(size), ratio, float(column(rows, "prior_share").min())))
    return found


def _decay(trace: float, start: float) -> float:
    r"""Time constants τ after which \(\text{start}\, e^{-2t/\tau}\) is at `trace`, or NaN."""
    return 0.5 * float(np.log(start / trace)) if 0 < trace <= start else float("nan")


def _above(traces: np.ndarray) -> str:
    if not len(traces):
        return ""
    return f" ({', '.join(map(number, traces))} is even above the start)"


def _at_largest_prior(table: pd.DataFrame) -> pd.DataFrame:
    priors = column(table, "granger_prior_var")
    return rows_where(table, priors == priors.max()).sort_values(by="size")


def markdown(table: pd.DataFrame) -> str:
    """The two tables, ours with the share that is prior, the paper's figure in brackets."""
    out = []
    columns = ["trace", "prior_share", "paper_trace"]
    for axis, letter in _axes(table):
        own = rows_where(table, table["axis"] == axis).sort_values(by="size")
        sizes = np.unique(column(own, "size"))
        out.append("| prior Σ_A⁰ | " + " | ".join(f"{letter} = {size}" for size in sizes) + " |")
        out.append("|---" * (len(sizes) + 1) + "|")
        priors = column(own, "granger_prior_var")
        for prior in np.unique(priors):
            row = rows_where(own, priors == prior)
            cells = [
                f"{number(ours)}, {share(part)} prior [{number(printed)}]"
                for ours, part, printed in row[columns].to_numpy()
            ]
            out.append(f"| {prior:g} | " + " | ".join(cells) + " |")
        times = own.drop_duplicates("size")[["server_time_constants", "time_constants"]]
        cells = [f"{number(server)} / {number(slowest)}" for server, slowest in times.to_numpy()]
        out.append("| time constants of Â / of (θ, Â) | " + " | ".join(cells) + " |")
        out.append("")
    out.append("Ours, how much of it is prior, in brackets what the paper prints.")
    return "\n".join(out)


def _grid(*, quick: bool) -> list[tuple[str, int, float, Regime]]:
    base = Regime(num_rounds=2001, num_checkpoints=40, step_sizes=None)
    if quick:
        base = replace(base, num_rounds=201, num_checkpoints=8)
    grid = []
    for axis, sizes in SIZES.items():
        if quick and axis == "sensor_dim":
            continue  # two clients with eight sensors are what the figures have compiled
        for size in sizes[:1] if quick else sizes:
            for prior in PRIORS[::3] if quick else PRIORS:
                level = "joint" if axis == "sensor_dim" or size == 2 else "blockwise"
                values = {axis: size, "granger_prior_var": prior, "level": level}
                grid.append((axis, size, prior, replace(base, **values)))
    return grid
