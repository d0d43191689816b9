"""The Python interface: `check` and `fit`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedgranger.client.params import LocalModel
from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.results import Result
from fedgranger.runtime.data_check import DataCheck, check_data
from fedgranger.runtime.fitting import fit_panel


def check(data: str | Path | Panel, **options: Any) -> DataCheck:
    """Look at data before any fit: what is in them, what is odd, and what it takes to read them.

    Args:
        data: a folder, a table, or a panel.
        options: those of `Panel.read`.

    Example:
        >>> import fedgranger as fg
        >>> panel, _ = fg.simulate(2, 500, seed=1)
        >>> fg.check(panel).num_pairs
        499
    """
    return check_data(data, **options)


def fit(
    panel: Panel,
    config: RunConfig | None = None,
    *,
    models: Mapping[str, LocalModel] | None = None,
    checkpoint_folder: str | Path | None = None,
    checkpoint_seconds: float = 10.0,
    resume: bool = False,
) -> Result:
    """Learn which client drives which, with all parties simulated in this process.

    Args:
        panel: the clients' measurements.
        config: options; the defaults suit data of a few thousand steps.
        models: local models that are known (A_mm, C, Q, R); the others are identified.
        checkpoint_folder: where an interrupted run leaves its state.
        checkpoint_seconds: how often it is written while training goes on.
        resume: continue from that folder; the result is the same bit for bit.

    Example:
        >>> import fedgranger as fg
        >>> panel, truth = fg.simulate(2, 500, edges=[("client1", "client2")], seed=1)
        >>> result = fg.fit(panel, fg.RunConfig(state_dim=2))
        >>> result.edges(sort=True).loc[0, ["cause", "effect"]].tolist()
        ['client1', 'client2']
    """
    return fit_panel(
        panel,
        config or RunConfig(),
        models=models,
        checkpoint_folder=None if checkpoint_folder is None else Path(checkpoint_folder),
        checkpoint_seconds=checkpoint_seconds,
        resume=resume,
    )
