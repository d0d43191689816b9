"""`fedgranger watch`: a look at a running fit from another terminal."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from fedgranger.cli.console import friendly, out
from fedgranger.cli.tables import headline
from fedgranger.errors import ConfigError, RunError
from fedgranger.results import Result
from fedgranger.runtime import checkpoint, progress
from fedgranger.runtime.progress import RunProgress
from fedgranger.uncertainty.record import Propagation

__all__ = ["watch"]

STALE_SECONDS = 5.0
"""How long a run may be without news, its process gone, before it is called stopped."""
BARS = "▁▂▃▄▅▆▇█"
STOPPED = 1


class Look(NamedTuple):
    """State of a run folder: running, finished, interrupted, stale, or unsure for a moment."""

    state: str
    news: RunProgress | None = None


@friendly
def watch(
    run: Annotated[Path, typer.Argument(help="Run folder of a fit that is going on.")],
    once: Annotated[bool, typer.Option("--once", help="Look once and leave.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between looks.")] = 1.0,
) -> None:
    """Follow a running fit until it ends; Ctrl-C leaves it alone.

    Exit code 0 when the run is going on or finished, 1 when it stopped without a result.
    """
    if not 0.1 <= interval <= 3600:
        raise ConfigError(f"--interval is {interval:g}; it must lie between 0.1 and 3600 seconds")
    _check_folder(run)
    try:
        look, last = (_settled(run), None) if once else _follow(run, interval)
    except KeyboardInterrupt:
        out.print("left; the run goes on" if sys.stdout.isatty() else "left")
        return
    if look.state == "running":
        out.print(snapshot(run, look.news, time.time()))
    elif look.state == "finished":
        _show_result(run)
    else:
        out.print(_stopped(run, look, last, time.time()), soft_wrap=True)
        raise typer.Exit(STOPPED)


def _check_folder(run: Path) -> None:
    if (run / "startup").is_dir():
        raise RunError(
            f"{run}: is a party's kit, not a run; ask with 'fedgranger federation status'"
        )
    if not run.is_dir():
        raise RunError(
            f"{run}: no such run folder; 'fedgranger fit' makes it when it begins, a federated run "
            "only when it is done (see 'fedgranger federation status')"
        )
    if _look(run).state == "interrupted" and not (run / checkpoint.FILE_NAME).exists():
        raise RunError(
            f"{run}: no fit is going on there; start one with 'fedgranger fit', and ask after a "
            "federated run with 'fedgranger federation status'"
        )


def _look(run: Path) -> Look:
    """Decide from the files; what has just changed may still be unsure."""
    news = progress.read_progress(run)
    now = time.time()
    if news is not None:
        if progress.is_going_on(news):
            return Look("running", news)
        return Look("stale" if now - news.updated >= STALE_SECONDS else "unsure", news)
    if (run / "manifest.json").exists():
        return Look("finished")
    try:
        changed = run.stat().st_mtime  # the result is written after the last news
    except OSError:
        return Look("interrupted")
    has_checkpoint = (run / checkpoint.FILE_NAME).exists()
    return Look("unsure" if has_checkpoint and now - changed < STALE_SECONDS else "interrupted")


def _settled(run: Path) -> Look:
    """Look until it is clear whether the run goes on; at most `STALE_SECONDS`."""
    while (look := _look(run)).state == "unsure":
        time.sleep(0.1)
    return look


def _follow(run: Path, interval: float) -> tuple[Look, RunProgress | None]:
    """Show the run until it ends; return its end and the last news before."""
    is_live = out.is_terminal
    last, said = None, ""
    live = Live(console=out, auto_refresh=False, transient=True) if is_live else None
    with live or contextlib.nullcontext():
        while (look := _look(run)).state in ("running", "unsure"):
            last = look.news or last
            if live is not None:
                live.update(snapshot(run, look.news, time.time()), refresh=True)
            elif look.news is not None and (line := plain_line(look.news)) != said:
                typer.echo(f"{time.strftime('%H:%M:%S')} {line}")
                said = line
            time.sleep(interval if look.state == "running" else min(interval, 0.2))
    return look, last


def snapshot(run: Path, news: RunProgress | None, now: float) -> Table:
    """The state of a run as lines with a name in front."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("run", escape(str(run)))
    if news is None:
        grid.add_row("phase", "writing the result")
        return grid
    grid.add_row("phase", " ".join(_phase(news)))
    if news.done is not None and news.total and not _ends_early(news):
        bar = ProgressBar(total=news.total, completed=news.done, width=32)
        is_drawn = out.is_terminal and _has_blocks()
        grid.add_row("", bar if is_drawn else f"{100 * news.done / news.total:.0f} %")
    for name, values in _curves(news):
        known = [value for value in values if value is not None]
        if known:
            grid.add_row(name, f"{known[-1]:<9.4g} {sparkline(known) if _has_blocks() else ''}")
    if news.distances:
        end = f", ends at {news.tolerance:g}" if news.tolerance > 0 else ""
        grid.add_row("distance", f"{news.distances[-1][1]:.2g} to the limit (estimated){end}")
    grid.add_row("time", _times(news, now))
    silence = now - news.updated
    if silence >= STALE_SECONDS:
        grid.add_row("last news", f"{duration(silence)} ago")
    return grid


def plain_line(news: RunProgress) -> str:
    """The same in one line, for files and pipes."""
    parts = _phase(news)
    for name, values in _curves(news):
        if values and values[-1] is not None:
            parts.append(f"{name} {values[-1]:.4g}")
    if news.distances:
        parts.append(f"distance {news.distances[-1][1]:.2g}")
    return ", ".join([*(part.rstrip(",") for part in parts), _times(news, news.updated)])


def _curves(news: RunProgress) -> list[tuple[str, Sequence[float | None]]]:
    """What is followed over time; variances only when uncertainty is propagated."""
    return [
        ("local loss", news.local_losses),
        ("server loss", news.server_losses),
        ("variance", news.variances),
    ]


def _ends_early(news: RunProgress) -> bool:
    """Training may end long before its last allowed pass, so a share of it says nothing."""
    return news.phase == "training" and news.tolerance > 0


def _phase(news: RunProgress) -> list[str]:
    if news.phase == "training" and news.pass_index is not None:
        most = "of at most" if _ends_early(news) else "of"
        current = min(news.pass_index + 1, news.passes)
        return ["training,", f"pass {current} {most} {news.passes},", f"round {news.round}"]
    if news.done is not None and news.total:
        return [f"{news.phase},", f"{news.done} of {news.total}"]
    return [news.phase]


def _times(news: RunProgress, now: float) -> str:
    text = f"{duration(now - news.started)} elapsed"
    left = progress.seconds_left(news)
    if left is None:
        return text
    seconds, is_bound = left
    rest = max(seconds - (now - news.updated), 0.0)
    return f"{text}, {'at most' if is_bound else 'about'} {duration(rest)} of {news.phase} left"


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """A tiny chart, the newest value last; on a logarithmic scale when the range is wide."""
    places = [round(k * (len(values) - 1) / max(width - 1, 1)) for k in range(width)]
    shown = list(values) if len(values) <= width else [values[k] for k in places]
    if min(shown) > 0 and max(shown) > 10 * min(shown):
        shown = [math.log(value) for value in shown]
    low, high = min(shown), max(shown)
    if high == low:
        return BARS[0] * len(shown)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in shown)


def duration(seconds: float) -> str:
    """Seconds as 42 s, 3:07 min or 2:05:00 h."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d} min"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d} h"


def _stopped(run: Path, look: Look, last: RunProgress | None, now: float) -> str:
    news = look.news or last
    name = escape(str(run))
    where = "" if news is None else f" in {' '.join(_phase(news))}"
    if look.state == "stale" and look.news is not None:
        seen = progress.is_process_gone(look.news)
        process = (
            f"its process {look.news.process} is gone"
            if seen
            else f"its process runs on '{escape(look.news.host)}' and cannot be seen from here"
        )
        what = f"stale: no news for {duration(now - look.news.updated)}{where}, and {process}"
    else:
        what = f"interrupted{where}: not running and not finished"
    if (run / checkpoint.FILE_NAME).exists():
        remedy = "repeat the fit with --resume to continue from its checkpoint"
    elif (run / "manifest.json").exists():
        remedy = "the earlier run in the folder is untouched"
    else:
        remedy = "nothing was kept, so start the fit again with --overwrite"
    return f"{name}: {what}; {remedy}"


def _show_result(run: Path) -> None:
    result = Result.load(run)
    out.print(headline(result), soft_wrap=True)
    seconds = sum(
        value
        for key, value in result.manifest.get("timings", {}).items()
        if key.startswith("seconds_") and key not in ("seconds_per_round", "seconds_exchanges")
    )
    status = result.manifest["training"]["status"]
    out.print(f"finished in {duration(seconds)}; {escape(status)}", soft_wrap=True)
    if result.uncertainty is not None:
        values = _granger_traces(result.uncertainty)
        chart = f" {sparkline(values)}" if _has_blocks() else ""
        out.print(
            f"covariance of Â along training (sum of traces): {values[0]:.3g} -> "
            f"{values[-1]:.3g}{chart}",
            soft_wrap=True,
        )


def _granger_traces(found: Propagation) -> list[float]:
    """Sum of the traces of Σ_A over all pairs, by round."""
    totals: dict[int, float] = {}
    columns = (found.table[name] for name in ("quantity", "round", "total"))
    for quantity, index, total in zip(*columns, strict=True):
        if quantity == "granger_cov":
            totals[int(index)] = totals.get(int(index), 0.0) + float(total)
    return [totals[index] for index in sorted(totals)]


def _has_blocks() -> bool:
    return out.encoding.lower().startswith("utf")
