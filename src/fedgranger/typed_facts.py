"""Facts that are written as JSON, read by name and checked by type: the base of the manifest.

Folders, pages and notebooks want a mapping with text as keys; the library wants names that a type
checker knows. `Facts` is both: a dictionary whose declared keys are attributes.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import Field, field
from functools import cache
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Self,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from fedgranger.text import kind_of

WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Facts(dict[str, Any]):
    """A mapping whose keys are declared as fields, and are attributes.

    A field whose default is None is not in every run. Any other default is what is read from facts
    that lack the field: those of older versions, or of a run that was not tested. It is made anew
    at every reading, so it is kept only by setting it (`+=` does, `append` does not).

    Example:
        >>> class Record(Facts):
        ...     steps: int
        ...     reason: str | None = None
        >>> record = Record(steps=3)
        >>> record.steps, record["steps"], record.reason, "reason" in record
        (3, 3, None, False)
    """

    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        """Take the defaults off the class, so that a key that is there is found before them."""
        own = {name: vars(cls)[name] for name in inspect.get_annotations(cls) if name in vars(cls)}
        for name in own:
            delattr(cls, name)
        cls._defaults = cls._defaults | own

    if not TYPE_CHECKING:  # a type checker knows the declared names only

        def __getattr__(self, name: str) -> Any:
            """The value of a key, or the default of its field."""
            if name in self:
                return self[name]
            if name not in self._defaults:
                raise AttributeError(f"{type(self).__name__} has no '{name}'")
            default = self._defaults[name]
            return default.default_factory() if isinstance(default, Field) else default

        def __setattr__(self, name: str, value: Any) -> None:
            """Set the value of a key."""
            if name not in fields_of(type(self)):
                raise AttributeError(f"{type(self).__name__} declares no '{name}'")
            self[name] = value

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The facts in a mapping, such as JSON gives it; keys that are not declared stay."""
        known, out = fields_of(cls), cls.__new__(cls)
        out.update({name: typed(value, known.get(name)) for name, value in values.items()})
        return out


@cache
def fields_of(kind: type[Facts]) -> dict[str, Any]:
    """Declared names, with their types."""
    hints = get_type_hints(kind)
    return {name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar}


def typed(value: Any, hint: Any) -> Any:
    """A plain value as the facts that its type declares, inside lists and mappings too."""
    origin, parts = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Facts):
        return hint.of(value)
    if origin is dict:
        return {name: typed(part, parts[1]) for name, part in value.items()}
    if origin is list and isinstance(value, list):
        return [typed(part, parts[0]) for part in value]
    if NoneType in parts and value is not None:
        return typed(value, next(part for part in parts if part is not NoneType))
    return value


def check_types(value: Any, hint: Any, name: str) -> None:
    """Refuse facts from a file that somebody has changed; keys that are not declared are free.

    Raises:
        TypeError: names the key that has another type, or that is absent and has no default.
    """
    origin, parts = get_origin(hint), get_args(hint)
    if NoneType in parts:
        if value is None:
            return
        hint = next(part for part in parts if part is not NoneType)
        origin, parts = get_origin(hint), get_args(hint)
    if hint is Any:
        return
    kind = origin or hint
    allowed, given = (int, float) if kind is float else (kind,), type(value)
    if not issubclass(given, allowed) or (given is bool and kind is not bool):
        wanted = WORDS.get(kind, "a list" if kind is list else "a mapping")
        raise TypeError(f"{name} is {kind_of(value)}, not {wanted}")
    if issubclass(kind, Facts):
        for key, one in fields_of(kind).items():
            if key in value:
                check_types(value[key], one, f"{name}.{key}")
            elif key not in kind._defaults:
                raise TypeError(f"{name}.{key} is absent")
    elif origin is list:
        for part in value:
            check_types(part, parts[0], name)
    elif origin is dict:
        for key, part in value.items():
            check_types(part, parts[1], f"{name}.{key}")
