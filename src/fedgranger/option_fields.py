"""Options declared once: default, bounds and words give validation, files, command line and docs.

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Oven(Options):
...     '''Options of an oven.'''
...     subject = "oven"
...     minutes: int = whole(30, "how long to bake", least=1)
>>> Oven.from_mapping({"minuts": 3})
Traceback (most recent call last):
fedgranger.errors.ConfigError: unknown option 'minuts'; did you mean 'minutes'?
>>> Oven(minutes=0)
Traceback (most recent call last):
fedgranger.errors.ConfigError: minutes is 0; it must be a whole number of at least 1
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, TypeVar

from fedgranger.errors import ConfigError
from fedgranger.text import listed

NEAR = 0.6
"""Words less alike than this are not proposed."""


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


Own = TypeVar("Own", bound="Options")


@dataclass(frozen=True)
class Options:
    """Options of one subject, or of several that it inherits from.

    A file may hold them one by one or in tables by subject.
    """

    subject: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Check every value; the sentence names the option, the value and what is allowed."""
        for one in fields(self):
            if "option" in one.metadata:
                value = option_of(one).check(one.name, getattr(self, one.name))
                object.__setattr__(self, one.name, value)
        self.check_together()

    def check_together(self) -> None:
        """Check what concerns several options."""

    @classmethod
    def names(cls) -> list[str]:
        """The options that a file or a command line may set."""
        return [one.name for one in fields(cls) if "option" in one.metadata]

    @classmethod
    def known_names(cls) -> dict[str, str]:
        """The options by their names and second names."""
        declared = {name: name for name in cls.names()}
        own = (one for one in fields(cls) if one.name in declared and option_of(one).also)
        return declared | {option_of(one).also: one.name for one in own}

    @classmethod
    def subjects(cls) -> dict[str, list[str]]:
        """The options of every subject; several classes may speak of one."""
        known = set(cls.names())
        found: dict[str, list[str]] = {}
        for base in reversed(cls.__mro__):
            if base.__dict__.get("subject"):
                own = [name for name in base.__annotations__ if name in known]
                found.setdefault(base.__dict__["subject"], []).extend(own)
        return found

    @classmethod
    def flat(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Names and values without the tables by subject.

        Raises:
            ConfigError: an option is unknown, in the table of another subject, or there twice.
        """
        subjects, known = cls.subjects(), cls.known_names()
        out: dict[str, Any] = {}
        for key, value in values.items():
            table = subjects.get(key) if isinstance(value, Mapping) else None
            for written, one in [(key, value)] if table is None else value.items():
                if written not in known:
                    raise ConfigError(unknown_key(written, cls.names()))
                name = known[written]
                if table is not None and name not in table:
                    home = next(part for part, own in subjects.items() if name in own)
                    raise ConfigError(f"{name} is in table [{key}]; it belongs to [{home}]")
                if name in out:
                    raise ConfigError(f"{name} is given twice; leave one of them out")
                out[name] = one
        return out

    @classmethod
    def from_mapping(cls: type[Own], values: Mapping[str, Any]) -> Own:
        """Build from names and values; an unknown name is an error that names the nearest one."""
        return cls(**cls.flat(values))

    def to_mapping(self) -> dict[str, Any]:
        """Return plain values for TOML and JSON."""
        return {name: _plain(getattr(self, name)) for name in self.names()}

    def to_tables(self) -> dict[str, dict[str, Any]]:
        """The same in tables by subject."""
        values = self.to_mapping()
        return {
            subject: {name: values[name] for name in names}
            for subject, names in self.subjects().items()
        }


def option_of(declared: Any) -> Option:
    """The declaration behind a dataclass field."""
    return declared.metadata["option"]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return dict(value) if isinstance(value, Mapping) else value


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
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            kind = f"a whole number of at least {least}{_or(words)}"
            raise ConfigError(f"{name} is {value!r}; it must be {kind}")
        if below is not None and value >= below:
            raise ConfigError(f"{name} is {value}; it must be below {below}")
        return value

    option = Option(help, check, word=word, everyday=everyday, value=f"N{_bar(words)}")
    return field(default=default, metadata={"option": option})


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

    option = Option(help, check, everyday=everyday, value=f"NUMBER{_bar(words)}")
    return field(default=default, metadata={"option": option})


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

    option = Option(help, check, allowed=("true", "false"), value="true|false")
    return field(default=default, metadata={"option": option})


def choice(default: str, allowed: tuple[str, ...], help: str, *, everyday: bool = False) -> Any:
    """One of some words."""

    def check(name: str, value: Any) -> str:
        check_choice(name, value, allowed)
        return value

    option = Option(help, check, everyday=everyday, allowed=allowed, value="|".join(allowed))
    return field(default=default, metadata={"option": option})


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

    option = Option(help, check, str, also=also, everyday=everyday)
    return field(default=default, metadata={"option": option})


def special(
    default: Any,
    help: str,
    check: Callable[[str, Any], Any],
    parse: Callable[[str], Any] | None = None,
    *,
    everyday: bool = False,
) -> Any:
    """Whatever its own check accepts."""
    option = Option(help, check, parse, everyday=everyday, value="VALUE")
    return field(default=default, metadata={"option": option})


def unknown_key(key: str, known: list[str]) -> str:
    """Sentence for an unknown option, with the nearest known one."""
    return f"unknown option '{key}'{did_you_mean(key, known)}"


def check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Refuse a value that is not one of the allowed words, naming the nearest."""
    if value not in allowed:
        hint = did_you_mean(str(value), allowed)
        raise ConfigError(f"{name} is {value!r}; choose one of {', '.join(allowed)}{hint}")


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The end of a sentence that proposes the nearest word; empty where none is near."""
    nearest = difflib.get_close_matches(word.lower(), known, n=1, cutoff=NEAR)
    return f"; did you mean '{nearest[0]}'?" if nearest else ""
