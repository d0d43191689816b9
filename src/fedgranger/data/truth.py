"""`Truth`: what a simulation knows and a fit must never read."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from fedgranger.disk import write_text
from fedgranger.errors import DataError


@dataclass(frozen=True, eq=False)
class Truth:
    """The system behind simulated data.

    Attributes:
        clients: names, in the order of the blocks of `transition`.
        edges: (cause, effect) pairs with a non-zero block.
        transition: A, P x P; block [m, n] is the influence of n on m.
        state_dims: states per client.
        observation_matrices: C_mm per client; empty when read from `truth.json`.
        process_cov: Q, P x P, or None when read from `truth.json`.
        measurement_covs: R_mm per client; empty when read from `truth.json`.
        dead_time: steps that an edge takes beyond the usual one.
        reading_feedback: share of every influence that acts through the sensors' readings.
    """

    clients: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    transition: np.ndarray
    state_dims: dict[str, int]
    observation_matrices: dict[str, np.ndarray] = field(default_factory=dict)
    process_cov: np.ndarray | None = None
    measurement_covs: dict[str, np.ndarray] = field(default_factory=dict)
    dead_time: int = 0
    reading_feedback: float = 0.0

    def rows(self, client: str) -> slice:
        """Rows (and columns) of a client in `transition`."""
        start = 0
        for name in self.clients:
            stop = start + self.state_dims[name]
            if name == client:
                return slice(start, stop)
            start = stop
        raise DataError(f"no client '{client}' in the truth; it has {', '.join(self.clients)}")

    def block(self, effect: str, cause: str) -> np.ndarray:
        """A_mn with m = effect, n = cause."""
        return self.transition[self.rows(effect), self.rows(cause)]

    def write(self, path: str | Path) -> None:
        """Write `truth.json`."""
        table = {
            "clients": list(self.clients),
            "edges": [list(edge) for edge in self.edges],
            "transition": self.transition.tolist(),
            "state_dims": self.state_dims,
        }
        extra = {"dead_time": self.dead_time, "reading_feedback": self.reading_feedback}
        table |= {key: value for key, value in extra.items() if value}
        write_text(Path(path), json.dumps(table, indent=1) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> Truth:
        """Read `truth.json`.

        Raises:
            DataError: the file is absent, not JSON, or lacks one of the four keys.
        """
        try:
            table = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise DataError(f"{path}: cannot be read as JSON ({error})") from None
        missing = [
            key
            for key in ("clients", "edges", "transition", "state_dims")
            if not isinstance(table, dict) or key not in table
        ]
        if missing:
            raise DataError(f"{path}: '{missing[0]}' is missing; is this a truth.json?")
        try:
            truth = cls(
                tuple(table["clients"]),
                tuple((cause, effect) for cause, effect in table["edges"]),
                np.array(table["transition"], dtype=np.float64),
                {name: int(table["state_dims"][name]) for name in table["clients"]},
                dead_time=int(table.get("dead_time", 0)),
                reading_feedback=float(table.get("reading_feedback", 0.0)),
            )
        except (TypeError, ValueError, KeyError) as error:
            raise DataError(f"{path}: not the content of a truth.json ({error!r})") from None
        total = sum(truth.state_dims.values())
        if truth.transition.shape != (total, total):
            raise DataError(
                f"{path}: transition has shape {truth.transition.shape} but state_dims add up to "
                f"{total}"
            )
        return truth
