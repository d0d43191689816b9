"""One option: its default, bounds and words, declared once; `option_sets` puts them together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from fedgranger.errors import ConfigError
from fedgranger.text import did_you_mean, listed


class Option(NamedTuple):
    """What is known of one option beside its name and default.

    Attributes:
        help: what it does, for the command line and the documentation.
        check: of a name and a value; gives the value in its one form or raises `ConfigError`.
        parse: reads it from the command line; None: numbers and true/false as such, else text.
        word: its name on the command line, where that is shorter.
        also: a second name there.
        everyday: whether the short help (`--help`) of a command shows it; `--help-all` shows all.
        allowed: its words, where only some are allowed; a shell completes them.
        value: what stands for its value in the help.
    """

    help: str
    check: Callable[[str, Any], Any]
    parse: Callable[[str], Any] | None = None
    word: str = ""
    also: str = ""
    everyday: bool = False
    allowed: tuple[str, ...] = ()
    value: str = "TEXT"


def option_of(declared: Any) -> Option:
    """The declaration behind a dataclass field."""
    return declared.metadata["option"]


def _declared(default: Any, option: Option) -> Any:
    return field(default=default, metadata={"option": option})


def whole(
    default: Any,
    help: str,
    *,
    least: int = 0,
    below: int | None = None,
    words: tuple[str | None, ...] = (),
    word: str = "",
    everyday: bool = False,
) -> Any:
    """A whole number, or one of some words."""

    def check(name: str, value: Any) -> Any:
        if value in words and not isinstance(value, bool):
            return value
        check_whole(name, value, least, words)
        if below is not None and value >= below:
            raise ConfigError(f"{name} is {value}; it must be below {below}")
        return value

    value = f"N{_bar(words)}"
    return _declared(default, Option(help, check, word=word, everyday=everyday, value=value))


def check_whole(name: str, value: Any, least: int, words: tuple[str | None, ...] = ()) -> None:
    """Refuse what is no whole number, or a smaller one."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        kind = f"a whole number of at least {least}{_or(words)}"
        raise ConfigError(f"{name} is {value!r}; it must be {kind}")


def number(
    default: Any,
    help: str,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    words: tuple[str | None, ...] = (),
    everyday: bool = False,
) -> Any:
    """A finite number, or one of some words; 1 and 1.0 are the same."""

    def check(name: str, value: Any) -> Any:
        if value in words and not isinstance(value, bool):
            return value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise ConfigError(f"{name} is {value!r}; it must be a finite number{_or(words)}")
        if not (least <= value < below and value > above):
            raise ConfigError(f"{name} is {value!r}; it must {_bounds(least, above, below)}")
        return float(value)

    value = f"NUMBER{_bar(words)}"
    return _declared(default, Option(help, check, everyday=everyday, value=value))


def _or(words: tuple[str | None, ...]) -> str:
    return "".join(f" or '{word}'" for word in words if word is not None)


def _bar(words: tuple[str | None, ...]) -> str:
    return "".join(f"|{word}" for word in words if word is not None)


def _bounds(least: float, above: float, below: float) -> str:
    if above > -math.inf and below < math.inf:
        return f"lie between {above:g} and {below:g} (exclusive)"
    if above > -math.inf:
        return f"be above {above:g}"
    return f"be at least {least:g}" + (f" and below {below:g}" if below < math.inf else "")


def flag(default: bool, help: str) -> Any:
    """True or false."""

    def check(name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ConfigError(f"{name} is {value!r}; it must be true or false")
        return value

    return _declared(default, Option(help, check, allowed=("true", "false"), value="true|false"))


def choice(default: str, allowed: tuple[str, ...], help: str, *, everyday: bool = False) -> Any:
    """One of some words."""

    def check(name: str, value: Any) -> str:
        check_choice(name, value, allowed)
        return value

    value = "|".join(allowed)
    return _declared(default, Option(help, check, everyday=everyday, allowed=allowed, value=value))


def text(
    default: str | None,
    help: str,
    *,
    also: str = "",
    everyday: bool = False,
    is_list: bool = False,
) -> Any:
    """Any text; one that lists names with commas may be given as a list of them."""

    def check(name: str, value: Any) -> str | None:
        parts = listed(value) if is_list else None
        value = value if parts is None else ",".join(map(str, parts))
        if not isinstance(value, str) and not (value is None and default is None):
            raise ConfigError(f"{name} is {value!r}; it must be text")
        return value

    return _declared(default, Option(help, check, str, also=also, everyday=everyday))


def special(
    default: Any,
    help: str,
    check: Callable[[str, Any], Any],
    parse: Callable[[str], Any] | None = None,
    *,
    everyday: bool = False,
) -> Any:
    """Whatever its own check accepts."""
    return _declared(default, Option(help, check, parse, everyday=everyday, value="VALUE"))


def unknown_key(key: str, known: Sequence[str]) -> str:
    """Sentence for an unknown option, with the nearest known one."""
    return f"unknown option '{key}'{did_you_mean(key, known)}"


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Refuse a value that is not one of the allowed words, naming the nearest."""
    if value not in allowed:
        hint = did_you_mean(str(value), allowed)
        raise ConfigError(f"{name} is {value!r}; choose one of {', '.join(allowed)}{hint}")


def check_level(name: str, alpha: float | None) -> None:
    """Refuse a level of the tests that is none; None: the run's own."""
    if alpha is not None and not 0 < alpha < 1:
        raise ConfigError(f"{name} is {alpha}; it must lie between 0 and 1 (exclusive)")
