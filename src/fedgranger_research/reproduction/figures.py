"""The figures of several regimes: which curves are drawn, and which facts are listed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fedgranger_research.reproduction.curves import draw_grid
from fedgranger_research.reproduction.levels import (
    ABOUT_LEVELS,
    Curve,
    Fact,
    sweep_table,
    with_single_run,
)
from fedgranger_research.reproduction.regimes import SWEEPS, Regime, stack_sweeps, sweeps
from fedgranger_research.reproduction.runner import Item


@dataclass(frozen=True)
class SweepFigure:
    """One figure.

    Attributes:
        name: what the command calls it.
        title: one line.
        rows: (what is swept, panels) per row of the picture.
        facts: more rows of the first table; priors do not enter them.
        client: keep this one's numbers only.
        dashed: what dashed lines are.
    """

    name: str
    title: str
    rows: tuple[tuple[str, tuple[Curve, ...]], ...]
    facts: tuple[Fact, ...] = ()
    client: str | None = None
    dashed: str = "part from the prior"

    @property
    def swept(self) -> tuple[str, ...]:
        """What is varied."""
        return tuple(dict.fromkeys(sweep for sweep, _ in self.rows))

    def settings(self, *, quick: bool = False) -> list[Regime]:
        """What has to be propagated."""
        return sweeps(self.swept, quick=quick)

    def collect(self, tables: list[pd.DataFrame], *, quick: bool = False) -> pd.DataFrame:
        """The numbers of the figure; `total` of an error is that of the mean."""
        curves = [curve for _, panels in self.rows for curve in panels]
        has_runs = any(curve.dashed == "single_run" for curve in curves)
        wanted = {found.quantity for found in (*curves, *self.facts)}
        wanted |= {"granger_cov"} if has_runs else set()
        table = stack_sweeps(self.swept, tables, tuple(wanted), quick=quick, client=self.client)
        return with_single_run(table) if has_runs else table

    def markdown(self, table: pd.DataFrame) -> str:
        """Where the curves begin and end, a table per sweep."""
        texts = []
        for k, name in enumerate(self.swept):
            curves = [curve for sweep, panels in self.rows if sweep == name for curve in panels]
            texts.append(sweep_table(table, name, curves, () if k else self.facts))
        return "\n\n".join([*texts, ABOUT_LEVELS])

    def draw(self, folder: Path, table: pd.DataFrame) -> None:
        """Write NAME.png and NAME.svg."""
        draw_grid(folder, self.name, table, self.rows, dashed=self.dashed)

    def item(self) -> Item:
        """Return it as the runner wants it."""
        return Item(self.name, self.title, self.settings, self.collect, self.markdown, self.draw)


BLOCKS = {"12": ("client1", "client2"), "21": ("client2", "client1")}
TIME_CONSTANTS = (
    Fact("time constant of Â2, rounds", "server_time_constant", "client2"),
    Fact("slowest time constant of (θ2, Â2), rounds", "time_constant", "client2"),
)


def _granger_trace(block: str) -> Curve:
    return Curve(f"tr Σ_A{block}", rf"tr $\Sigma_{{A_{{{block}}}}}$", "granger_cov", *BLOCKS[block])


def _theta_trace(k: int) -> Curve:
    return Curve(f"tr Σ_θ{k}", rf"tr $\Sigma_{{\theta_{k}}}$", "augmentation_cov", f"client{k}")


def _error(block: str) -> Curve:
    title = rf"$\Vert E\hat A_{{{block}}} - A_{{{block}}}\Vert_F$"
    label = f"‖E Â{block} − A{block}‖"
    return Curve(label, title, "granger_error", *BLOCKS[block], None, is_log=False)


def _errors_of_runs(block: str) -> tuple[Curve, Curve]:
    """To A, and to the learner's own limit Â*."""
    to_truth, to_limit = (
        Curve(
            f"error of Â{block} to {name}{block}{star}",
            rf"$\hat A_{{{block}}}$: error to ${letter}_{{{block}}}$",
            quantity,
            *BLOCKS[block],
            "single_run",
        )
        for name, star, letter, quantity in (
            ("A", "", "A", "granger_error"),
            ("Â", "*", r"\hat A^*", "granger_limit_error"),
        )
    )
    return to_truth, to_limit


def _facts_of_limits(blocks: Iterable[str]) -> tuple[Fact, ...]:
    return tuple(
        fact
        for block in blocks
        for fact in (
            Fact(f"‖Â{block}* − A{block}‖", "limit_error", *BLOCKS[block]),
            Fact(f"‖A{block}‖", "block_norm", *BLOCKS[block]),
        )
    )


def _three_sweeps(*panels: Curve) -> tuple[tuple[str, tuple[Curve, ...]], ...]:
    return tuple((sweep, panels) for sweep in SWEEPS)


ALEATORIC = SweepFigure(
    "aleatoric",
    "traces of Σ_A and Σ_θ and the error of Â for several Σ_y",
    (
        ("noise_var", (_granger_trace("12"), _granger_trace("21"), _theta_trace(1))),
        ("noise_var", (_theta_trace(2), _error("12"), _error("21"))),
    ),
    (*_facts_of_limits(["21"]), *TIME_CONSTANTS),
)
EPISTEMIC = SweepFigure(
    "epistemic",
    "traces of Σ_A21 and Σ_θ2 and the error of Â21 for several priors Σ_A⁰ and Σ_θ⁰",
    tuple(
        (sweep, (_granger_trace("21"), _theta_trace(2), _error("21")))
        for sweep in ("granger_prior_var", "augmentation_prior_var")
    ),
    TIME_CONSTANTS,
)
CROSS_COVARIANCES = SweepFigure(
    "cross-covariances",
    "cross-covariances Γ21, Λ2 and Ψ21 for several Σ_y, Σ_A⁰ and Σ_θ⁰",
    _three_sweeps(
        Curve("‖Γ21‖", r"$\Vert\Gamma_{21}\Vert_F$", "granger_state_cov", *BLOCKS["21"], None),
        Curve("‖Λ2‖", r"$\Vert\Lambda_2\Vert_F$", "augmentation_state_cov", "client2", "", None),
        Curve("‖Ψ21‖", r"$\Vert\Psi_{21}\Vert_F$", "granger_augmentation_cov", *BLOCKS["21"], None),
    ),
    client="client2",
)
COMMUNICATED = SweepFigure(
    "communicated",
    "covariances of the messages, Var(g) and Σ_h, for several Σ_y, Σ_A⁰ and Σ_θ⁰",
    _three_sweeps(
        Curve(
            "tr Var(g_2)", r"tr Var$(g_2)$, server to client", "gradient_cov", "client2", "", None
        ),
        Curve("tr Σ_h2", r"tr $\Sigma_{h_2}$, client to server", "state_cov", "client2", "", None),
    ),
    client="client2",
)
L2_ERROR = SweepFigure(
    "l2-error",
    "error of Â12 and Â21, to A and to the learner's own limit, for several Σ_y and Σ_A⁰",
    tuple(
        (sweep, (*_errors_of_runs("12"), *_errors_of_runs("21")))
        for sweep in ("noise_var", "granger_prior_var")
    ),
    _facts_of_limits(BLOCKS),
    dashed="one run (rms)",
)
SWEEP_FIGURES = (ALEATORIC, EPISTEMIC, CROSS_COVARIANCES, COMMUNICATED, L2_ERROR)
