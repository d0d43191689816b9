"""Options declared once: default, bounds and words give validation, files, command line and docs.

>>> from dataclasses import dataclass
>>> from fedgranger.option_fields import whole
>>> @dataclass(frozen=True)
... class Oven(Options):
...     '''Options of an oven.'''
...     subject = "oven"
...     minutes: int = whole(30, "how long to bake", least=1)
>>> Oven.from_mapping({"minuts": 3})
Traceback (most recent call last):
fedgranger.errors.ConfigError: unknown option 'minuts' (did you mean 'minutes'?)
>>> Oven(minutes=0)
Traceback (most recent call last):
fedgranger.errors.ConfigError: minutes is 0; it must be a whole number of at least 1
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

from fedgranger.errors import ConfigError
from fedgranger.option_fields import option_of, unknown_key

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

    def values_of(self, kind: type[Options]) -> dict[str, Any]:
        """The options of a class that this one inherits from."""
        return {name: getattr(self, name) for name in kind.names()}

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


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(part) for part in value]
    return dict(value) if isinstance(value, Mapping) else value
