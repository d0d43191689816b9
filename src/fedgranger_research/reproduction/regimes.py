r"""One propagation under given noise and priors, as a table.

A regime sets \(\Sigma_y\) (aleatoric), \(\Sigma_A^0\) and \(\Sigma_\theta^0\) (epistemic), all
multiples of the identity, and everything else of the run. The three sweeps of the paper change
one of them and leave the others at their base value; figures that show the same sweep share its
propagations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import numpy as np
import pandas as pd

from fedgranger.client.params import known_models
from fedgranger.config import RunConfig
from fedgranger.data.truth import Truth
from fedgranger.runtime.propagation import propagate
from fedgranger.runtime.setup import Setup, set_up
from fedgranger_research.reproduction.limits import error_rows, row_limits
from fedgranger_research.reproduction.system import STATE_DIM, mean_panel, paired_system

SWEEPS: dict[str, tuple[float, ...]] = {
    "noise_var": (1e-3, 1e-2, 1e-1, 1.0, 10.0),
    "granger_prior_var": (1e-6, 1e-4, 1e-2, 1.0),
    "augmentation_prior_var": (1e-6, 1e-4, 1e-2, 1.0),
}
"""Σ_y, Σ_A⁰ and Σ_θ⁰: variances per sensor and per entry. A sensor's signal has about 3.5."""

STEP_SIZES = (2e-4, 2e-4, 1e-3)
"""η1, η2, γ of the sweeps: stable for every noise above, the prior's decay fills the picture."""


@dataclass(frozen=True)
class Regime:
    """One setting.

    Attributes:
        num_clients: M.
        sensor_dim: d of every client.
        noise_var: Σ_y per sensor.
        granger_prior_var: Σ_A⁰ per entry.
        augmentation_prior_var: Σ_θ⁰ per entry.
        num_rounds: training steps.
        num_checkpoints: how often the quantities are recorded after the start.
        step_sizes: η1, η2, γ, or None for automatic ones.
        step_safety: of automatic step sizes.
        level: "joint" or "blockwise".
        seed: of observation matrices and process noise.
    """

    num_clients: int = 2
    sensor_dim: int = 8
    noise_var: float = 0.1
    granger_prior_var: float = 1e-2
    augmentation_prior_var: float = 1e-2
    num_rounds: int = 5001
    num_checkpoints: int = 100
    step_sizes: tuple[float, float, float] | None = STEP_SIZES
    step_safety: float = 0.3
    level: str = "joint"
    seed: int = 0

    @property
    def label(self) -> str:
        """Short name for files."""
        return f"M{self.num_clients}-d{self.sensor_dim}"

    @property
    def work(self) -> int:
        """How long it takes, in some unit: rounds, more of them where matrices are large."""
        size = self.sensor_dim + STATE_DIM * (self.num_clients - 1)
        return int(self.num_rounds * self.num_clients * (1 + (size / 20) ** 2))

    def key(self) -> dict[str, Any]:
        """Everything the outcome depends on."""
        return asdict(self)

    def run(self, report: Callable[[str, int, int], None] = lambda *_: None) -> pd.DataFrame:
        r"""Propagate and tabulate.

        Returns:
            The columns of `Propagation.table`. Besides its quantities: `granger_error`
            \(\|E\hat A_{mn} - A_{mn}\|_F\), `granger_limit_error`
            \(\|E\hat A_{mn} - \hat A^*_{mn}\|_F\) and, at the last round only, `limit_error`
            \(\|\hat A^*_{mn} - A_{mn}\|_F\), `block_norm` \(\|A_{mn}\|_F\), `time_constant` and
            `server_time_constant`.
        """
        with jax.enable_x64(True):
            setup, config, noise, truth = prepare_regime(self)
            found = propagate(
                setup,
                config,
                noise,
                level=self.level,
                num_checkpoints=self.num_checkpoints,
                report=report,
            )
            limits = row_limits(setup, config, noise)
        more = pd.DataFrame(error_rows(found, limits, truth.block), columns=found.table.columns)
        return pd.concat([found.table, more], ignore_index=True)


def prepare_regime(regime: Regime) -> tuple[Setup, RunConfig, dict[str, np.ndarray], Truth]:
    """Everything that `propagate` needs, and the truth."""
    system = paired_system(regime.num_clients, regime.sensor_dim, regime.noise_var, regime.seed)
    panel, silent = mean_panel(system, regime.num_rounds + 1, regime.seed)
    local, feedback, server = regime.step_sizes or ("auto", "auto", "auto")
    config = RunConfig(
        local_step_size=local,
        feedback_step_size=feedback,
        server_step_size=server,
        step_safety=regime.step_safety,
        augmentation_prior_scale=float(np.sqrt(regime.augmentation_prior_var)),
        granger_prior_scale=float(np.sqrt(regime.granger_prior_var)),
    )
    noise = {name: np.full(regime.sensor_dim, regime.noise_var) for name in system.clients}
    return set_up(panel, config, known_models(silent)), config, noise, silent


def sweep(name: str, *, quick: bool = False) -> list[Regime]:
    """One regime per value; `quick` keeps the extremes and trains for a short while."""
    values = SWEEPS[name]
    base = Regime(num_rounds=201, num_checkpoints=8) if quick else Regime()
    return [replace(base, **{name: value}) for value in (values[::3] if quick else values)]


def sweeps(names: tuple[str, ...], *, quick: bool = False) -> list[Regime]:
    """The regimes of several sweeps, one after the other."""
    return [regime for name in names for regime in sweep(name, quick=quick)]


def stack_sweeps(
    names: tuple[str, ...],
    tables: list[pd.DataFrame],
    quantities: tuple[str, ...],
    *,
    quick: bool = False,
    client: str | None = None,
) -> pd.DataFrame:
    """Join the tables of `sweeps(names)`, in that order, with what was swept in front.

    Args:
        names: what was swept.
        tables: one per setting.
        quantities: which to keep.
        quick: the short sweeps.
        client: keep this one only.
    """
    swept = [(name, regime) for name in names for regime in sweep(name, quick=quick)]
    parts = []
    for (name, regime), table in zip(swept, tables, strict=True):
        wanted = table["quantity"].isin(quantities)
        chosen = table[wanted if client is None else wanted & (table["client"] == client)].copy()
        chosen.insert(0, "sweep", name)
        chosen.insert(1, "value", float(getattr(regime, name)))
        parts.append(chosen)
    return pd.concat(parts, ignore_index=True)
