"""The public data sets by name: what they are, and how to load one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from fedgranger.data.partitions import read_partition
from fedgranger.errors import ConfigError
from fedgranger.text import did_you_mean
from fedgranger_research.datasets import batadal, hai, smd, tep
from fedgranger_research.datasets.assemble import assemble
from fedgranger_research.datasets.contents import (
    DatasetInfo,
    Options,
    PreparedDataset,
    Report,
    Source,
)


class _Entry(NamedTuple):
    info: DatasetInfo
    read: Callable[[Path, Options], Source]


_ENTRIES = {
    entry.info.name: entry
    for entry in (
        _Entry(hai.INFO, hai.read),
        _Entry(tep.INFO, tep.read),
        _Entry(smd.INFO, smd.read),
        _Entry(batadal.INFO, batadal.read),
    )
}
NAMES = tuple(_ENTRIES)


def describe(name: str) -> DatasetInfo:
    """Return what is known about a data set.

    Raises:
        ConfigError: the name is unknown.
    """
    return _entry(name).info


def load(
    name: str,
    path: str | Path,
    *,
    partition: Mapping[str, Sequence[str]] | str | Path | None = None,
    report: Report | None = None,
    **options: Any,
) -> PreparedDataset:
    """Read a data set from the publisher's files and cut it into clients.

    Args:
        name: one of `NAMES`.
        path: the folder with the publisher's files.
        partition: client -> columns, a JSON or TOML file with that, or None for ours.
        report: called with (what, done, total) after every file.
        options: fields of `Options` that the data set understands, such as `machine`.

    Raises:
        DataError: a file is absent or not the published one; says what was found and needed.
        ConfigError: an unknown name or option.
    """
    entry = _entry(name)
    known = [field.name for field in fields(Options) if field.name != "report"]
    for key, value in options.items():
        if key not in known:
            raise ConfigError(f"unknown option '{key}'{did_you_mean(key, known)}")
        if key not in entry.info.options and value not in (None, False):
            allowed = ", ".join(("partition", *entry.info.options))
            raise ConfigError(f"{name} has no option '{key}'; it understands {allowed}")
    if options.get("attacks") is not None:
        options["attacks"] = Path(options["attacks"])
    if isinstance(partition, str | Path):
        partition = read_partition(Path(partition))
    if report is not None:
        options["report"] = report
    source = entry.read(Path(path), Options(**options))
    return assemble(entry.info, source, partition)


def iter_machines(
    path: str | Path,
    *,
    machines: Sequence[str] | None = None,
    partition: Mapping[str, Sequence[str]] | str | Path | None = None,
    accept_changed: bool = False,
) -> Iterator[PreparedDataset]:
    """Load the machines of SMD one after another, so that only one is in memory."""
    for machine in smd.machines(Path(path)) if machines is None else machines:
        yield load("smd", path, partition=partition, machine=machine, accept_changed=accept_changed)


def _entry(name: str) -> _Entry:
    if name not in _ENTRIES:
        raise ConfigError(
            f"there is no data set '{name}'{did_you_mean(name, NAMES)}; known are "
            f"{', '.join(NAMES)}"
        )
    return _ENTRIES[name]
