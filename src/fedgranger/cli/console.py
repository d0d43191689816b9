"""What every command prints with: the answer on stdout, everything beside it on stderr."""

from __future__ import annotations

import math
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from fedgranger.cli.interrupts import INTERRUPTED
from fedgranger.errors import ConfigError


def make_console(*, stderr: bool = False) -> Console:
    """A console without codes for colours where NO_COLOR is set or nobody looks.

    In a pipe or a file tables need no folding at 80 columns, unless COLUMNS says so.
    """
    is_seen = (sys.stderr if stderr else sys.stdout).isatty() or "COLUMNS" in os.environ
    return Console(
        stderr=stderr,
        highlight=False,
        width=None if is_seen or stderr else 160,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )


out = make_console()
err = make_console(stderr=True)
MISSING = ("NAType", "NaTType")
"""Types of pandas for what is not there."""
MOMENT = 0.3
"""Seconds after which a command says what it is doing."""
NOTHING_TESTED = 3
"""Exit status of `fit` and `federation run` when a test was wanted and none could be made."""
RUNTIMES = ("inprocess", "flare")
"""Words of --runtime: one process, or FLARE's simulator."""
Run = Annotated[Path, typer.Argument(help="Run folder.")]
Data = Annotated[Path, typer.Argument(help="Folder with one file per client, or one table.")]
OutRun = Annotated[Path, typer.Option("--out", help="Run folder to write.")]
Config = Annotated[Path | None, typer.Option(help="TOML file with options.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what the run folder holds.")]
Suspects = Annotated[int, typer.Option(help="Suspects to show.", min=1)]
RcaJson = Annotated[bool, typer.Option("--json", help="Print rca.json's text.")]
Level = Annotated[float | None, typer.Option(help="Another level than the run's.")]
Correction = Annotated[str | None, typer.Option(help="Another correction: bh, by, holm or none.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]
ReplaceFile = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there.")]


class Amount:
    """How much the running command prints: less with --quiet, more with --verbose."""

    is_quiet = False
    is_verbose = False


def print_line(sentence: str, mark: str = "") -> None:
    """Print a sentence of the answer: never folded, and brackets in names are no markup."""
    out.print(f"{mark}{escape(sentence)}", soft_wrap=True)


def print_json(value: Any) -> None:
    """Print a value as JSON; what is not a number is null."""
    import json  # help does without

    typer.echo(json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """The same with JSON's own types; arrays are lists, times are text."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, Sequence | set) and not isinstance(value, str):
        return [plain(one) for one in value]
    if value is None or type(value).__name__ in MISSING:
        return None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bool | int | str):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def print_beside(sentence: str, mark: str = "") -> None:
    """Print a sentence beside the answer, on the error stream."""
    err.print(f"{mark}{escape(sentence)}", soft_wrap=True)


def print_note(sentence: str) -> None:
    """Print what happened to the data or to options."""
    print_beside(sentence, "[dim]note:[/] ")


def print_warning(sentence: str) -> None:
    """Print what makes an answer doubtful."""
    print_beside(sentence, "[yellow]warning:[/] ")


def print_error(sentence: str) -> None:
    """Print what went wrong, also with --quiet; with --verbose where in the code."""
    err.quiet = False
    if Amount.is_verbose and sys.exc_info()[0] is not None:
        print_beside(traceback.format_exc())
    print_beside(sentence, "[red]error:[/] ")


def print_interrupted(hint: str = "") -> None:
    """Print that Ctrl-C ended the command, and what can be done."""
    err.quiet = False
    print_beside(f": {hint}" if hint else "", "[yellow]interrupted[/]")


def leave_interrupted(hint: str = "") -> NoReturn:
    """End the command after Ctrl-C; with a hint it is printed here, else at the end."""
    if hint:
        print_interrupted(hint)
        sys.exit(INTERRUPTED)
    raise typer.Exit(INTERRUPTED)


def fail(message: str) -> NoReturn:
    """Print one sentence and leave with exit code 2."""
    print_error(message)
    raise typer.Exit(2)


def check_new_file(path: Path | None, *, overwrite: bool, option: str = "--out") -> None:
    """Refuse to replace a file that --overwrite does not give up."""
    if path is not None and path.is_file() and not overwrite:
        raise ConfigError(
            f"{path}: is there already; add --overwrite to replace it, or give {option} another "
            "name"
        )


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Say on the error stream what is being done, when it takes longer than a moment.

    In a terminal the line goes when it is done.
    """
    shown = threading.Event()

    def show() -> None:
        shown.set()
        sys.stderr.write(f"{what} …" + ("\r" if is_drawn else "\n"))
        sys.stderr.flush()

    is_drawn = err.is_terminal and not err.is_dumb_terminal
    timer = threading.Timer(MOMENT, show)
    timer.daemon = True
    if what and not Amount.is_quiet:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if timer.ident is not None:
            timer.join()
        if shown.is_set() and is_drawn:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


@contextmanager
def progress_report() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a (what, done, total) callback that draws one bar with time left per task."""
    from fedgranger.runtime.bars import bars

    is_shown = sys.stderr.isatty() and not Amount.is_quiet
    with bars(err, is_shown=is_shown, is_kept=True, patience=0.0) as report:
        yield report
