r"""One setting of HAI under stress: uncertainty and errors along training on its normal operation.

Three clients (boiler P1, turbine P2, water treatment P3), normal operation only, the paper's recipe
for real data (`state_model="paper"`: standardised sensors, two states per client). The recording is
taken as the mean of the measurements, \(\Sigma_y = v I\) is what a second measurement would change;
sensors have variance 1 in these units. One pass, one row per round.

One row every 100 s: as many rounds as an hour of rows at 1 Hz would give then cover 86 hours, and
a second changes too little: from rows at 1 Hz the clients' local transitions have spectral radii up
to 0.9999, from these at most 0.991.

HAI has no known A, so the error is that of `l2_error` with another target: \(\hat A^\circ\), the
learner's limit on the recording without added noise, stands for \(A\); \(\hat A^*\) is its limit
under the regime's noise. Errors of the mean are \(\|E\hat A - \hat A^\circ\|_F\) and
\(\|E\hat A - \hat A^*\|_F\) per block; that of a run that draws its start and its noise is
\((\|E\hat A - \hat A^\circ\|_F^2 + \operatorname{tr}\Sigma_A)^{1/2}\).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from fedgranger.config import RunConfig
from fedgranger.data.client_data import ClientData
from fedgranger.data.panel import Panel
from fedgranger.errors import DataError
from fedgranger.linalg.spectral import spectral_radius
from fedgranger.runtime.propagation import propagate
from fedgranger.runtime.setup import Setup, set_up
from fedgranger.uncertainty.record import Propagation
from fedgranger_research import datasets
from fedgranger_research.reproduction.limits import RowLimit, error_rows, row_limits
from fedgranger_research.reproduction.runner import Report

CLIENTS = ("P1", "P2", "P3")
STATE_DIM = 2
FEWEST_STEPS = 150


@dataclass(frozen=True)
class HaiRegime:
    """One setting.

    Attributes:
        path: HAI's folder.
        noise_var: Σ_y per sensor.
        granger_prior_var: Σ_A⁰ per entry.
        augmentation_prior_var: Σ_θ⁰ per entry.
        interval: seconds between the rows that are used.
        num_rounds: training steps, fewer where the recording is shorter.
        num_checkpoints: how often the quantities are recorded after the start; 91 divide the
            rounds evenly, so that one length is compiled.
        step_safety: of automatic step sizes, which are the same in all regimes.
    """

    path: Path
    noise_var: float = 0.1
    granger_prior_var: float = 1e-2
    augmentation_prior_var: float = 1e-2
    interval: float = 100.0
    num_rounds: int = 3095
    num_checkpoints: int = 91
    step_safety: float = 0.3

    @property
    def label(self) -> str:
        """Short name for files."""
        return "hai-stress"

    @property
    def work(self) -> int:
        """How long it takes, in some unit."""
        return self.num_rounds

    def key(self) -> dict[str, Any]:
        """What the outcome depends on; files that change are noticed by size and time."""
        options = asdict(self)
        del options["path"]
        return options | {"files": _stamp(self.path)}

    def run(self, report: Report = lambda *_: None) -> pd.DataFrame:
        """Propagate and tabulate.

        Returns:
            The columns of `Propagation.table`. Besides its quantities those of the module's text,
            named as in `regimes.Regime.run` with Â° in place of A, and at the last round `sensors`
            and `self_radius`, the spectral radius of A_mm.
        """
        with jax.enable_x64(True):
            setup, config = prepare(self)
            noise = {
                s.name: np.full(s.model.num_sensors, self.noise_var) for s in setup.client_data
            }
            found = propagate(
                setup, config, noise, num_checkpoints=self.num_checkpoints, report=report
            )
            limits = row_limits(setup, config, noise)
            quiet = row_limits(setup, config, {name: 0 * var for name, var in noise.items()})
        errors = error_rows(found, limits, partial(_without_noise, quiet))
        more = [*errors, *_facts(found, setup)]
        table = pd.DataFrame(more, columns=found.table.columns)
        return pd.concat([found.table, table], ignore_index=True)


def prepare(regime: HaiRegime) -> tuple[Setup, RunConfig]:
    """Everything that `propagate` needs."""
    config = RunConfig(
        state_model="paper",
        state_dim=STATE_DIM,
        step_safety=regime.step_safety,
        augmentation_prior_scale=float(np.sqrt(regime.augmentation_prior_var)),
        granger_prior_scale=float(np.sqrt(regime.granger_prior_var)),
    )
    return set_up(recording(regime), config), config


def recording(regime: HaiRegime) -> Panel:
    """The rows of normal operation that a regime uses.

    Raises:
        DataError: the files are not HAI's, or too short.
    """
    return _thinned(regime.path, _stamp(regime.path), regime.interval, regime.num_rounds + 1)


def _stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return tuple((file.name, file.stat().st_size, int(file.stat().st_mtime)) for file in files)


@lru_cache(maxsize=1)
def _thinned(path: Path, stamp: Any, interval: float, num_steps: int) -> Panel:  # noqa: ARG001
    """Read once for all regimes (the stamp notices new files) and keep a row per interval."""
    panel = datasets.load("hai", path).train
    starts = np.flatnonzero(panel.segment_starts)
    age = np.arange(panel.num_steps)
    age = age - starts[np.searchsorted(starts, age, side="right") - 1]
    seconds = np.diff(panel.time) / np.timedelta64(1, "s")
    kept = np.flatnonzero(age % max(round(interval / float(np.median(seconds))), 1) == 0)
    kept = kept[:num_steps]
    if len(kept) < FEWEST_STEPS:
        raise DataError(
            f"{path}: its normal operation has {len(kept)} rows {interval:g} s apart, "
            f"{FEWEST_STEPS} are needed; give the publisher's train*.csv"
        )
    clients = tuple(_rows(client, kept) for client in panel)
    return replace(panel, clients=clients, time=panel.time[kept])


def _rows(client: ClientData, kept: np.ndarray) -> ClientData:
    """Some rows, without the sensors that are constant there."""
    values = client.values[kept]
    moving = np.flatnonzero(np.ptp(values, axis=0) > 0)
    sensors = tuple(client.sensors[j] for j in moving)
    return ClientData(client.name, sensors, values[:, moving], client.observed[kept][:, moving])


def _without_noise(limits: dict[str, RowLimit], effect: str, cause: str) -> np.ndarray:
    """The block Â° of the learner's limit on the recording as it is."""
    n = [name for name in CLIENTS if name != effect].index(cause)
    return limits[effect].granger[:, STATE_DIM * n : STATE_DIM * (n + 1)]


def _facts(found: Propagation, setup: Setup) -> list[tuple]:
    last = found.table["round"].max()
    rows = []
    for stream in setup.client_data:
        radius = spectral_radius(stream.model.self_transition)
        facts = {"sensors": float(stream.model.num_sensors), "self_radius": radius}
        rows += [(last, stream.name, "", name, x, np.nan, np.nan) for name, x in facts.items()]
    return rows
