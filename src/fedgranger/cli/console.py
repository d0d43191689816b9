"""What every command shares: consoles, progress bars, errors as exit codes."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from fedgranger.errors import (
    ConfigError,
    ConvergenceWarning,
    FedGrangerError,
    InferenceWarning,
    StabilityWarning,
)

# In a pipe or a file tables need no folding at 80 columns.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
err = Console(stderr=True, highlight=False)
INTERRUPTED = 130
NOTHING_TESTED = 3
"""Exit status of `fit` and `federation run` when a test was wanted and none could be made."""
OURS = (ConvergenceWarning, InferenceWarning, StabilityWarning)
Command = TypeVar("Command", bound=Callable[..., Any])
Run = Annotated[Path, typer.Argument(help="Run folder.")]
Level = Annotated[float | None, typer.Option(help="Another level than the run's.")]
Correction = Annotated[str | None, typer.Option(help="Another correction: bh, by, holm or none.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]


def friendly(command: Command) -> Command:
    """Turn the user's mistakes into one sentence and exit code 2, our warnings into lines.

    A command may leave with an exit code of its own; its warnings are printed first.
    """

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        result, status = None, None
        try:
            with warnings.catch_warnings(record=True) as caught:
                for category in OURS:
                    warnings.simplefilter("always", category)
                try:
                    result = command(*args, **kwargs)
                except typer.Exit as leave:
                    status = leave
        except FedGrangerError as error:
            fail(str(error))
        except ValueError as error:
            if type(error).__name__ != "LinAlgError":  # numpy's; most commands do not import it
                raise
            fail(f"a matrix could not be computed with ({error}); check the scale of the data")
        except OSError as error:
            fail(f"{error.filename or 'file'}: {error.strerror or error}")
        for warning in caught:
            if issubclass(warning.category, OURS):
                print_warning(str(warning.message))
            else:
                warnings.warn_explicit(
                    warning.message, warning.category, warning.filename, warning.lineno
                )
        if status is not None:
            raise status
        return result

    return run  # type: ignore[return-value]


def print_line(sentence: str) -> None:
    """Print a sentence of the answer: never folded, and brackets in names are no markup."""
    out.print(escape(sentence), soft_wrap=True)


def print_beside(sentence: str, mark: str = "") -> None:
    """Print a sentence beside the answer, on the error stream."""
    err.print(f"{mark}{escape(sentence)}", soft_wrap=True)


def print_note(sentence: str) -> None:
    """Print what happened to the data or to options."""
    print_beside(sentence, "[dim]note:[/] ")


def print_warning(sentence: str) -> None:
    """Print what makes an answer doubtful."""
    print_beside(sentence, "[yellow]warning:[/] ")


def check_level(alpha: float | None) -> None:
    """Refuse a level of the tests that is none."""
    if alpha is not None and not 0 < alpha < 1:
        raise ConfigError(f"--alpha is {alpha}; it must lie between 0 and 1 (exclusive)")


def make_table(
    columns: Iterable[str],
    rows: Iterable[Iterable[str]],
    *,
    left: Collection[str] = ("client",),
    no_wrap: bool = False,
) -> Table:
    """A table without lines; columns are of numbers, on the right, but for those named."""
    table = Table(box=None, header_style="bold")
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=no_wrap)
    for cells in rows:
        table.add_row(*cells)
    return table


def fail(message: str) -> NoReturn:
    """Print one sentence and leave with exit code 2."""
    print_beside(message, "[red]error:[/] ")
    raise typer.Exit(2)


@contextmanager
def progress_report() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a (what, done, total) callback that draws one bar with time left per task."""
    columns = (
        TextColumn("{task.description:<13}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    disabled = not sys.stderr.isatty()
    with Progress(*columns, console=err, disable=disabled) as progress:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield report
        for task in progress.tasks:  # training may converge before its last allowed pass
            progress.update(task.id, total=task.completed)
