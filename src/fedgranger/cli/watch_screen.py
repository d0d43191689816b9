"""What `fedgranger watch` shows of a running fit."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from fedgranger.cli.console import out, print_json, print_line
from fedgranger.cli.tables import headline
from fedgranger.errors import RunError
from fedgranger.results import Result
from fedgranger.run_folder import CHECKPOINT, MANIFEST
from fedgranger.runtime.checkpoint import refuse_former
from fedgranger.runtime.progress import SILENT_SECONDS, is_going_on, read_log
from fedgranger.text import elapsed

BARS = "▁▂▃▄▅▆▇█"
STOPPED = 1
CURVES = {"local loss": "local_loss", "server loss": "server_loss", "variance": "variance"}
PARTS = ("seconds_per_round", "seconds_exchanges")
"""Times that others hold."""
Log = list[dict[str, Any]]


def show_run(run: Path, interval: float, *, once: bool) -> None:
    """Follow a run, or look once; then say how it ended."""
    try:
        log = read_log(run) if once else _follow(run, interval)
    except KeyboardInterrupt:
        out.print("left; the run goes on" if sys.stdout.isatty() else "left")
        return
    state = _state(run, log)
    if state == "running":
        out.print(snapshot(run, log, time.time()))
    elif state == "finished":
        _show_result(run)
    else:
        print_line(_stopped(run, log))
        raise typer.Exit(STOPPED)


def show_once(run: Path) -> None:
    """The state of a run and the last line of its log, as JSON."""
    log = read_log(run)
    state, left = _state(run, log), seconds_left(log) if log else None
    facts = {"run": run, "state": state, "last": log[-1] if log else None}
    sentence = headline(Result.load(run)) if state == "finished" else None
    print_json({**facts, "seconds_left": left[0] if left else None, "headline": sentence})
    if state == "stopped":
        raise typer.Exit(STOPPED)


def check_folder(run: Path) -> None:
    """Refuse a folder in which no fit is or was."""
    if (run / "startup").is_dir():
        raise RunError(
            f"{run}: is a party's kit, not a run; ask with 'fedgranger federation status'"
        )
    if not run.is_dir():
        raise RunError(
            f"{run}: no such run folder; 'fedgranger fit' makes it when it begins, a federated run "
            "only when it is done (see 'fedgranger federation status')"
        )
    if not (run / MANIFEST).exists() and not is_going_on(read_log(run)):
        refuse_former(run)
    has_files = any((run / name).exists() for name in (MANIFEST, CHECKPOINT))
    if not has_files and not read_log(run):
        raise RunError(
            f"{run}: no fit is going on there; start one with 'fedgranger fit', and ask after a "
            "federated run with 'fedgranger federation status'"
        )


def _state(run: Path, log: Log) -> str:
    """Running (the result may be about to be written), finished or stopped."""
    is_done = bool(log) and log[-1].get("end") == "done"
    with contextlib.suppress(OSError):
        written = (run / MANIFEST).stat().st_mtime
        if not log or (is_done and written > log[0]["time"]):
            return "finished"
    is_writing = is_done and time.time() - log[-1]["time"] < SILENT_SECONDS
    return "running" if is_going_on(log) or is_writing else "stopped"


def _follow(run: Path, interval: float) -> Log:
    """Show the run until it ends; return its log."""
    last_line = ""
    live = Live(console=out, auto_refresh=False, transient=True) if out.is_terminal else None
    with live or contextlib.nullcontext():
        while _state(run, log := read_log(run)) == "running":
            if live is not None:
                live.update(snapshot(run, log, time.time()), refresh=True)
            elif (line := plain_line(log)) != last_line:
                typer.echo(f"{time.strftime('%H:%M:%S')} {line}")
                last_line = line
            time.sleep(interval)
    return log


def snapshot(run: Path, log: Log, now: float) -> Table:
    """The state of a run as lines with a name in front."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("run", escape(str(run)))
    last = _last(log)
    for name, text in _rows(log, now).items():
        key = CURVES.get(name, "")
        values = [line[key] for line in log if key in line]
        grid.add_row(name, f"{text:<9} {sparkline(values)}" if values and _has_blocks() else text)
        if name == "phase" and last.get("total") and not _ends_early(log):
            bar = ProgressBar(total=last["total"], completed=last["done"], width=32)
            is_drawn = out.is_terminal and _has_blocks()
            grid.add_row("", bar if is_drawn else f"{100 * last['done'] / last['total']:.0f} %")
    return grid


def plain_line(log: Log) -> str:
    """The same in one line, for files and pipes."""
    rows = _rows(log, log[-1]["time"])
    return ", ".join(x if name in ("phase", "time") else f"{name} {x}" for name, x in rows.items())


def _rows(log: Log, now: float) -> dict[str, str]:
    last, tolerance = _last(log), log[0]["tolerance"]
    rows = {"phase": _phase(log)}
    rows |= {name: f"{last[key]:.4g}" for name, key in CURVES.items() if key in last}
    if "distance" in last:
        end = f", ends at {tolerance:g}" if tolerance > 0 else ""
        rows["distance"] = f"{last['distance']:.2g} to the limit (estimated){end}"
    rows["time"] = f"{elapsed(round(now - log[0]['time']), 1.0)} elapsed"
    left = seconds_left(log)
    if left is not None:
        rest = elapsed(max(round(left[0] - (now - log[-1]["time"])), 0), 1.0)
        rows["time"] += f", {'at most' if left[1] else 'about'} {rest} of {last['phase']} left"
    return rows


def _last(log: Log) -> dict[str, Any]:
    return next((line for line in reversed(log) if "phase" in line), {"phase": "starting"})


def _ends_early(log: Log) -> bool:
    """Training may end long before its last allowed pass, so a share of it says nothing."""
    return _last(log)["phase"] == "training" and log[0]["tolerance"] > 0


def _phase(log: Log) -> str:
    last = _last(log)
    if log[-1].get("end") == "done":
        return "writing the result"
    phase = last["phase"]
    if phase == "training" and "pass" in last:
        passes, most = log[0]["passes"], "of at most" if _ends_early(log) else "of"
        current = min(last["pass"] + 1, passes)
        return f"training, pass {current} {most} {passes}, round {last['round']}"
    return f"{phase}, {last['done']} of {last['total']}" if "done" in last else phase


def seconds_left(log: Log) -> tuple[float, bool] | None:
    """Time until the phase ends, and whether that is only an upper bound.

    From the pace so far. Training ends early when the distance reaches the tolerance; once it
    falls steadily, its rate says when.
    """
    last = _last(log)
    here = [line for line in log if line.get("phase") == last["phase"] and "done" in line]
    if "end" in log[-1] or "done" not in last or last["done"] <= here[0]["done"]:
        return None
    done = last["done"]
    pace = (last["time"] - here[0]["time"]) / (done - here[0]["done"])
    left, tolerance = last["total"] - done, log[0]["tolerance"]
    if not _ends_early(log):
        return max(left, 0) * pace, False
    distances = {line["distance_at"]: line["distance"] for line in here if "distance" in line}
    recent = list(distances.items())[-(1 + len(distances) // 2) :]
    falls = all(0 < after[1] < before[1] for before, after in pairwise(recent))
    if len(recent) > 1 and falls:
        (before, far), (after, near) = recent[0], recent[-1]
        rate = math.log(far / near) / (after - before)
        expected = after - done + math.log(max(near / tolerance, 1.0)) / rate
        if expected < left:
            return max(expected, 0.0) * pace, False
    return left * pace, True


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


def _stopped(run: Path, log: Log) -> str:
    end = log[-1].get("end") if log else "interrupted"
    where = f" in {_phase(log)}" if log else ""
    if end is None:
        what = f"no sign of life for {elapsed(round(time.time() - log[-1]['time']), 1.0)}{where}"
    elif end == "done":
        what = "stopped before its result was written"
    else:
        what = f"{end}{where}: not running and not finished"
    if (run / CHECKPOINT).exists():
        remedy = "repeat the fit with --resume to continue from its checkpoint"
    elif (run / MANIFEST).exists():
        remedy = "the earlier run in the folder is untouched"
    else:
        remedy = "nothing was kept, so start the fit again with --overwrite"
    return f"{run}: {what}; {remedy}"


def _show_result(run: Path) -> None:
    result = Result.load(run)
    print_line(headline(result))
    known = result.manifest.timings.items()
    seconds = sum(value for key, value in known if key.startswith("seconds_") and key not in PARTS)
    status = result.manifest.training.status
    print_line(f"finished in {elapsed(round(seconds), 1.0)}; {status}")
    if result.uncertainty is not None:
        table = result.uncertainty.table
        of_pairs = table.loc[table["quantity"] == "granger_cov"]
        values = of_pairs.groupby("round")["total"].sum().tolist()
        chart = f" {sparkline(values)}" if _has_blocks() else ""
        print_line(
            f"covariance of Â along training (sum of traces): {values[0]:.3g} -> "
            f"{values[-1]:.3g}{chart}"
        )


def _has_blocks() -> bool:
    return out.encoding.lower().startswith("utf")
