"""Which control panels a study of recordings has, and how they are made from a seed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedgranger._version import __version__
from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.errors import ConfigError, DataError
from fedgranger_research.recordings.journal import Journal, run_controls
from fedgranger_research.recordings.panels import (
    add_edge,
    default_steps,
    null_control,
    odd_control,
)
from fedgranger_research.recordings.trial import Control, fitting_config

FEWEST_STEPS = 20
NULL_STREAM, ODD_STREAM, EDGE_STREAM = range(3)


class RecordingStudy:
    """Null, odd-client and added-edge panels of some recordings.

    The same seed makes the same panels, however many there are and in whatever order; the added
    edges of all sizes are added to the null panels, between the same clients.

    Args:
        units: a panel per machine or run, all with the same clients.
        config: options of the fit; its seed is that of the panels, too.
        num_panels: panels of each kind and size.
        num_steps: their length, or None for most of what the recordings have room for.
        sizes: of added edges, in standard deviations of the effect's innovation.
    """

    def __init__(
        self,
        units: Mapping[str, Panel],
        config: RunConfig,
        *,
        num_panels: int = 40,
        num_steps: int | None = None,
        sizes: Sequence[float] = (0.2, 0.5, 1.0),
    ) -> None:
        num_clients = len(next(iter(units.values())))
        if num_clients < 2:
            raise ConfigError("one client only; at least two are needed")
        for size in sizes:
            if not (size > 0 and np.isfinite(size)):
                raise ConfigError(f"sizes has {size}; every size must be a positive number")
        self.units, self.config, self.sizes = units, config, tuple(dict.fromkeys(sizes))
        self.num_panels = num_panels
        self.num_steps = num_steps or default_steps(units, num_clients)
        if self.num_steps < FEWEST_STEPS:
            raise DataError(
                f"{num_clients} stretches of the recordings have {self.num_steps} steps at most; "
                f"at least {FEWEST_STEPS} are needed"
            )

    @property
    def keys(self) -> list[str]:
        """Names of all panels."""
        kinds = ["null", "odd", *(f"added-{size:g}" for size in self.sizes)]
        if len(next(iter(self.units.values()))) == 2:
            kinds.remove("odd")  # the same as null
        return [f"{kind}/{index}" for kind in kinds for index in range(self.num_panels)]

    def control(self, key: str) -> Control:
        """Make a panel from its name."""
        kind, _, index = key.partition("/")

        def stream(number: int) -> np.random.Generator:
            return np.random.default_rng([self.config.seed, int(index), number])

        if kind == "odd":
            return odd_control(self.units, self.num_steps, key, stream(ODD_STREAM))
        null = null_control(self.units, self.num_steps, key, stream(NULL_STREAM))
        if kind == "null":
            return null
        size = float(kind.removeprefix("added-"))
        return add_edge(null, size, key, stream(EDGE_STREAM))

    @property
    def question(self) -> dict[str, Any]:
        """All that the outcome of a panel depends on beside its name."""
        digest = hashlib.sha256()
        for unit, panel in self.units.items():
            digest.update(f"{unit} {panel.data_hash()}".encode())
        return {
            "version": __version__,
            "data": digest.hexdigest(),
            "steps": self.num_steps,
            "config": self.config.to_mapping(),
        }

    def run(
        self,
        path: Path | None = None,
        *,
        workers: int = 1,
        report: Callable[[str, int, int], None] = lambda *_: None,
    ) -> list[dict[str, Any]]:
        """Test every panel that the file at `path` does not have yet; return all outcomes."""
        return run_controls(
            Journal(path, self.question),
            self.keys,
            self.control,
            lambda control: fitting_config(self.config, control),
            workers=workers,
            report=report,
        )
