"""Effect of noise in the messages: on FedGC as the paper shows it, and on private edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedgranger_research.reproduction.dp_picture import draw
from fedgranger_research.reproduction.levels import column, grouped, number, rows_where
from fedgranger_research.reproduction.noisy_training import NoisyTraining
from fedgranger_research.reproduction.private_edges import PrivateEdges
from fedgranger_research.reproduction.runner import Item

TITLE = "noise on the messages: traces and errors of FedGC, size and power of private edges"
NOISE_SDS = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 0.3, 1.0)
NUM_SEEDS = 10
EPSILONS = (4.0, 10.0, 25.0, 63.0, 160.0, 400.0, 1000.0)
SOME_EPSILONS = EPSILONS[::2]
FEW_EPSILONS = (25.0, 160.0, 1000.0)
NUM_DATA_SETS = 20
NUM_AUTO = 6
EDGE_COLUMNS = ["num_steps", "models", "test", "neighbours", "epsilon"]
TRAINING_COLUMNS = ["direction", "noise_sd"]
EDGE_QUANTITIES = (
    "refused",
    "edge_size",
    "edge_power",
    "f1",
    "fdr",
    "untested",
    "added_noise",
    "clipped_share",
)
INFLATED = {
    "granger_cov": "Σ_A21",
    "augmentation_cov": "Σ_θ2",
    "state_cov": "Σ_h2",
    "gradient_cov": "Var(g_2)",
}
WAYS = {"up": "client → server", "down": "server → client"}
SMALLEST = 1e-10
"""Below this an inflation is rounding."""


def training_settings(*, quick: bool = False) -> list[NoisyTraining]:
    """Data sets that are trained over with noise on the messages."""
    if quick:
        return [NoisyTraining(seed, (1e-3, 1.0), 200, 4) for seed in range(2)]
    return [NoisyTraining(seed, NOISE_SDS) for seed in range(NUM_SEEDS)]


def private_settings(*, quick: bool = False) -> list[PrivateEdges]:
    """Which data sets are tested how: those that take long with fewer ε, or fewer of them."""
    if quick:
        return [PrivateEdges(seed, 600, "identified", "debiased", (1000.0,)) for seed in range(2)]
    both = ("event", "window")
    plans = [
        (2000, "declared", "debiased", EPSILONS, both, NUM_DATA_SETS),
        (2000, "identified", "debiased", EPSILONS, both, NUM_DATA_SETS),
        (2000, "declared, A_mm alone", "debiased", EPSILONS, both, NUM_DATA_SETS),
        (2000, "declared", "auto", FEW_EPSILONS, ("event",), NUM_AUTO),
        (50_000, "declared", "debiased", SOME_EPSILONS, both, NUM_DATA_SETS),
        (
            50_000,
            "declared, A_mm alone",
            "debiased",
            FEW_EPSILONS,
            ("event",),
            NUM_DATA_SETS,
        ),
        (50_000, "identified", "debiased", SOME_EPSILONS, both, NUM_DATA_SETS),
    ]
    return [
        PrivateEdges(seed, num_steps, models, test, epsilons, neighbours)
        for num_steps, models, test, epsilons, neighbours, count in plans
        for seed in range(count)
    ]


def settings(*, quick: bool = False) -> list[NoisyTraining | PrivateEdges]:
    """What has to be computed."""
    return [*training_settings(quick=quick), *private_settings(quick=quick)]


def collect(tables: list[pd.DataFrame], *, quick: bool = False) -> pd.DataFrame:
    """Mean, s.d. and standard error over data sets, one row per setting and quantity.

    Columns: part ("training" or "edges"), what was varied (`TRAINING_COLUMNS` or `EDGE_COLUMNS`;
    the data without noise have ε = ∞ and neighbours "none"), quantity, mean, sd, se, count.
    Quantities of training are those of `NoisyTraining.run`; NAME_excess is the relative increase
    over the same data set without noise, of `drawn_granger_cov` and `given_granger_cov` their size
    relative to it. Those of
    edges are those of `PrivateEdges.run`, averaged over the data sets that were not refused.
    """
    num_training = len(training_settings(quick=quick))
    training = pd.concat(tables[:num_training], ignore_index=True)
    edges = pd.concat(tables[num_training:], ignore_index=True)
    wide = training.pivot_table(
        index=["seed", *TRAINING_COLUMNS], columns="quantity", values="value"
    ).reset_index()
    wide = _with_excesses(wide)
    names = [name for name in wide.columns if name not in ("seed", *TRAINING_COLUMNS)]
    rows = _averages(wide, "training", TRAINING_COLUMNS, names)
    edges["refused"] = edges["refused"].astype(float)
    rows += _averages(edges, "edges", EDGE_COLUMNS, EDGE_QUANTITIES)
    return pd.DataFrame(rows).reindex(
        columns=[
            "part",
            *TRAINING_COLUMNS,
            *EDGE_COLUMNS,
            *("quantity", "mean", "sd", "se", "count"),
        ]
    )


def _with_excesses(wide: pd.DataFrame) -> pd.DataFrame:
    """Add how much larger than without noise every trace is."""
    clean = wide[wide["noise_sd"] == 0].drop(columns="noise_sd")
    joined = wide.merge(clean, on=["seed", "direction"], suffixes=("", "_clean"))
    for name in (*INFLATED, "trained_granger_cov"):
        joined[f"{name}_excess"] = joined[name] / joined[f"{name}_clean"] - 1
    for name in ("given_granger_cov", "drawn_granger_cov"):
        joined[f"{name}_excess"] = joined[name] / joined["trained_granger_cov_clean"]
    return joined.drop(columns=[name for name in joined.columns if name.endswith("_clean")])


def _averages(
    table: pd.DataFrame, part: str, by: list[str], quantities: Sequence[str]
) -> list[dict[str, Any]]:
    rows = []
    for values, group in grouped(table, by):
        own = dict(zip(by, values, strict=True))
        for name in quantities:
            x = np.asarray(group[name], dtype=np.float64)
            x = x[~np.isnan(x)]
            sd = float(x.std(ddof=1)) if len(x) > 1 else np.nan
            rows.append(
                {
                    "part": part,
                    **own,
                    "quantity": name,
                    "mean": float(x.mean()) if len(x) else np.nan,
                    "sd": sd,
                    "se": sd / np.sqrt(len(x)) if len(x) else np.nan,
                    "count": len(x),
                }
            )
    return rows


class Average(NamedTuple):
    """Mean, s.d. and standard error over so many data sets."""

    mean: float
    sd: float
    se: float
    size: int


def _by_quantity(table: pd.DataFrame) -> dict[str, Average]:
    names, means, sds, errors, sizes = (
        column(table, name).tolist() for name in ("quantity", "mean", "sd", "se", "count")
    )
    rows = zip(means, sds, errors, sizes, strict=True)
    return dict(zip(names, (Average(*row) for row in rows), strict=True))


def markdown(table: pd.DataFrame) -> str:
    """The training's table per direction, then the private edges'."""
    training = rows_where(table, table["part"] == "training")
    edges = rows_where(table, table["part"] == "edges")
    parts = [_training_table(training, way) for way in WAYS]
    parts += [
        "Mean ± s.d. over data sets; × is by how much a trace is multiplied, by the theory (Â21 at "
        "the end of training, the others in the steady state). Messages alone: the covariance of "
        "Â21 over draws of the noise for the same data, relative to tr Σ_A21 without noise; by the "
        "theory, and as drawn.",
        _edges_table(edges),
        "Size and power at 5 %, F1 after Benjamini and Hochberg; means over the data sets that "
        "could be tested, with standard errors; how many were refused. x: s.d. of the added noise "
        "in units of a state's own.",
    ]
    return "\n\n".join(parts)


def _training_table(table: pd.DataFrame, way: str) -> str:
    own = rows_where(table, table["direction"] == way)
    others = [words for name, words in INFLATED.items() if name != "granger_cov"]
    heads = ["tr Σ_A21", "×", "messages alone", "drawn", *(f"× tr {words}" for words in others)]
    heads += ["‖Â21 − A21‖", "‖Â21* − A21‖"]
    lines = [f"| noise {WAYS[way]}, σ | " + " | ".join(heads) + " |"]
    lines.append("|---" * (len(heads) + 1) + "|")
    for sd in np.unique(column(own, "noise_sd")):
        at = rows_where(own, own["noise_sd"] == sd)
        found = _by_quantity(at)
        cells = [_spread(found["trained_granger_cov"])]
        cells.append(_factor(found["trained_granger_cov_excess"].mean))
        alone = (found[f"{name}_granger_cov_excess"].mean for name in ("given", "drawn"))
        cells += [number(value) if value > SMALLEST**2 else "0" for value in alone]
        excesses = (found[f"{name}_excess"].mean for name in INFLATED if name != "granger_cov")
        cells += [_factor(value) for value in excesses]
        cells += [_spread(found["granger_error"]), _spread(found["limit_error"])]
        lines.append(f"| {sd:g} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _edges_table(table: pd.DataFrame) -> str:
    lines = ["| T, local models, test, neighbours | ε | x | size | power | F1 | refused |"]
    lines.append("|---" * 7 + "|")
    for values, group in grouped(table, EDGE_COLUMNS):
        num_steps, models, test, neighbours, epsilon = values
        found = _by_quantity(group)
        refused = found["refused"]
        cells = [_rate(found[name]) for name in ("edge_size", "edge_power", "f1")]
        lines.append(
            f"| {num_steps:g}, {models}, {test}, {neighbours} | {number(float(epsilon))} | "
            f"{number(found['added_noise'].mean)} | {' | '.join(cells)} | "
            f"{round(refused.mean * refused.size)} of {refused.size} |"
        )
    return "\n".join(lines)


def _spread(found: Average) -> str:
    return number(found.mean) + ("" if np.isnan(found.sd) else f" ± {number(found.sd)}")


def _factor(excess: float) -> str:
    """By how much a trace is multiplied."""
    if abs(excess) < SMALLEST:
        return "1"
    return f"1 + {number(excess)}" if abs(excess) < 0.01 else f"{1 + excess:.3g}"


def _rate(found: Average) -> str:
    if found.size == 0:
        return "-"
    return f"{found.mean:.3f}" + ("" if np.isnan(found.se) else f" ± {found.se:.3f}")


ITEM = Item("dp", TITLE, settings, collect, markdown, draw)
