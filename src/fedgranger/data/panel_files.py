"""Read a `Panel` from files.

Rows are never dropped, filled or reordered without an error or a note. Cells are parsed by
pyarrow, whose decimal conversion is exact, in blocks that keep one file in memory at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from fedgranger.data.client_data import ClientData
from fedgranger.data.client_reading import read_client_table, read_clients, read_columns
from fedgranger.data.client_tables import is_table, load_table
from fedgranger.data.file_format import client_formats, table_suffix
from fedgranger.data.finishing import finish_panel, finished_panel
from fedgranger.data.named_sensors import LeftOut
from fedgranger.data.panel import Panel
from fedgranger.data.partitions import check_partition, propose_map, read_map, read_partition
from fedgranger.data.reading_options import PanelOptions, ReadingOptions, kept_options
from fedgranger.data.reading_remedies import Source, explained, refuse_long
from fedgranger.data.sensor_preparation import NO_TREATMENTS, plan_sensors, prepare
from fedgranger.data.text_structure import find_encoding, find_structure
from fedgranger.data.treatment import ClientTable, Treatment
from fedgranger.data.trial_reading import read_or_propose
from fedgranger.errors import ConfigError, DataError, ReadingError
from fedgranger.text import quoted_list

FILE_KINDS = ".csv, .tsv, .txt, .xlsx or .parquet"
DESCRIPTIONS = (".json", ".toml", ".md", ".html", ".py", ".yaml", ".yml", ".log", ".ini")
"""Endings of files that lie beside data and hold none."""


def read_panel(
    path: Path, options: PanelOptions, treatments: Mapping[str, Treatment] = NO_TREATMENTS
) -> Panel:
    """Read, align and check the clients; see `Panel.read`, and `SensorPlan` for treatments."""
    read = partial(read_once, path, treatments=treatments)
    panel = read_or_propose(read, options, client_names(path))
    return replace(panel, reading=kept_options(options, "files"))


def client_names(path: Path) -> list[str]:
    """The clients of a folder as options name them; none for one table."""
    return sorted(_client_files(path)[0]) if path.is_dir() else []


def read_once(
    path: Path, options: PanelOptions, treatments: Mapping[str, Treatment] = NO_TREATMENTS
) -> Panel:
    """Read with these options, without looking for others."""
    if not path.exists():
        raise DataError(f"'{path}' does not exist; pass a folder with one file per client")
    if options.partition is not None and options.map:
        raise ConfigError("partition and map both assign columns to clients; give one of them")
    if path.is_dir() and options.partition is None and not options.map:
        tables, notes = _read_folder(path, options)
    else:
        tables, notes = _read_one_table(path, options)
    return finished_panel(tables, notes, options, treatments)


def read_client(
    name: str, path: Path, options: ReadingOptions
) -> tuple[ClientData, np.ndarray, list[str]]:
    """Read one client's own table, in whose options sensors are named without the client.

    Returns:
        The data, their time axis (row numbers without a time column), and notes.
    """
    if not path.exists():
        raise DataError(f"client '{name}': there is no file '{path}'; check its name and folder")
    if not is_table(path):
        raise DataError(f"client '{name}': '{path}' is not a {FILE_KINDS} file")
    plain = ReadingOptions(**options.values_of(ReadingOptions))

    def read(tried: ReadingOptions) -> tuple[ClientData, np.ndarray, list[str]]:
        written = client_formats(tried, [name])[name]
        left_out = LeftOut(tried.leave_out)
        source = Source(f"client '{name}'", None, path, written)
        table, notes = read_client_table(source, name, tried, left_out)
        left_out.check()
        if table.time is not None and table.time.dtype.kind == "M" and not table.zone:
            notes.append(
                f"client '{name}': the time stamps name no time zone and are taken as UTC; "
                "if they are not, pass the zone of the clock, such as --time-zone Europe/Berlin"
            )
        table = table._replace(is_alone=True)
        plan = plan_sensors([table], tried)
        plan.notes.extend(notes)
        panel = finish_panel([prepare(table, plan)], plan)
        return panel.clients[0], panel.time, plan.notes

    return read_or_propose(read, plain, [name])


def _client_files(folder: Path) -> tuple[dict[str, Path], list[str]]:
    """The file of every client, and names of files that are left out.

    A .txt file may be a remark: it is a client's when its first lines are a table.
    """
    files: dict[str, Path] = {}
    others: list[str] = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or not path.is_file():
            continue
        suffix = table_suffix(path.name)
        if not suffix or (suffix in (".txt", ".txt.gz") and not _holds_table(path)):
            if path.suffix.lower() not in DESCRIPTIONS:
                others.append(path.name)
            continue
        name = path.name[: -len(suffix)]
        if name in files:
            raise DataError(
                f"client '{name}' has two files, {files[name].name} and {path.name}; "
                "remove one of them"
            )
        files[name] = path
    return files, others


def _holds_table(path: Path) -> bool:
    encoding = find_encoding(path) if path.stat().st_size else None
    return encoding is not None and find_structure(path, encoding) is not None


def _read_folder(folder: Path, options: PanelOptions) -> tuple[list[ClientTable], list[str]]:
    files, others = _client_files(folder)
    listed = quoted_list(others)
    if len(files) < 2:
        found = f"only client '{next(iter(files))}'" if files else f"no {FILE_KINDS} file"
        beside = f" beside {listed}, which cannot be read (save them as .xlsx or .csv)"
        raise DataError(
            f"folder '{folder}' holds {found}{beside if others else ''}; at least two clients are "
            "needed, one file for each"
        )
    notes = [f"folder '{folder.resolve().name}': files that are no tables were left out: {listed}"]
    notes = notes if others else []
    tables, more = read_clients(files, options)
    return tables, notes + more


def _read_one_table(path: Path, options: PanelOptions) -> tuple[list[ClientTable], list[str]]:
    if path.is_dir() or not is_table(path):
        raise DataError(
            f"'{path}' is not a {FILE_KINDS} file, and a partition splits one such table; pass "
            "the table, or leave the partition out for a folder"
        )
    where = f"table '{path.name}'"
    source = Source(where, None, path, client_formats(options, ["table"])["table"])
    assignment = None if options.partition is None else read_partition(Path(options.partition))
    is_long, left_out = bool(source.written.tag_column), LeftOut(options.leave_out)
    dropped: dict[str, set[str]] = {}
    with explained(source):
        table = load_table(where, path, source.written)
        names = [name for name in table.names if name != table.time_name]
        owners = None
        if not is_long:
            if assignment is None and not options.map:
                refuse_long(source, table)
            assignment = assignment or _mapped(path, options.map, names)
            check_partition(assignment, table.names, table.time_name)
            dropped = {one: left_out.of_client(one, own) for one, own in assignment.items()}
            owners = {
                name: f"client '{client}'"
                for client, columns in assignment.items()
                for name in (table.time_name, *columns)
                if name is not None and name not in dropped[client]
            }
        read, notes = read_columns(source, table, options, owners=owners)
    if is_long:
        names = list(read.sensors)
        assignment = assignment or _mapped(path, options.map, names)
        check_partition(assignment, names, None)
        dropped = {one: left_out.of_client(one, own) for one, own in assignment.items()}
    left_out.check()
    assignment = assignment or {}
    used = {name for columns in assignment.values() for name in columns}
    unused = [name for name in names if name not in used]
    if unused:
        listed = ", ".join(f"'{name}'" for name in unused)
        notes.append(f"{where}: not assigned to any client and left out: {listed}")
    place = {name: k for k, name in enumerate(read.sensors)}
    tables = []
    for client, columns in assignment.items():
        if dropped[client]:
            listed = quoted_list(sorted(dropped[client]))
            notes.append(f"client '{client}': left out as asked for: {listed}")
        kept = tuple(name for name in columns if name not in dropped[client])
        values = read.values[:, [place[name] for name in kept]]
        tables.append(read._replace(name=client, sensors=kept, values=values))
    return tables, notes


def _mapped(path: Path, tag_map: str, names: Sequence[str]) -> dict[str, list[str]]:
    if tag_map:
        return read_map(tag_map, names)
    message = (
        f"'{path}' is a single file; pass a partition file that maps clients to its columns "
        "(--partition), patterns of their names (--map 'P1_*=boiler,P2_*=turbine'), or a folder "
        "with one file per client"
    )
    proposed = propose_map(names)
    raise ReadingError(message, {"map": proposed}) if proposed else DataError(message)
