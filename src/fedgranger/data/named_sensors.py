"""Options that list sensors, of one client or of all: `leave_out`, and words among them.

A name may hold a comma: the longest match counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from fedgranger.data.input_checks import nearest_or_all
from fedgranger.errors import ConfigError
from fedgranger.text import did_you_mean


class LeftOut:
    """Finds the columns that `leave_out` names, client by client, then says what it never found."""

    def __init__(self, value: str) -> None:
        """Split what the user wrote."""
        self._parts = value.split(",") if value.strip() else []
        self._is_used = [False] * len(self._parts)
        self._labels: list[str] = []
        self._names: list[str] = []
        self._clients: list[str] = []

    def of_client(self, client: str, columns: Sequence[str]) -> set[str]:
        """Columns of one client that are left out.

        Raises:
            ConfigError: none would be left.
        """
        labels = {f"{client}.{name}": name for name in columns} | {name: name for name in columns}
        self._clients.append(client)
        self._labels += [f"{client}.{name}" for name in columns]
        self._names += [*columns, *(f"{client}.{name}" for name in columns)]
        found: set[str] = set()
        start = 0
        while start < len(self._parts):
            for end in range(len(self._parts), start, -1):
                entry = ",".join(self._parts[start:end]).strip()
                named = {labels[entry]} if entry in labels else _matching(entry, labels)
                if named:
                    found |= named
                    self._is_used[start:end] = [True] * (end - start)
                    start = end
                    break
            else:
                start += 1
        if columns and set(columns) <= found:
            raise ConfigError(
                f"leave_out takes all sensors of client '{client}'; remove the client instead"
            )
        return found

    def check(self) -> None:
        """Refuse a name that no client has; to be called after the last client."""
        for part, is_used in zip(self._parts, self._is_used, strict=True):
            if not is_used:
                entry = part.strip()
                known = did_you_mean(entry, self._names)
                client, dot, _ = entry.partition(".")
                if not known and dot and client not in self._clients:
                    known = nearest_or_all(client, self._clients, "clients")
                known = known or nearest_or_all(entry, self._names, "sensors")
                example = next(iter(self._labels), "client.sensor")
                raise ConfigError(
                    f"leave_out (--leave-out) names '{entry}', which is no sensor"
                    f"{known}; pass sensors such as {example}"
                )


def _matching(entry: str, labels: dict[str, str]) -> set[str]:
    if not set("*?") & set(entry):
        return set()
    return {name for label, name in labels.items() if fnmatchcase(label, entry)}


def named_sensors(
    option: str, value: str, known: Mapping[str, Sequence[str]], words: Sequence[str]
) -> tuple[set[str], dict[str, set[str]]]:
    """Read a list such as "auto,boiler.energy,pump.hours": words, and sensors by client.

    Of a single client sensors may also be given without its name.
    """
    labels: dict[str, tuple[str, str]] = {}
    for client, sensors in known.items():
        for sensor in sensors:
            labels[f"{client}.{sensor}"] = (client, sensor)
            if len(known) == 1:
                labels.setdefault(sensor, (client, sensor))
    named, found = set(), {client: set() for client in known}
    parts = value.split(",") if value.strip() else []
    while parts:
        for end in range(len(parts), 0, -1):
            entry = ",".join(parts[:end]).strip()
            if entry in words or entry in labels:
                break
        else:
            entry, flag = parts[0].strip(), option.replace("_", "-")
            allowed = "".join(f"'{word}', " for word in words) + ("or " if words else "")
            example = next(iter(labels), "client.sensor")
            raise ConfigError(
                f"{option} (--{flag}) names '{entry}', which is no sensor"
                f"{did_you_mean(entry, labels)}; pass {allowed}sensors such as {example}"
            )
        if entry in labels:
            client, sensor = labels[entry]
            found[client].add(sensor)
        else:
            named.add(entry)
        del parts[:end]
    return named, found
