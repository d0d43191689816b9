"""The Python interface: `check` and `fit`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedgranger.client.params import LocalModel
from fedgranger.config import RunConfig
from fedgranger.data.frames import frames_panel, is_frame
from fedgranger.data.panel import Panel
from fedgranger.data.reading_options import PanelOptions
from fedgranger.errors import ConfigError, DataError
from fedgranger.option_fields import did_you_mean
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
    data: Panel | str | Path | Mapping[str, Any] | Any,
    config: RunConfig | None = None,
    *,
    clients: Mapping[str, Sequence[str]] | None = None,
    models: Mapping[str, LocalModel] | None = None,
    checkpoint_folder: str | Path | None = None,
    checkpoint_seconds: float = 10.0,
    resume: bool = False,
    **options: Any,
) -> Result:
    """Learn which client drives which, with all parties simulated in this process.

    Args:
        data: a folder or table (see `Panel.read`), a data frame per client, one wide frame, or a
            panel. Frames keep their names and are aligned by their time index or column.
        config: options of the run; the defaults suit data of a few thousand steps.
        clients: which columns of one wide frame are whose.
        models: local models that are known (A_mm, C, Q, R); the others are identified.
        checkpoint_folder: where an interrupted run leaves its state.
        checkpoint_seconds: how often it is written while training goes on.
        resume: continue from that folder; the result is the same bit for bit.
        options: options of the run instead of `config`, and of reading (`Panel.read`).

    Example:
        >>> import fedgranger as fg
        >>> panel, truth = fg.simulate(2, 500, edges=[("client1", "client2")], seed=1)
        >>> result = fg.fit(panel, state_dim=2)
        >>> result.edges(sort=True).loc[0, ["cause", "effect"]].tolist()
        ['client1', 'client2']
    """
    reading, running = _shared_out(options)
    if config is not None and running:
        raise ConfigError(
            f"option '{next(iter(running))}' is given beside a config; put it into the config, or "
            "leave the config out"
        )
    return fit_panel(
        as_panel(data, clients, reading),
        RunConfig.from_mapping(running) if config is None else config,
        models=models,
        checkpoint_folder=None if checkpoint_folder is None else Path(checkpoint_folder),
        checkpoint_seconds=checkpoint_seconds,
        resume=resume,
    )


def as_panel(
    data: Any, clients: Mapping[str, Sequence[str]] | None, reading: Mapping[str, Any]
) -> Panel:
    """The panel of any data that `fit` takes.

    Raises:
        DataError: the data are of no such kind, or options do not fit them.
    """
    if isinstance(data, Panel):
        if clients is not None or reading:
            word = "clients" if clients is not None else next(iter(reading))
            raise DataError(f"'{word}' is for data that are read; this is a panel already")
        return data
    if isinstance(data, str | Path):
        if clients is not None:
            raise DataError("clients= is for one wide frame; for a table use partition= or map=")
        return Panel.read(data, **reading)
    if not isinstance(data, Mapping) and not is_frame(data):
        raise DataError(
            f"a {type(data).__name__} was given; give a folder, a data frame per client "
            "({'boiler': frame, ...}), one wide frame, or a Panel"
        )
    return frames_panel(data, clients, PanelOptions.from_mapping(reading))


def _shared_out(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of reading, and of the run; NumPy's numbers as Python's."""
    plain = {k: v.item() if isinstance(v, np.generic) else v for k, v in options.items()}
    reading = {name: value for name, value in plain.items() if name in PanelOptions.names()}
    running = {name: value for name, value in plain.items() if name not in reading}
    known = (*RunConfig.names(), *PanelOptions.names())
    unknown = next((name for name in running if name not in known), None)
    if unknown is not None:
        raise ConfigError(f"unknown option '{unknown}'{did_you_mean(unknown, known)}")
    return reading, running
