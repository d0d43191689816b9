"""Declared options on the command line and in TOML files."""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from fedgranger.config import RunConfig, read_toml
from fedgranger.data.reading_options import PanelOptions
from fedgranger.errors import ConfigError
from fedgranger.option_fields import Option, option_of, text
from fedgranger.option_sets import Options


@dataclass(frozen=True, kw_only=True)
class DataOptions(PanelOptions):
    """How to read the data of all clients, and what is known of them."""

    subject = "data"
    models: str | None = text(None, "JSON file with known local models")


@dataclass(frozen=True)
class FitOptions(RunConfig, DataOptions):
    """What a TOML file of `fit` may hold."""


def with_options(
    kind: type[Options], defaults: Mapping[str, Any] = MappingProxyType({})
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add one option per declared field to a command, which receives those given as a dict.

    Its parameter is `given`, with values parsed but not yet checked; `defaults` are those of the
    command that differ from the declared ones, for the help.
    """
    declared = {one.name: one for one in fields(kind) if one.name in kind.names()}
    subjects = {name: subject for subject, own in kind.subjects().items() for name in own}
    added = [
        _parameter(name, option_of(one), defaults.get(name, one.default), subject=subjects[name])
        for name, one in declared.items()
    ]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def run(**kwargs: Any) -> Any:
            texts = {name: kwargs.pop(name) for name in declared}
            given = {
                name: _parse(option_of(declared[name]), words)
                for name, words in texts.items()
                if words is not None
            }
            return command(**kwargs, given=given)

        signature = inspect.signature(command, eval_str=True)
        own = [p for p in signature.parameters.values() if p.name != "given"]
        run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in (*own, *added)}
        return run

    return decorate


def merge(
    file: Path | None,
    given: dict[str, Any],
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[DataOptions, RunConfig]:
    """Combine a command's defaults, a TOML file and the command line; what comes later wins."""
    try:
        from_file = FitOptions.flat(read_toml(file)) if file else {}
    except ConfigError as error:
        where = "" if str(file) in str(error) else f" ({file})"
        raise ConfigError(f"{error}{where}") from None
    values = {**defaults, **from_file, **given}
    data = {name: values.pop(name) for name in DataOptions.names() if name in values}
    return DataOptions.from_mapping(data), RunConfig.from_mapping(values)


def _parse(option: Option, words: str) -> Any:
    """Read numbers and true/false as such, unless the option reads its own."""
    if option.parse is not None:
        return option.parse(words)
    try:
        value = tomllib.loads(f"value = {words}")["value"]
    except tomllib.TOMLDecodeError:
        return words
    return value if isinstance(value, bool | int | float) else words


def _parameter(name: str, option: Option, default: Any, *, subject: str) -> inspect.Parameter:
    """An option of a command; in the short help only if it is an everyday one."""
    end = "" if default in (None, "") else f" Default: {default}."
    declared = typer.Option(
        *(f"--{word.replace('_', '-')}" for word in (option.word or name, option.also) if word),
        help=f"{option.help[0].upper()}{option.help[1:]}.{end}",
        metavar=option.value,
        rich_help_panel=None if option.everyday else subject.replace("_", " ").capitalize(),
        autocompletion=(lambda: list(option.allowed)) if option.allowed else None,
    )
    only = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, only, default=None, annotation=Annotated[str | None, declared])
