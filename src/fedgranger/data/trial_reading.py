"""Detection proposes, options decide: find the options with which refused data can be read.

When data are refused with a proposal, they are read again as proposed, and so on, until they can be
read or nothing more is proposed. So the one sentence that the user gets names all options that it
takes, and they have been tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Generic, NamedTuple, TypeVar, cast

from fedgranger.data.file_format import per_client
from fedgranger.data.reading_options import PER_CLIENT, ReadingOptions
from fedgranger.errors import ConfigError, DataError, ReadingError
from fedgranger.text import as_flags

MOST_TRIALS = 10
LISTS = ("leave_out", "missing_text")
"""Options to which a proposal adds instead of replacing them."""

Read = TypeVar("Read")
Chosen = TypeVar("Chosen", bound=ReadingOptions)


class Trial(NamedTuple, Generic[Read]):
    """What came of reading and reading again.

    Attributes:
        options: those that were tried last.
        found: what was read with them; None when something else stops it.
        refused: the first sentence, None when the options given were enough.
        stopped: the sentence that no proposal mends.
    """

    options: ReadingOptions
    found: Read | None
    refused: DataError | None
    stopped: DataError | None


def read_or_propose(
    read: Callable[[Chosen], Read], options: Chosen, clients: Sequence[str]
) -> Read:
    """Read, or refuse with one sentence that names every option it takes."""
    trial = try_reading(read, options, clients)
    error = trial.refused
    if error is None:
        return cast("Read", trial.found)
    flags = changed_flags(options, trial.options)
    if trial.stopped is not None and str(trial.stopped) != str(error):
        raise DataError(f"{error}; with {flags} the next obstacle is: {trial.stopped}") from error
    if all(flag.removeprefix("--") in str(error) for flag in flags.split(" --")):
        raise error
    raise DataError(f"{error}; in all the data need {flags}") from error


def try_reading(
    read: Callable[[Chosen], Read], options: Chosen, clients: Sequence[str]
) -> Trial[Read]:
    """Read with the options, then with what is proposed on top of them."""
    tried, refused = options, None
    for _ in range(MOST_TRIALS):
        try:
            found = read(tried)
        except ReadingError as error:
            refused = refused or error
            changed = with_proposal(tried, error.proposal, clients)
            if changed == tried:
                return Trial(tried, None, refused, error)
            tried = changed
        except (DataError, ConfigError) as error:
            if refused is None:
                raise
            stopped = error if isinstance(error, DataError) else DataError(str(error))
            return Trial(tried, None, refused, stopped)
        else:
            return Trial(tried, found, refused, None)
    return Trial(tried, None, refused, refused)


def with_proposal(
    options: Chosen, proposal: Mapping[str, str | Mapping[str, str]], clients: Sequence[str]
) -> Chosen:
    """The options with a proposal on top; options of single clients are joined."""
    changes: dict[str, Any] = {}
    defaults = type(options)()
    for name, value in proposal.items():
        now = getattr(options, name)
        if name in PER_CLIENT and not isinstance(value, str):
            default = getattr(defaults, name)
            own = {client: default for client in clients} | per_client(now, clients) | dict(value)
            kinds = set(own.values())
            named = ",".join(f"{c}={v}" for c, v in own.items() if v != default)
            changes[name] = kinds.pop() if len(kinds) == 1 else named
        elif name in LISTS:
            known = [part for part in now.split(",") if part]
            extra = [part for part in str(value).split(",") if part not in known]
            changes[name] = ",".join(_shortened([*known, *extra], clients))
        else:
            changes[name] = value
    return replace(options, **changes)


def _shortened(labels: list[str], clients: Sequence[str]) -> list[str]:
    """Name a column once when every client has it."""
    ends = [label.split(".", 1)[1] for label in labels if "." in label]
    for end in dict.fromkeys(ends):
        every = [f"{client}.{end}" for client in clients]
        if len(every) > 1 and set(every) <= set(labels):
            labels = [end, *(label for label in labels if label not in every)]
    return labels


def changed_flags(before: ReadingOptions, after: ReadingOptions) -> str:
    """Options of the command line that lead from one to the other."""
    changed = {
        one.name: str(getattr(after, one.name))
        for one in fields(after)
        if getattr(after, one.name) != getattr(before, one.name)
    }
    return as_flags(changed)


def joined(found: Sequence[DataError]) -> DataError:
    """One error of several: the first sentence, and what all of them propose."""
    proposals = [error.proposal for error in found if isinstance(error, ReadingError)]
    if not proposals:
        return found[0]
    merged: dict[str, str | dict[str, str]] = {}
    for proposal in proposals:
        for option, value in proposal.items():
            before = merged.get(option)
            if isinstance(value, str):
                known = before.split(",") if isinstance(before, str) and option in LISTS else []
                extra = [part for part in value.split(",") if part not in known]
                merged[option] = ",".join([*known, *extra])
            else:
                merged[option] = {**(before if isinstance(before, dict) else {}), **value}
    first = next((e for e in found if isinstance(e, ReadingError)), found[0])
    return ReadingError(str(first), merged)
