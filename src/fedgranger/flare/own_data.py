"""A client's own files: its data, new data to watch, and the local model that it declares."""

from __future__ import annotations

from pathlib import Path

from fedgranger.client.params import LocalModel, check_model, read_models
from fedgranger.data.client_data import ClientData
from fedgranger.data.panel_files import read_client
from fedgranger.data.reading_options import as_measured
from fedgranger.data.time_axis import LocalSeries
from fedgranger.errors import ConfigError
from fedgranger.federation.policy import SitePolicy
from fedgranger.flare.settings import ClientSettings


def read_series(
    name: str, settings: ClientSettings, policy: SitePolicy, *, is_new: bool = False
) -> tuple[LocalSeries, list[str]]:
    """Read a client's data within the period that its policy allows, and notes on them.

    New data are read as measured: what is normal for the client says how they are treated.
    """
    path, options = (settings.watch, as_measured(settings)) if is_new else (settings.data, settings)
    data, times, notes = read_client(name, Path(path), options)
    model = None if is_new else _own_model(name, settings, data)
    return policy.within(LocalSeries(data, times, settings.interval, model)), notes


def _own_model(name: str, settings: ClientSettings, data: ClientData) -> LocalModel | None:
    """The local model that the site declares; None: it is identified."""
    if settings.models is None:
        return None
    models = read_models(Path(settings.models))
    if name not in models:
        raise ConfigError(f"{settings.models}: has no model of client '{name}'; add one")
    check_model(name, models[name], data.num_sensors)
    return models[name]
