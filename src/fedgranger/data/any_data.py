"""The panel of whatever `fit` takes: a panel, files, data frames; and of new data for a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedgranger.data.frames import frames_panel, is_frame
from fedgranger.data.panel import Panel
from fedgranger.data.panel_files import client_names, read_panel
from fedgranger.data.reading_options import AS_MEASURED, PanelOptions
from fedgranger.data.sensor_preparation import NO_TREATMENTS
from fedgranger.data.treatment import Treatment
from fedgranger.data.wide_frames import client_name
from fedgranger.errors import ConfigError, DataError


def as_panel(
    data: Any,
    clients: Mapping[str, Iterable[str]] | None,
    reading: Mapping[str, Any],
    treatments: Mapping[str, Treatment] = NO_TREATMENTS,
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
        return read_panel(Path(data), PanelOptions.from_mapping(reading), treatments)
    return frames_panel(data, clients, PanelOptions.from_mapping(reading), treatments)


def new_panel(
    data: Any,
    reading: Mapping[str, Any],
    kept: Mapping[str, Any],
    treatments: Mapping[str, Treatment],
) -> Panel:
    """New data for a run that exists, not judged, and treated like its training data.

    Args:
        data: whatever `fit` takes.
        reading: `clients` and options of reading, for data that are no panel.
        kept: those of the training data (`Panel.reading`): they hold where nothing else is given
            and data of the same kind can be read with them.
        treatments: of the training data, by client.
    """
    options = dict(reading)
    clients = options.pop("clients", None)
    if isinstance(data, Panel):
        return as_panel(data, clients, options)
    same = dict(kept)
    if same.pop("of", "") == ("files" if isinstance(data, str | Path) else "frames"):
        shares = same.pop("clients", None)
        try:
            return as_panel(data, clients or shares, AS_MEASURED | same | options, treatments)
        except (DataError, ConfigError) as error:
            with suppress(DataError, ConfigError):
                return as_panel(data, clients, AS_MEASURED | options, treatments)
            raise error from None
    return as_panel(data, clients, AS_MEASURED | options, treatments)


def clients_before_reading(data: Any) -> list[str]:
    """Clients of a folder's files, or of frames client by client; none where only reading tells."""
    is_named = isinstance(data, Mapping) and not is_frame(data)
    if is_named and all(is_frame(frame) for frame in data.values()):
        return [client_name(name) for name in data]
    return client_names(Path(data)) if isinstance(data, str | Path) else []
