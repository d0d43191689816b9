"""The option `leave_out`: columns that are not read, named for one client or for all."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from fedgranger.data.input_checks import nearest, nearest_or_all
from fedgranger.errors import ConfigError


class LeftOut:
    """Finds the columns that `leave_out` names, client by client, then says what it never found.

    A name may hold a comma: the longest match counts.
    """

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
                known = nearest(entry, self._names)
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
