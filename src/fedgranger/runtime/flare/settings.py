"""A client's own settings: in its kit, never sent."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from fedgranger.errors import ConfigError

__all__ = [
    "SIMULATED",
    "ClientSettings",
    "read_members",
    "read_settings",
    "settings_text",
    "state_folder",
    "write_members",
    "write_settings",
]

FILE = "fedgranger.json"
SIMULATED = "FEDGRANGER_SIMULATION"
"""Environment variable: a folder with the settings of every simulated client."""


@dataclass(frozen=True)
class ClientSettings:
    """How a client reads its data.

    Attributes:
        data: path of its CSV or Parquet file.
        time_column: name of the time column, "auto" or "none".
        interval: declared sampling interval (nanoseconds for time stamps), or none: the median.
        missing: "error", or "mask" to treat empty cells as missing samples.
        constant: "error", or "drop" to leave out sensors that never change.
    """

    data: str
    time_column: str = "auto"
    interval: float | None = None
    missing: str = "error"
    constant: str = "error"


def write_settings(kit: Path, settings: ClientSettings) -> None:
    """Write them into the kit, readable by its owner only."""
    path = kit / "local" / FILE
    path.write_text(settings_text(settings), "utf-8")
    path.chmod(0o600)


def settings_text(settings: ClientSettings) -> str:
    """Settings as JSON."""
    return json.dumps(asdict(settings), indent=1) + "\n"


def read_settings(kit: Path, name: str) -> ClientSettings:
    """Read a client's settings.

    Raises:
        ConfigError: there are none, or they cannot be read.
    """
    simulated = os.environ.get(SIMULATED)
    path = Path(simulated) / f"{name}.json" if simulated else kit / "local" / FILE
    try:
        values = json.loads(path.read_text("utf-8"))
        return ClientSettings(
            **{field.name: values[field.name] for field in fields(ClientSettings)}
        )
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{path}: no settings; start the client with 'fedgranger federation start KIT --data "
            "FILE'"
        ) from None


def state_folder(kit: Path) -> Path:
    """Where a party keeps its records; survives jobs and restarts."""
    folder = kit / "fedgranger-state"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def write_members(kit: Path, clients: Sequence[str]) -> None:
    """Tell the admin's kit who belongs to the federation."""
    path = kit / "local" / FILE
    path.parent.mkdir(exist_ok=True, mode=0o700)
    path.write_text(json.dumps({"clients": list(clients)}) + "\n", "utf-8")


def read_members(kit: Path) -> tuple[str, ...]:
    """The clients of the federation."""
    path = kit / "local" / FILE
    try:
        return tuple(json.loads(path.read_text("utf-8"))["clients"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{path}: no list of clients; pass the folder 'admin'") from None
