"""Read a `Panel` from files, and write one.

Rows are never dropped, filled or reordered without an error or a note. Cells are parsed by
pyarrow, whose decimal conversion is exact, in blocks that keep one file in memory at a time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as arrow_parquet

from fedgranger.data.align import is_same_axis
from fedgranger.data.client_reading import read_client_table, read_columns
from fedgranger.data.client_tables import is_table, load_table
from fedgranger.data.file_format import client_formats, table_suffix
from fedgranger.data.findings import quoted_list
from fedgranger.data.finishing import finish_panel
from fedgranger.data.left_out import LeftOut
from fedgranger.data.panel import ClientData, Panel, step_lengths
from fedgranger.data.partitions import check_partition, propose_map, read_map, read_partition
from fedgranger.data.reading_options import PanelOptions, ReadingOptions, kept_options
from fedgranger.data.reading_remedies import Source, explained, joined, refuse_long
from fedgranger.data.sensor_preparation import NO_TREATMENTS, plan_sensors, prepare
from fedgranger.data.text_structure import find_encoding, find_structure
from fedgranger.data.treatment import ClientTable, Treatment
from fedgranger.data.trial_reading import read_or_propose
from fedgranger.errors import ConfigError, DataError, ReadingError
from fedgranger.option_fields import check_choice
from fedgranger.text import counted

UNSAFE_NAME = re.compile(r'^$|^[.]|[\x00-\x1f/\\:*?"<>|]|[. ]$')
FILE_KINDS = ".csv, .tsv, .txt, .xlsx or .parquet"
DESCRIPTIONS = (".json", ".toml", ".md", ".html", ".py", ".yaml", ".yml", ".log", ".ini")
"""Endings of files that lie beside data and hold none."""


def read_panel(
    path: Path,
    partition: Path | None,
    options: ReadingOptions,
    treatments: Mapping[str, Treatment] = NO_TREATMENTS,
) -> Panel:
    """Read, align and check the clients; see `Panel.read`, and `SensorPlan` for treatments."""
    given = {name: getattr(options, name) for name in type(options).names()}
    chosen = {name: value for name, value in given.items() if name in PanelOptions.names()}
    if partition is not None:
        chosen["partition"] = str(partition)
    asked = PanelOptions(**chosen)
    read = partial(read_once, path, treatments=treatments)
    panel = read_or_propose(read, asked, client_names(path))
    return replace(panel, reading=kept_options(asked, "files"))


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


def finished_panel(
    tables: list[ClientTable],
    notes: list[str],
    options: ReadingOptions,
    treatments: Mapping[str, Treatment],
) -> Panel:
    """Treat sensors, align the clients and check them; empties the list of tables."""
    plan = plan_sensors(tables, options, treatments if _have_other_steps(tables) else {})
    plan.notes.extend(notes)
    found: list[DataError] = []
    for k in range(len(tables)):  # one by one, so that no client is in memory twice for long
        try:
            tables[k] = prepare(tables[k], plan)
        except ReadingError as error:  # one sentence, but what all clients need
            found.append(error)
    if found:
        raise joined(found)
    panel = finish_panel(tables, plan)
    num_gaps = int(panel.segment_starts.sum()) - 1
    if not num_gaps:
        return panel
    note = (
        f"the time axis has {counted(num_gaps, 'gap')}; no pair of time steps across a gap is used"
    )
    return replace(panel, notes=(*panel.notes, note))


def _have_other_steps(tables: Sequence[ClientTable]) -> bool:
    """Whether clients come at different steps, so that some of their rows will be left out.

    Else new data stay as measured, and whoever uses them treats them on the common time axis.
    """
    axes = [one.time for one in tables if one.time is not None and len(one.time) > 1]
    if len({axis.dtype.kind for axis in axes}) != 1:  # nothing to compare, or refused later
        return False
    steps = [float(np.median(step_lengths(axis))) for axis in axes]
    return max(steps) > 1.001 * min(steps)


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
    plain = ReadingOptions(**{key: getattr(options, key) for key in ReadingOptions.names()})

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
    formats, left_out = client_formats(options, sorted(files)), LeftOut(options.leave_out)
    tables: list[ClientTable] = []
    refused: list[DataError] = []
    for name in sorted(files):
        source = Source(f"client '{name}'", name, files[name], formats[name])
        try:
            client, more = read_client_table(source, name, options, left_out)
        except ReadingError as error:  # one sentence, but what all clients need
            refused.append(error)
            continue
        notes += more
        shared = tables[0].time if tables else None
        if client.time is not None and shared is not None and is_same_axis(client.time, shared):
            client = client._replace(time=shared)
        tables.append(client)
    if refused:
        raise joined(refused)
    left_out.check()
    return tables, notes


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
        read = read_columns(source, table, options, owners=owners)
    if is_long:
        names = list(read.names)
        assignment = assignment or _mapped(path, options.map, names)
        check_partition(assignment, names, None)
        dropped = {one: left_out.of_client(one, own) for one, own in assignment.items()}
    left_out.check()
    assignment = assignment or {}
    used = {name for columns in assignment.values() for name in columns}
    unused = [name for name in names if name not in used]
    notes = list(read.notes)
    if unused:
        listed = ", ".join(f"'{name}'" for name in unused)
        notes.append(f"{where}: not assigned to any client and left out: {listed}")
    place = {name: k for k, name in enumerate(read.names)}
    tables = []
    for client, columns in assignment.items():
        if dropped[client]:
            listed = quoted_list(sorted(dropped[client]))
            notes.append(f"client '{client}': left out as asked for: {listed}")
        kept = tuple(name for name in columns if name not in dropped[client])
        values = read.values[:, [place[name] for name in kept]]
        tables.append(ClientTable(client, kept, values, read.time, read.zone, units=read.units))
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


def write_panel(panel: Panel, folder: Path, format: str) -> list[Path]:
    """Write one file per client, `time` first; see `Panel.write`.

    Numbers are written with as many digits as it takes to read the same float64 again. A file
    appears under its name only when it is complete.
    """
    check_choice("format", format, ("csv", "parquet"))
    for client in panel:
        if UNSAFE_NAME.search(client.name) or len(client.name) > 100:
            raise DataError(
                f"client '{client.name}': the name cannot be a file name; rename the client with "
                "letters, digits, '-' and '_'"
            )
        if "time" in client.sensors:
            raise DataError(
                f"client '{client.name}': sensor 'time' would clash with the time column of the "
                "file; rename the sensor"
            )
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for client in panel:
        path = folder / f"{client.name}.{format}"
        draft = folder / f".{path.name}.{os.getpid()}.tmp"
        try:
            _write_client(client, panel.time, draft, format)
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        paths.append(path)
    return paths


def _write_client(client: ClientData, time: np.ndarray, path: Path, format: str) -> None:
    if format == "parquet":
        arrays = [pa.array(time)]
        arrays += [
            pa.array(values, mask=~observed)
            for values, observed in zip(client.values.T, client.observed.T, strict=True)
        ]
        arrow_parquet.write_table(pa.table(arrays, names=["time", *client.sensors]), path)
        return
    # pandas, not arrow: arrow writes -0.0 as -0 and 1.0 as 1, which are read back as integers.
    frame = pd.DataFrame(np.where(client.observed, client.values, np.nan), columns=client.sensors)
    frame.insert(0, "time", time)
    frame.to_csv(path, index=False, lineterminator="\n")
