"""Which columns of one table belong to which client: a file that says so, or patterns of names."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from fedgranger.errors import ConfigError, DataError
from fedgranger.text import did_you_mean

PREFIX = re.compile(r"([^\W_]+)([_.:/\\ -])")


def read_partition(path: Path) -> dict[str, list[str]]:
    """Read client -> columns from JSON or TOML, bare or under the single key `clients`."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix.lower() == ".toml":
            content = tomllib.loads(text)
        else:
            content = json.loads(text, object_pairs_hook=_distinct_keys)
    except DataError as error:
        raise DataError(f"partition '{path}': {error}") from error
    except OSError as error:
        raise DataError(f"partition '{path}' cannot be read: {error.strerror}") from error
    except ValueError as error:  # not UTF-8, not JSON, not TOML
        raise DataError(f"partition '{path}' is not valid JSON or TOML: {error}") from error
    if isinstance(content, dict) and list(content) == ["clients"]:
        content = content["clients"] if isinstance(content["clients"], dict) else content
    if not isinstance(content, dict):
        raise DataError(f"partition '{path}' is not a mapping; write client -> list of columns")
    for client, columns in content.items():
        is_list = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
        if not is_list or not columns:
            raise DataError(
                f"partition '{path}': client '{client}' has {columns!r} where a list of one or "
                "more column names is needed"
            )
    if len(content) < 2:
        found = f"only client '{next(iter(content))}'" if content else "no client"
        raise DataError(f"partition '{path}' names {found}; at least two clients are needed")
    return content


def _distinct_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse the repeated keys that JSON would resolve silently in favour of the last one."""
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            raise DataError(f"client '{key}' appears twice; join its columns in one list")
    return dict(pairs)


def check_partition(
    assignment: dict[str, list[str]], names: Sequence[str], time_name: str | None
) -> None:
    """Refuse columns that are not there, are the time, or belong to two clients."""
    owners: dict[str, str] = {}
    for client, columns in assignment.items():
        for name in columns:
            if name not in names:
                raise DataError(
                    f"client '{client}': the table has no column '{name}'"
                    f"{did_you_mean(name, names)}; correct the partition"
                )
            if name == time_name:
                raise DataError(
                    f"client '{client}': column '{name}' is the time column and cannot be a "
                    "sensor; take it out of the partition or pass another time_column"
                )
            if name in owners:
                raise DataError(
                    f"column '{name}' is assigned to client '{owners[name]}' and again to client "
                    f"'{client}'; assign each column once"
                )
            owners[name] = client


def read_map(value: str, names: Sequence[str]) -> dict[str, list[str]]:
    """Assign columns to clients by patterns, "P1_*=boiler,P2_*=turbine".

    Raises:
        ConfigError: a pattern is no pattern, fits no column, or two fit one.
    """
    owners: dict[str, str] = {}
    assignment: dict[str, list[str]] = {}
    for entry in value.split(","):
        pattern, sign, client = (part.strip() for part in entry.rpartition("="))
        if not (pattern and sign and client):
            raise ConfigError(
                f"map (--map) has '{entry.strip()}'; write PATTERN=client, such as 'P1_*=boiler'"
            )
        fitting = [name for name in names if fnmatchcase(name, pattern)]
        if not fitting:
            raise ConfigError(
                f"map (--map): no column fits '{pattern}'"
                f"{did_you_mean(pattern.strip('*'), names)}; correct the pattern"
            )
        for name in fitting:
            if owners.get(name, client) != client:
                raise ConfigError(
                    f"map (--map): column '{name}' fits the patterns of '{owners[name]}' and "
                    f"'{client}'; make one of them narrower"
                )
            if name not in owners:
                owners[name] = client
                assignment.setdefault(client, []).append(name)
    if len(assignment) < 2:
        raise ConfigError(
            f"map (--map) names only client '{next(iter(assignment))}'; at least two are needed"
        )
    return assignment


def propose_map(names: Sequence[str]) -> str:
    """Clients by what columns' names begin with; "" when names do not begin alike."""
    found = [PREFIX.match(name) for name in names]
    prefixes = dict.fromkeys(match[0] for match in found if match)
    if None in found or not 2 <= len(prefixes) < len(names):
        return ""
    clients = [prefix[:-1] for prefix in prefixes]
    if len(set(clients)) < len(clients):
        return ""
    return ",".join(f"{prefix}*={prefix[:-1]}" for prefix in prefixes)
