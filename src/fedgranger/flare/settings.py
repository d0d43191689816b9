"""What lies in a party's kit: how a client reads its data, its records and logs; never sent."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from fedgranger.config import RunConfig
from fedgranger.data.reading_options import ReadingOptions
from fedgranger.errors import ConfigError, RunError
from fedgranger.federation.audit_log import AuditLog
from fedgranger.flare.private_files import write_private
from fedgranger.option_fields import text
from fedgranger.text import utc_stamp

FILE = "fedgranger.json"
ALARMS_FILE = "alarms.json"
EDGES_FILE, OWN_EDGES_FILE = "edges.csv", "own_edges.json"
KEPT_ALARMS = 1000
SIMULATED = "FEDGRANGER_SIMULATION"
"""Environment variable: a folder with the settings of every simulated client."""
SIMULATED_CONFIG = "simulation.json"
"""In that folder: the options of the run, whose seed and prior simulated clients use."""


AlarmText = dict[str, Any]
"""An alarm as `requests.read_alarm` gives it."""


@dataclass(frozen=True)
class ClientSettings(ReadingOptions):
    """How a client reads its data.

    Attributes:
        data: path of its CSV or Parquet file.
        interval: declared sampling interval (nanoseconds for time stamps), or none: the median.
        watch: path of the file with its new data, or "": nothing is watched.
    """

    subject = "data"
    data: str
    interval: float | None = None
    watch: str = ""
    models: str | None = text(
        None, "JSON file with the client's own local model; without it is identified"
    )


def write_settings(kit: Path, settings: ClientSettings) -> None:
    """Write them into the kit."""
    write_private(kit / "local" / FILE, settings_text(settings).encode())


def settings_text(settings: ClientSettings) -> str:
    """Settings as JSON."""
    return json.dumps(asdict(settings), indent=1) + "\n"


def read_settings(kit: Path, name: str) -> ClientSettings:
    """Read a client's settings, or say how to make them."""
    simulated = _simulated(kit)
    path = kit / "local" / FILE if simulated is None else simulated / f"{name}.json"
    try:
        values = json.loads(path.read_text("utf-8"))
        known = {field.name for field in fields(ClientSettings)}  # older kits have fewer
        return ClientSettings(**{name: values[name] for name in values if name in known})
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(
            f"{path}: no settings; start the client with 'fedgranger federation start KIT --data "
            "FILE'"
        ) from None


def _simulated(kit: Path) -> Path | None:
    """The folder of a simulation; a kit with certificates is never part of one."""
    folder = os.environ.get(SIMULATED)
    is_provisioned = (kit / "startup" / "rootCA.pem").exists() or (kit / "policy.toml").exists()
    return Path(folder) if folder and not is_provisioned else None


def read_simulation(kit: Path) -> RunConfig | None:
    """The options of a simulated run; None in a deployment, where no client receives a seed."""
    folder = _simulated(kit)
    if folder is None:
        return None
    values = json.loads((folder / SIMULATED_CONFIG).read_text("utf-8"))
    return RunConfig.from_mapping(values)


def simulated_records(folder: Path, name: str) -> Path:
    """Where a simulated client keeps its records."""
    return folder / "sites" / name


def records_folder(kit: Path, name: str) -> Path:
    """Where a client keeps its records: in its kit, or in the folder of a simulation."""
    simulated = _simulated(kit)
    return state_folder(kit) if simulated is None else simulated_records(simulated, name)


def kept_result(kit: Path, run: str) -> Path:
    """Where the server keeps what a run found, for a watch over new data later."""
    simulated = _simulated(kit)
    return (state_folder(kit) / run if simulated is None else simulated) / "result"


def audit_log(kit: Path) -> AuditLog:
    """The log of everything that left a site or was refused."""
    return AuditLog(state_folder(kit) / "audit.jsonl")


def site_log(folder: Path, sentence: str) -> None:
    """Inform the people at a site; a full disk does not hide it."""
    line = f"{utc_stamp()} {sentence}\n"
    try:
        with (folder / "log.txt").open("a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        sys.stderr.write(f"{line}(log.txt cannot be written: {error})\n")


def state_folder(kit: Path) -> Path:
    """Where a party keeps its records; survives jobs and restarts."""
    folder = kit / "fedgranger-state"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def write_edges(
    folder: Path,
    edges: Sequence[tuple[str, str, float, float, bool | None]],
    own: Mapping[str, Any],
) -> None:
    """Write what a run found into a site's files: all pairs, and its own edges in its sensors."""
    rows = ["cause,effect,p_value,strength,is_edge"]
    for *cells, is_edge in edges:
        words = ["" if cell != cell else str(cell) for cell in cells]
        rows.append(",".join([*words, {True: "yes", False: "no", None: ""}[is_edge]]))
    write_private(folder / EDGES_FILE, ("\n".join(rows) + "\n").encode())
    text = json.dumps(own, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_private(folder / OWN_EDGES_FILE, text.encode())


def read_edges_of_site(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What `write_edges` wrote: rows of all edges, and the site's own.

    Raises:
        RunError: no run has ended at this site, or its files cannot be read.
    """
    path, own = folder / EDGES_FILE, folder / OWN_EDGES_FILE
    if not path.exists():
        raise RunError(f"{folder}: no run has sent this site its edges yet; wait for one to end")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = [_pair(row) for row in csv.DictReader(file)]
        return rows, json.loads(own.read_text("utf-8")) if own.exists() else {}
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError(
            f"{folder}: {EDGES_FILE} or {OWN_EDGES_FILE} cannot be read; the next run writes them "
            "anew"
        ) from None


def _pair(row: Mapping[str, str]) -> dict[str, Any]:
    is_edge = {"yes": True, "no": False}.get(row.get("is_edge", ""))  # older versions have none
    numbers = {name: float(row[name]) if row[name] else None for name in ("p_value", "strength")}
    return {"cause": row["cause"], "effect": row["effect"], "is_edge": is_edge, **numbers}


def add_alarm(folder: Path, alarm: AlarmText) -> None:
    """Write an alarm into a site's file; the same one with a later ranking takes its place."""
    known = with_alarm(read_alarms(folder), alarm)[-KEPT_ALARMS:]
    text = json.dumps(known, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_private(folder / ALARMS_FILE, text.encode())


def with_alarm(known: list[AlarmText], alarm: AlarmText) -> list[AlarmText]:
    """All alarms of a site, each with the ranking that has seen most time steps."""
    before = [one for one in known if one["time"] == alarm["time"]]
    if not before:
        return [*known, alarm]
    if any(one["num_steps"] > alarm["num_steps"] for one in before):  # it was on its way for long
        return known
    return [alarm if one["time"] == alarm["time"] else one for one in known]


def read_alarms(folder: Path) -> list[AlarmText]:
    """All alarms that a site received; none when there is no file or it cannot be read."""
    try:
        found = json.loads((folder / ALARMS_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return []
    return found if isinstance(found, list) else []


def write_members(kit: Path, clients: Sequence[str]) -> None:
    """Tell the admin's kit who belongs to the federation."""
    text = json.dumps({"clients": list(clients)}) + "\n"
    write_private(kit / "local" / FILE, text.encode())


def read_members(kit: Path) -> tuple[str, ...]:
    """The clients of the federation."""
    path = kit / "local" / FILE
    try:
        return tuple(json.loads(path.read_text("utf-8"))["clients"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ConfigError(f"{path}: no list of clients; pass the folder 'admin'") from None
