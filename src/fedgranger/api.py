"""The Python interface: `check` and `fit`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from fedgranger.client.params import LocalModel
from fedgranger.config import RunConfig
from fedgranger.data.any_data import as_panel
from fedgranger.data.panel import Panel
from fedgranger.data.reading_options import PanelOptions
from fedgranger.data.reading_progress import followed
from fedgranger.errors import ConfigError
from fedgranger.fit_keywords import FitKeywords, ReadingKeywords
from fedgranger.option_fields import unknown_key
from fedgranger.results import Result
from fedgranger.runtime.bars import patient_bars
from fedgranger.runtime.check_result import DataCheck
from fedgranger.runtime.data_check import check_data
from fedgranger.runtime.fitting import fit_panel
from fedgranger.text import kind_of
from fedgranger.unused_options import refuse_unused


def check(
    data: Panel | str | Path | Mapping[str, Any] | Any,
    *,
    clients: Mapping[str, Iterable[str]] | None = None,
    **options: Unpack[ReadingKeywords],
) -> DataCheck:
    """Look at data before any fit: what is in them, what is odd, and what it takes to read them.

    Args:
        data: whatever `fit` takes.
        clients: which columns of one wide frame are whose; not needed where they have two levels,
            client and sensor.
        options: those of `Panel.read`.

    Example:
        >>> import fedgranger as fg
        >>> panel, _ = fg.simulate(2, 500, seed=1)
        >>> fg.check(panel).num_pairs
        499
    """
    if isinstance(data, Panel) or (isinstance(data, str | Path) and clients is not None):
        data = as_panel(data, clients, options)  # refuses options that are for other data
        return check_data(data)
    return check_data(data, clients, **options)


def fit(
    data: Panel | str | Path | Mapping[str, Any] | Any,
    config: RunConfig | None = None,
    *,
    clients: Mapping[str, Iterable[str]] | None = None,
    models: Mapping[str, LocalModel] | None = None,
    checkpoint_folder: str | Path | None = None,
    checkpoint_seconds: float = 10.0,
    resume: bool = False,
    progress: bool = True,
    **options: Unpack[FitKeywords],
) -> Result:
    """Learn which client drives which, with all parties simulated in this process.

    Args:
        data: a folder or table (see `Panel.read`), a data frame per client, one wide frame, or a
            panel. Frames keep their names and are aligned by their time index or column.
        config: options of the run; the defaults suit data of a few thousand steps.
        clients: which columns of one wide frame are whose; not needed where they have two levels,
            client and sensor.
        models: local models that are known (A_mm, C, Q, R); the others are identified.
        checkpoint_folder: where an interrupted run leaves its state.
        checkpoint_seconds: how often it is written while training goes on.
        resume: continue from that folder; the result is the same bit for bit.
        progress: show a bar with the time left when it takes longer than two seconds, in a
            terminal or a notebook.
        options: options of the run instead of `config`, and of reading (`Panel.read`); all are in
            docs/options.md.

    Example:
        >>> import fedgranger as fg
        >>> panel, truth = fg.simulate(2, 500, edges=[("client1", "client2")], seed=1)
        >>> result = fg.fit(panel, state_dim=2)
        >>> result.edges(sort=True).loc[0, ["cause", "effect"]].tolist()
        ['client1', 'client2']
    """
    reading, running = _shared_out(options)
    if config is not None and not isinstance(config, RunConfig):
        raise ConfigError(
            f"config is {kind_of(config)}; give options as keywords (fit(data, **options)) "
            "or a RunConfig"
        )
    if config is not None and running:
        raise ConfigError(
            f"option '{next(iter(running))}' is given beside a config; put it into the config, or "
            "leave the config out"
        )
    config = refuse_unused(RunConfig.from_mapping(running) if config is None else config)
    with patient_bars(is_wanted=progress) as report:
        with followed(report, Path(data) if isinstance(data, str | Path) else None):
            panel = as_panel(data, clients, reading)
        return fit_panel(
            panel,
            config,
            models=models,
            checkpoint_folder=None if checkpoint_folder is None else Path(checkpoint_folder),
            checkpoint_seconds=checkpoint_seconds,
            resume=resume,
            report=report,
        )


def _shared_out(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of reading, and of the run; NumPy's numbers as Python's."""
    plain = {
        k: v.item() if isinstance(v, np.generic) and not isinstance(v, np.timedelta64) else v
        for k, v in options.items()
    }
    of_reading = PanelOptions.known_names()
    reading = {name: value for name, value in plain.items() if name in of_reading}
    running = {name: value for name, value in plain.items() if name not in reading}
    known = (*RunConfig.names(), *PanelOptions.names())
    unknown = next((name for name in running if name not in known), None)
    if unknown is not None:
        raise ConfigError(unknown_key(unknown, known))
    return reading, running
