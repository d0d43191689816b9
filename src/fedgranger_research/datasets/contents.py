"""What a loader hands over (`Source`) and what users get (`PreparedDataset`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fedgranger.data.panel import Panel
from fedgranger.errors import DataError

Partition = Mapping[str, tuple[str, ...]]
Report = Callable[[str, int, int], None]


@dataclass(frozen=True)
class DatasetInfo:
    """What `fedgranger datasets info` prints about a data set.

    Attributes:
        name: what users type.
        title: the name in full.
        address: where it is published.
        licence: what the publishers allow, as far as they say.
        citations: what to cite.
        files: the files expected below PATH, one sentence each.
        clients: the default partition in words.
        root_rule: how the root cause of an anomaly is told.
        caveats: what a reader of results must know.
        options: the options of `load` that this data set understands beside `partition`.
    """

    name: str
    title: str
    address: str
    licence: str
    citations: tuple[str, ...]
    files: tuple[str, ...]
    clients: str
    root_rule: str
    caveats: tuple[str, ...]
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """How to read a data set; each set understands some of these (`DatasetInfo.options`).

    Attributes:
        machine: SMD only: the machine to load.
        accept_changed: read files whose hash is not the published one, with a note.
        assign_p4: HAI only: give the simulator's P4_ST_* tags to P2 and P4_HT_* to P3.
        attacks: HAI only: csv file with the attacks' windows and processes.
        report: called with (what, done, total) after every file.
    """

    machine: str | None = None
    accept_changed: bool = False
    assign_p4: bool = False
    attacks: Path | None = None
    report: Report = lambda _what, _done, _total: None


class Recording(NamedTuple):
    """One uninterrupted file of a publisher, checked: finite numbers, increasing time.

    `labels` is 1 where the publisher marks an anomaly, 0 elsewhere; None for training data.
    """

    name: str
    split: str
    time: np.ndarray
    columns: tuple[str, ...]
    values: np.ndarray
    labels: np.ndarray | None = None


class Anomaly(NamedTuple):
    """One anomaly: steps `start` to `end` (both included) of a run, and the columns it began in."""

    instance_id: str
    split: str
    run: str
    start: int
    end: int
    root_columns: tuple[str, ...]
    confidence: str
    description: str


class Source(NamedTuple):
    """All that a loader read.

    `train` holds the normal recordings in time order, `runs` the others. `primary_rule` is
    `"share"` when the primary root is the client with the largest share of root columns, or
    `"single"` when there is one only for anomalies with a single root.
    """

    version: str
    train: list[Recording]
    runs: list[Recording]
    anomalies: list[Anomaly]
    partition: dict[str, tuple[str, ...]]
    hashes: dict[str, str]
    notes: list[str]
    primary_rule: str = "single"
    machine: str | None = None


@dataclass(frozen=True, eq=False)
class Run:
    """A recording with anomalies, cut into clients.

    Attributes:
        name: the publisher's name of it (`d04_te`, `machine-1-6`, `test1`).
        split: `test`, or what else the publisher calls it (`train_faulty`, `train_attacks`).
        panel: the clients' measurements.
        labels: int8 per time step, 1 = anomalous.
    """

    name: str
    split: str
    panel: Panel
    labels: np.ndarray


@dataclass(frozen=True, eq=False)
class PreparedDataset:
    """A public data set cut into clients, with its anomalies.

    Attributes:
        name: `tep`, `smd`, `hai` or `batadal`.
        train: normal operation; the only data that means, scales and models may be fitted to.
        runs: recordings with anomalies, never joined to one series.
        labels: one row per time step of every run: split, run, step, time, label.
        instances: one row per anomaly: instance_id, split, run, start, end (steps of the run,
            both included), start_time, end_time, root_clients (joined by ";"), primary,
            confidence, is_single_root, is_primary_tie, root_columns, description.
        partition: client -> columns that were kept.
        facts: version, source, licence, citation, hashes, counts, columns that were dropped.
    """

    name: str
    train: Panel
    runs: tuple[Run, ...]
    labels: pd.DataFrame
    instances: pd.DataFrame
    partition: Partition
    facts: dict[str, Any]

    @property
    def test(self) -> tuple[Run, ...]:
        """The runs of the split `test`."""
        return self.split("test")

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits beside `train`, in the order of the runs."""
        return tuple(dict.fromkeys(run.split for run in self.runs))

    def split(self, name: str) -> tuple[Run, ...]:
        """Return the runs of a split."""
        return tuple(run for run in self.runs if run.split == name)

    def run(self, name: str, split: str | None = None) -> Run:
        """Return the run of that name."""
        for run in self.runs:
            if run.name == name and split in (None, run.split):
                return run
        known = ", ".join(run.name for run in self.runs) or "none"
        raise DataError(f"data set '{self.name}' has no run '{name}'; it has {known}")
