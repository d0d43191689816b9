"""Run options on the command line and in TOML files, both made from `RunConfig`."""

from __future__ import annotations

import functools
import inspect
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer
from rich.markup import escape

from fedgranger.config import RunConfig, read_toml, unknown_key
from fedgranger.errors import ConfigError

__all__ = ["DataOptions", "merge", "with_run_options"]


@dataclass(frozen=True)
class DataOptions:
    """How to read the data.

    Attributes:
        partition: file that maps each client to its columns, when DATA is one table.
        time_column: name of the time column, "auto" or "none".
        missing: "error", or "mask" to treat empty cells and codes such as -9999 as missing samples.
        constant: "error", or "drop" to leave out sensors that never change.
        difference: sensors whose change per row is used: "auto" for those that count or wander,
            "none", or client.sensor,client.sensor; "auto,client.sensor" for both.
        leave_out: sensors that are not used: client.sensor,client.sensor.
        suspect: "error" refuses clocks, row numbers and codes for missing samples; "keep" uses
            them as measured.
        models: JSON file with known local models.
    """

    partition: str | None = None
    time_column: str = "auto"
    missing: str = "error"
    constant: str = "error"
    difference: str = "auto"
    leave_out: str = ""
    suspect: str = "error"
    models: str | None = None


def with_run_options(
    command: Callable[..., Any],
    kinds: tuple[type, ...] = (DataOptions, RunConfig),
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> Callable[..., Any]:
    """Add one option per field of the kinds; pass those given as a dict.

    The command receives them as `given`, with values parsed but not yet checked; `defaults` are
    those of the command that differ from the fields', for the help.
    """
    names = [field.name for kind in kinds for field in fields(kind)]
    help_texts = {
        name: text for kind in kinds for name, text in _help_texts(kind, defaults).items()
    }

    @functools.wraps(command)
    def run(**kwargs: Any) -> Any:
        texts = {name: kwargs.pop(name) for name in names}
        given = {name: _parse(name, text) for name, text in texts.items() if text is not None}
        return command(**kwargs, given=given)

    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.name != "given"]
    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                str | None,
                typer.Option(
                    f"--{name.replace('_', '-')}",
                    help=help_texts[name],
                    metavar="VALUE",
                    rich_help_panel="Data" if name in _help_texts(DataOptions) else "Run options",
                ),
            ],
        )
        for name in names
    ]
    run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in (*own, *added)}
    return run


def merge(
    file: Path | None,
    given: dict[str, Any],
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[DataOptions, RunConfig]:
    """Combine a command's defaults, a TOML file and the command line; what comes later wins."""
    values = {**defaults, **(read_toml(file) if file else {}), **given}
    data_names = [field.name for field in fields(DataOptions)]
    known = data_names + [field.name for field in fields(RunConfig)]
    for key in values:
        if key not in known:
            raise ConfigError(unknown_key(key, known) + (f" ({file})" if file else ""))
    data = {key: values.pop(key) for key in data_names if key in values}
    for key, value in data.items():
        if not isinstance(value, str):
            raise ConfigError(f"{key} is {value!r}; it must be text")
    return DataOptions(**data), RunConfig.from_mapping(values)


def _parse(name: str, text: str) -> Any:
    """Read numbers and true/false as such, everything else as text."""
    if name in ("partition", "time_column", "difference", "leave_out", "models", "period"):
        return text
    if name == "state_dim" and "=" in text:
        pairs = [part.partition("=") for part in text.split(",")]
        return {client.strip(): _value(dim.strip()) for client, _, dim in pairs}
    if name == "couplings" and text != "all":
        return [[side.strip() for side in part.split("->")] for part in text.split(",")]
    return _value(text)


def _value(text: str) -> Any:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, bool | int | float) else text


def _help_texts(kind: type, changed: Mapping[str, Any] = MappingProxyType({})) -> dict[str, str]:
    """Take each option's help from the class docstring, so that it is written once."""
    section = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n        .*)*)", section, flags=re.MULTILINE)
    defaults = {field.name: changed.get(field.name, field.default) for field in fields(kind)}
    return {
        name: escape(" ".join(text.split()))
        + ("" if defaults[name] in (None, "") else f" Default: {defaults[name]}.")
        for name, text in entries
    }
