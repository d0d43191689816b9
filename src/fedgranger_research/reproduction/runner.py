"""Compute one figure or table: settings that were computed before are read from the folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pandas as pd

from fedgranger._version import __version__
from fedgranger.disk import write_atomically, write_text
from fedgranger_research.parallel import completed

Report = Callable[[str, int, int], None]


class Setting(Protocol):
    """One piece of work whose outcome is kept."""

    @property
    def label(self) -> str:
        """Short name for files."""
        ...

    @property
    def work(self) -> int:
        """How long it takes, in some unit."""
        ...

    def key(self) -> dict[str, Any]:
        """Everything the outcome depends on."""
        ...

    def run(self, report: Report = ...) -> pd.DataFrame:
        """Do it."""
        ...


class Item(NamedTuple):
    """A figure or table of the paper.

    Attributes:
        name: what the command calls it.
        title: one line.
        settings: (quick) -> what has to be computed.
        collect: (tables of the settings, quick) -> the numbers behind the picture.
        markdown: numbers -> tables for people.
        draw: (folder, numbers) -> NAME.png and NAME.svg there, or None.
    """

    name: str
    title: str
    settings: Callable[..., list[Any]]
    collect: Callable[..., pd.DataFrame]
    markdown: Callable[[pd.DataFrame], str]
    draw: Callable[[Path, pd.DataFrame], None] | None = None


def reproduce(
    item: Item,
    folder: Path,
    *,
    quick: bool = False,
    jobs: int = 1,
    report: Report = lambda *_: None,
) -> pd.DataFrame:
    """Compute what is missing, write NAME.csv and NAME.md and return the numbers.

    Args:
        item: the figure or table.
        folder: where to; outcomes of single settings are kept in its subfolder `cache`, by
            settings and package version.
        quick: fewer settings and rounds, to see that everything works.
        jobs: processes.
        report: called with (what, done, total).
    """
    settings = item.settings(quick=quick)
    folder.mkdir(parents=True, exist_ok=True)
    total = sum(setting.work for setting in settings)
    done, tables = 0, []
    if jobs > 1:
        _run_missing(item.name, folder / "cache", settings, jobs, report)
    for setting in settings:
        start, work = done, setting.work

        def partly(_: str, now: int, of: int, start: int = start, work: int = work) -> None:
            report(item.name, start + work * now // max(of, 1), total)

        tables.append(_cached(folder / "cache", setting, partly))
        done += work
        report(item.name, done, total)
    table = item.collect(tables, quick=quick)
    write_atomically(folder / f"{item.name}.csv", lambda path: table.to_csv(path, index=False))
    text = _page(item, table, quick=quick)
    write_text(folder / f"{item.name}.md", text)
    return table


def _run_missing(name: str, folder: Path, settings: list[Any], jobs: int, report: Report) -> None:
    """Compute in several processes what is not in the folder."""
    missing = [setting for setting in settings if not _path(folder, setting).exists()]
    total = sum(setting.work for setting in settings)
    done = total - sum(setting.work for setting in missing)
    report(name, done, total)
    for work in completed(_run_one, ((folder, setting) for setting in missing), jobs):
        done += work
        report(name, done, total)


def _run_one(folder: Path, setting: Setting) -> int:
    _cached(folder, setting, lambda *_: None)
    return setting.work


def _path(folder: Path, setting: Setting) -> Path:
    identity = json.dumps([__version__, type(setting).__name__, setting.key()], sort_keys=True)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return folder / f"{setting.label}-{digest}.parquet"


def _cached(folder: Path, setting: Setting, report: Report) -> pd.DataFrame:
    path = _path(folder, setting)
    if not path.exists():
        table = setting.run(report)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, lambda temporary: table.to_parquet(temporary, index=False))
    return pd.read_parquet(path)


def _page(item: Item, table: pd.DataFrame, *, quick: bool) -> str:
    note = (
        "A quick run: few settings and rounds, to see that everything works. Its numbers decide "
        "nothing.\n\n"
        if quick
        else ""
    )
    picture = f"![{item.name}]({item.name}.png)\n\n" if item.draw else ""
    return (
        f"# {item.name}: {item.title}\n\n{picture}{note}{item.markdown(table)}\n\n"
        f"Numbers: `{item.name}.csv`. Made by fedgranger {__version__}. What the paper claims and "
        "what was found is in docs/reproducing.md.\n"
    )
