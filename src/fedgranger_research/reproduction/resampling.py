"""Converged FedGC estimates of one six-client data set and of its moving-block resamples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
import pandas as pd

from fedgranger.client.params import known_models
from fedgranger.config import RunConfig
from fedgranger.data.client_data import ClientData
from fedgranger.data.panel import Panel
from fedgranger.data.synthetic import simulate
from fedgranger.runtime.setup import set_up
from fedgranger_research.reproduction.limits import row_limits


@dataclass(frozen=True)
class Resample:
    """One block-bootstrap resample of the six-client data (p = 2, d = 8, 9 of 30 edges).

    Attributes:
        index: which resample.
        num_steps: T.
        block_length: time steps per block, all clients together.
        seed: of the system and its data; resamples have seeds of their own.
    """

    index: int
    num_steps: int = 5000
    block_length: int = 50
    seed: int = 0

    @property
    def label(self) -> str:
        """Short name for files."""
        return f"resample{self.index:03d}"

    @property
    def work(self) -> int:
        """How long it takes, in some unit."""
        return self.num_steps

    def key(self) -> dict[str, Any]:
        """Everything the outcome depends on."""
        return asdict(self)

    def run(self, report: Callable[[str, int, int], None] = lambda *_: None) -> pd.DataFrame:
        """Estimate all off-diagonal blocks.

        The converged estimate is the solution of the learner's linear equations, at which training
        with all data in one window ends; local models are known.

        Returns:
            Columns resample, effect, cause, row, col, is_present, estimate.
        """
        config = RunConfig()
        with jax.enable_x64(True):
            panel, truth = simulate(6, self.num_steps, edges=9, seed=self.seed)
            rng = np.random.default_rng([self.seed, self.index])
            resampled = block_resample(panel, self.block_length, rng)
            setup = set_up(resampled, config, known_models(truth))
            silent = {data.name: np.zeros(data.model.num_sensors) for data in setup.client_data}
            limits = row_limits(setup, config, silent)
        rows = []
        for effect in setup.names:
            causes = [name for name in setup.names if name != effect]
            p = truth.state_dims[effect]
            for n, cause in enumerate(causes):
                block = limits[effect].granger[:, p * n : p * (n + 1)]
                present = (cause, effect) in truth.edges
                rows += [
                    (self.index, effect, cause, i, j, present, float(block[i, j]))
                    for i, j in np.ndindex(*block.shape)
                ]
        report("resamples", 1, 1)
        columns = ["resample", "effect", "cause", "row", "col", "is_present", "estimate"]
        return pd.DataFrame(rows, columns=columns)


def block_resample(panel: Panel, length: int, rng: np.random.Generator) -> Panel:
    """Draw moving blocks with replacement, the same for all clients, up to the panel's length.

    The joints are gaps in time, so filters start anew there and no step crosses one.
    """
    num_steps = panel.num_steps
    length = min(length, num_steps)
    starts = rng.integers(0, num_steps - length + 1, size=-(-num_steps // length))
    order = np.concatenate([np.arange(start, start + length) for start in starts])[:num_steps]
    time = np.arange(num_steps) + 10 * (np.arange(num_steps) // length)
    clients = tuple(
        ClientData(client.name, client.sensors, client.values[order], client.observed[order])
        for client in panel.clients
    )
    return Panel(clients, time)
