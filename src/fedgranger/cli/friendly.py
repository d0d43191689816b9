"""Commands whose errors are sentences, with the options that all of them have."""

from __future__ import annotations

import functools
import inspect
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import typer

from fedgranger.cli.console import Amount, err, fail, leave_interrupted, print_beside, print_warning
from fedgranger.errors import (
    ConvergenceWarning,
    FedGrangerError,
    InferenceWarning,
    StabilityWarning,
)

ALL = "fedgranger.help_all"
OURS = (ConvergenceWarning, InferenceWarning, StabilityWarning)
Function = TypeVar("Function", bound=Callable[..., Any])
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print the answer and errors, nothing else.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print more: all rows, times, where errors arose.")
]


def show_all_help(ctx: typer.Context, value: bool) -> None:
    """Print the long help and leave."""
    if value and not ctx.resilient_parsing:
        ctx.meta[ALL] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all", callback=show_all_help, is_eager=True, help="Show all options and exit."
    ),
]


def friendly(command: Function) -> Function:
    """Turn the user's mistakes into one sentence and exit code 2, our warnings into lines.

    A command may leave with an exit code of its own; its warnings are printed first. Every command
    gets the options --quiet, --verbose and --help-all.
    """

    @functools.wraps(command)
    def run(*args: Any, quiet: bool = False, verbose: bool = False, **kwargs: Any) -> Any:
        kwargs.pop("help_all", None)  # its callback leaves
        with _printing(is_quiet=quiet, is_verbose=verbose):
            return _run(command, *args, **kwargs)

    signature = inspect.signature(command, eval_str=True)
    only = inspect.Parameter.KEYWORD_ONLY
    more = [
        inspect.Parameter(name, only, default=False, annotation=kind)
        for name, kind in (("quiet", Quiet), ("verbose", Verbose), ("help_all", HelpAll))
    ]
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *more]
    )
    run.__annotations__ = {
        name: one.annotation
        for name, one in run.__signature__.parameters.items()  # type: ignore[attr-defined]
    }
    return run  # type: ignore[return-value]


@contextmanager
def _printing(*, is_quiet: bool, is_verbose: bool) -> Iterator[None]:
    if is_quiet and is_verbose:
        fail("--quiet and --verbose contradict each other; give one of them")
    started = time.monotonic()
    Amount.is_quiet, Amount.is_verbose, err.quiet = is_quiet, is_verbose, is_quiet
    try:
        yield
    finally:
        if is_verbose:
            print_beside(f"{time.monotonic() - started:.1f} s in all", "[dim]time:[/] ")
        Amount.is_quiet, Amount.is_verbose, err.quiet = False, False, False


def _run(command: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    result, status = None, None
    try:
        with warnings.catch_warnings(record=True) as caught:
            for category in OURS:
                warnings.simplefilter("always", category)
            try:
                result = command(*args, **kwargs)
            except typer.Exit as leave:
                status = leave
    except KeyboardInterrupt:
        leave_interrupted()
    except FedGrangerError as error:
        fail(str(error))
    except ValueError as error:
        if type(error).__name__ != "LinAlgError":  # numpy's; most commands do not import it
            raise
        fail(f"a matrix could not be computed with ({error}); check the scale of the data")
    except BrokenPipeError:
        raise
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
