r"""HAI under stress: traces and errors along training for several \(\Sigma_y\) and \(\Sigma_A^0\).

Three clients (boiler P1, turbine P2, water treatment P3), normal operation only, the paper's recipe
for real data (`state_model="paper"`: standardised sensors, two states per client). The recording is
taken as the mean of the measurements, \(\Sigma_y = v I\) is what a second measurement would change;
sensors have variance 1 in these units. One pass, one row per round.

One row every 100 s: as many rounds as an hour of rows at 1 Hz would give then cover 86 hours, and
a second changes too little: from rows at 1 Hz every client's local transition comes out with a
spectral radius above 1, from these only the boiler's does.

HAI has no known A, so the error is that of `l2_error` with another target: \(\hat A^\circ\), the
learner's limit on the recording without added noise, stands for \(A\); \(\hat A^*\) is its limit
under the regime's noise. Errors of the mean are \(\|E\hat A - \hat A^\circ\|_F\) and
\(\|E\hat A - \hat A^*\|_F\) per block; that of a run that draws its start and its noise is
\((\|E\hat A - \hat A^\circ\|_F^2 + \operatorname{tr}\Sigma_A)^{1/2}\).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from fedgranger.config import RunConfig
from fedgranger.data import sets
from fedgranger.data.panel import ClientData, Panel
from fedgranger.errors import DataError
from fedgranger.evaluation.reproduction.limits import RowLimit
from fedgranger.evaluation.reproduction.reading import (
    column,
    ends,
    firsts,
    last_round,
    number,
    rows_where,
    select,
    settling,
    share,
    spread_over,
)
from fedgranger.evaluation.reproduction.runner import Item, Report
from fedgranger.linalg.spectral import spectral_radius
from fedgranger.runtime.propagation import propagate
from fedgranger.runtime.rows import single_row
from fedgranger.runtime.setup import Setup, set_up
from fedgranger.uncertainty.record import Propagation
from fedgranger.uncertainty.statistics import collect, unflatten

__all__ = ["SWEEPS", "HaiRegime", "hai_stress_item", "prepare", "recording", "regime_limits"]

TITLE = "HAI, normal operation: traces of Σ_A and Σ_θ and the error of Â for several Σ_y and Σ_A⁰"
COMPACT = "normal_train1_every100s.parquet"
SWEEPS: dict[str, tuple[float, float, float]] = {
    "noise_var": (1e-2, 1e-1, 1.0),
    "granger_prior_var": (1e-4, 1e-2, 1.0),
}
"""Low, medium and high Σ_y (per sensor, whose recorded variance is 1) and Σ_A⁰ (per entry)."""
CLIENTS = ("P1", "P2", "P3")
BLOCKS = tuple((effect, cause) for effect in CLIENTS for cause in CLIENTS if cause != effect)
QUANTITIES = (
    "granger_cov",
    "augmentation_cov",
    "granger_error",
    "granger_limit_error",
    "limit_error",
    "block_norm",
    "time_constant",
    "server_time_constant",
    "sensors",
    "self_radius",
)
STATE_DIM = 2
FEWEST_STEPS = 150
DECAYED = 0.05
"""A prior below this share of a trace no longer matters; levels this close are the same."""
PERCENT = f"{100 * DECAYED:.0f} %"


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
            noise = {s.name: np.full(s.model.num_sensors, self.noise_var) for s in setup.streams}
            found = propagate(
                setup, config, noise, num_checkpoints=self.num_checkpoints, report=report
            )
            limits = regime_limits(setup, config, self.noise_var)
            quiet = regime_limits(setup, config, 0.0)
        more = [*_errors(found, limits, quiet), *_facts(found, limits, setup)]
        table = pd.DataFrame(more, columns=found.table.columns)
        return pd.concat([found.table, table], ignore_index=True)


def hai_stress_item(folder: Path) -> Item:
    """The figure for the data below a folder (its subfolder `hai`).

    Raises:
        DataError: there is none.
    """
    path = folder / "hai"
    if not path.is_dir():
        raise DataError(
            f"{folder}: has no subfolder hai; give --data a folder with one that holds the "
            "publisher's files ('fedgranger datasets info hai' says which)"
        )
    return Item("hai-stress", TITLE, partial(_settings, path), _collect, _paragraph)


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


def regime_limits(setup: Setup, config: RunConfig, noise_var: float) -> dict[str, RowLimit]:
    """Â* and time constants of every row under white noise.

    As `limits.row_limits`, but without padding: HAI's clients have 30, 7 and 3 sensors, and a
    sensor that is only padding would move by ridge alone and be the slowest.
    """
    found = {}
    for m, name in enumerate(setup.names):
        row = single_row(setup, config, m)
        present = row.windows.observed_weights[..., None] > 0
        noise = jnp.where(present, noise_var, jnp.zeros_like(row.windows.noise))
        averages = collect(row.params, replace(row.windows, noise=noise))
        solution = np.linalg.solve(averages.gain, averages.drift) / averages.scale
        _, granger = unflatten(solution, averages.shape)
        first = averages.shape[0] * averages.shape[1]
        server = averages.gain[first:, first:]
        found[name] = RowLimit(granger, _time_constant(averages.gain), _time_constant(server))
    return found


def _time_constant(gain: np.ndarray) -> float:
    radius = float(np.abs(1 - np.linalg.eigvalsh(gain)).max())
    return 1 / (1 - radius) if radius < 1 else float("inf")


def _stamp(path: Path) -> tuple[tuple[str, int, int], ...]:
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return tuple((file.name, file.stat().st_size, int(file.stat().st_mtime)) for file in files)


@lru_cache(maxsize=1)
def _thinned(path: Path, stamp: Any, interval: float, num_steps: int) -> Panel:  # noqa: ARG001
    """Read once for all regimes (the stamp notices new files) and keep a row per interval."""
    compact = path / COMPACT
    panel = sets.load("hai", compact if compact.is_file() else path).train
    starts = np.flatnonzero(panel.segment_starts)
    age = np.arange(panel.num_steps)
    age = age - starts[np.searchsorted(starts, age, side="right") - 1]
    seconds = np.diff(panel.time) / np.timedelta64(1, "s")
    kept = np.flatnonzero(age % max(round(interval / float(np.median(seconds))), 1) == 0)
    kept = kept[:num_steps]
    if len(kept) < FEWEST_STEPS:
        raise DataError(
            f"{path}: its normal operation has {len(kept)} rows {interval:g} s apart, "
            f"{FEWEST_STEPS} are needed; give the publisher's train*.csv or {COMPACT}"
        )
    clients = tuple(_rows(client, kept) for client in panel)
    return replace(panel, clients=clients, time=panel.time[kept])


def _rows(client: ClientData, kept: np.ndarray) -> ClientData:
    """Some rows, without the sensors that are constant there."""
    values = client.values[kept]
    moving = np.flatnonzero(np.ptp(values, axis=0) > 0)
    sensors = tuple(client.sensors[j] for j in moving)
    return ClientData(client.name, sensors, values[:, moving], client.observed[kept][:, moving])


def _errors(
    found: Propagation, limits: dict[str, RowLimit], quiet: dict[str, RowLimit]
) -> list[tuple]:
    marks = sorted(found.table["round"].unique())
    rows = []
    for client, path in found.granger_paths.items():
        causes = [name for name in found.clients if name != client]
        for n, cause in enumerate(causes):
            part = slice(STATE_DIM * n, STATE_DIM * (n + 1))
            still, target = quiet[client].granger[:, part], limits[client].granger[:, part]
            for mark, mean in zip(marks, path[:, :, part], strict=True):
                rows.append((mark, client, cause, "granger_error", _norm(mean - still)))
                rows.append((mark, client, cause, "granger_limit_error", _norm(mean - target)))
            rows.append((marks[-1], client, cause, "limit_error", _norm(target - still)))
            rows.append((marks[-1], client, cause, "block_norm", _norm(still)))
    return [(*row, np.nan, np.nan) for row in rows]


def _facts(found: Propagation, limits: dict[str, RowLimit], setup: Setup) -> list[tuple]:
    last = found.table["round"].max()
    rows = []
    for stream in setup.streams:
        model, limit = stream.model, limits[stream.name]
        facts = {
            "time_constant": limit.time_constant,
            "server_time_constant": limit.server_time_constant,
            "sensors": float(model.num_sensors),
            "self_radius": spectral_radius(model.self_transition),
        }
        rows += [(last, stream.name, "", name, x, np.nan, np.nan) for name, x in facts.items()]
    return rows


def _norm(matrix: np.ndarray) -> float:
    return float(np.linalg.norm(matrix))


def _swept(*, quick: bool) -> list[tuple[str, float]]:
    """Quick: the extremes."""
    step = 2 if quick else 1
    return [(name, value) for name, values in SWEEPS.items() for value in values[::step]]


def _settings(path: Path, *, quick: bool = False) -> list[HaiRegime]:
    base = HaiRegime(path, num_rounds=201, num_checkpoints=8) if quick else HaiRegime(path)
    return [replace(base, **{name: value}) for name, value in _swept(quick=quick)]


def _collect(tables: list[pd.DataFrame], *, quick: bool = False) -> pd.DataFrame:
    """The numbers of the figure; column `single_run` as in `l2_error.collect`."""
    parts = []
    for (name, value), table in zip(_swept(quick=quick), tables, strict=True):
        chosen = rows_where(table, table["quantity"].isin(QUANTITIES))
        chosen.insert(0, "sweep", name)
        chosen.insert(1, "value", value)
        parts.append(chosen)
    table = pd.concat(parts, ignore_index=True)
    keys = ["sweep", "value", "round", "client", "cause"]
    traces = rows_where(table, table["quantity"] == "granger_cov")[[*keys, "total"]]
    joined = table.merge(
        pd.DataFrame(traces).rename(columns={"total": "trace"}), on=keys, how="left"
    )
    of_mean = np.isin(column(joined, "quantity"), ["granger_error", "granger_limit_error"])
    total, trace = column(joined, "total"), np.maximum(column(joined, "trace"), 0)
    single_run = np.where(of_mean, np.sqrt(total**2 + trace), np.nan)
    return joined.assign(single_run=single_run).drop(columns="trace")


def _paragraph(table: pd.DataFrame) -> tuple[str, str]:
    claim = (
        "For HAI the paper draws the error of Â's mean to A, block by block, for several Σ_y and "
        "Σ_A⁰ (what A is for HAI it does not say), and traces of a nonlinear model only. Its text "
        "says that all traces settle, that their level does not depend on the prior, and that a "
        "larger Σ_y makes variances decay faster and, when very large, the estimate worse."
    )
    parts = [_about_run(table), _about_noise(table), _about_prior(table), _about_error(table)]
    return claim, " ".join(parts)


def _about_run(table: pd.DataFrame) -> str:
    sensors = ", ".join(f"{m} {_fact(table, 'sensors', m):.0f}" for m in CLIENTS)
    radii = ", ".join(number(_fact(table, "self_radius", m)) for m in CLIENTS)
    return (
        f"{last_round(table)} rounds (levels are medians over the last fifth), live sensors "
        f"{sensors}, two states each, ρ(A_mm) {radii}; A is replaced by Â°, the learner's limit "
        "without added noise."
    )


def _about_noise(table: pd.DataFrame) -> str:
    low, *_, high = SWEEPS["noise_var"]
    level = _levels(table, "granger_cov", "noise_var")
    growth = [x[high] / x[low] for x in level.values()]
    left, ratio, moving = [], [], []
    for client in CLIENTS:
        theta = select(table, "augmentation_cov", client, sweep="noise_var")
        start, prior, total = firsts(theta, "prior"), ends(theta, "prior"), ends(theta)
        shares = [share(max(prior[value], 0) / start[value]) for value in (low, high)]
        left.append(f"{shares[0]} and {shares[1]} (θ{client[1:]})")
        ratio.append(f"{number(total[high] / total[low])} (θ{client[1:]})")
        moving += [f"{v:g} (θ{client[1:]})" for v, x in settling(theta).items() if x > DECAYED]
    return (
        f"Noise: tr Σ_A ends between {_span(level, low)} at Σ_y {low:g} and between "
        f"{_span(level, high)} at {high:g}, {number(min(growth))} to {number(max(growth))} times "
        f"as much. Of θ's prior {', '.join(left)} are left at Σ_y {low:g} and {high:g}; tr Σ_θ "
        f"itself, noise included, ends {', '.join(ratio)} times as large at {high:g} as at "
        f"{low:g}, and still changes by over {PERCENT} between the last two fifths at Σ_y "
        f"{', '.join(moving) or 'nowhere'}. The prior is still over {PERCENT} of tr Σ_A in "
        f"{_held(table, 'noise_var', low)[1]} at Σ_y {low:g} and in "
        f"{_held(table, 'noise_var', high)[1]} at {high:g}."
    )


def _about_prior(table: pd.DataFrame) -> str:
    sweep = "granger_prior_var"
    low, *_, high = SWEEPS[sweep]
    ratio = {b: spread_over(x.values()) for b, x in _levels(table, "granger_cov", sweep).items()}
    free = [b for b in BLOCKS if ratio[b] < 1 + DECAYED]
    apart = [f"{number(ratio[b])} ({_name(b)})" for b in BLOCKS if b not in free]
    held, text = _held(table, sweep, high)
    prior = _levels(table, "granger_cov", sweep, "prior")
    # linear in Σ_A⁰ and Σ_θ⁰, and the second is the same everywhere
    own = [(x[high] - x[low]) / (1 - low / high) / x[high] for b, x in prior.items() if b in held]
    whose = f": {share(max(own))} of it at most is Â's own start, the rest is θ's" if own else ""
    rounds, times = last_round(table), []
    for m in CLIENTS:
        server, slow = (_fact(table, f"{x}time_constant", m, sweep) for x in ("server_", ""))
        times.append(f"{number(rounds / server)} and {number(rounds / slow)} ({m})")
    return (
        f"Prior: with Σ_A⁰ from {low:g} to {high:g} the level of tr Σ_A is the same within "
        f"{PERCENT} in {_names(free)}"
        f"{' and differs by a factor ' + ', '.join(apart) if apart else ''}. The pass is "
        f"{', '.join(times)} time constants long of Â alone and of the slowest direction of "
        f"(θ, Â). At Σ_A⁰ {high:g} a prior is over {PERCENT} of tr Σ_A in {text}{whose}."
    )


def _about_error(table: pd.DataFrame) -> str:
    low, *_, high = SWEEPS["noise_var"]
    error, to_limit, moved = (
        _levels(table, name, "noise_var", unit="block_norm")
        for name in ("granger_error", "granger_limit_error", "limit_error")
    )
    texts = [f"{number(x[low])} and {number(x[high])} ({_name(b)})" for b, x in error.items()]
    worse = [b for b, x in error.items() if x[high] > x[low]]
    above = [sum(x[value] > 1 for x in error.values()) for value in (low, high)]
    mean, single = (
        _levels(table, "granger_error", "granger_prior_var", name)
        for name in ("total", "single_run")
    )
    apart = max(max(x.values()) - min(x.values()) for x in mean.values())
    ratio = max(spread_over(x.values()) for x in single.values())
    return (
        f"Error of the mean to Â° in units of ‖Â°‖, at Σ_y {low:g} and {high:g}: "
        f"{', '.join(texts)}. It starts at 1 (the mean of the start is 0) and ends above 1 in "
        f"{above[0]} and {above[1]} of 6 blocks; to the regime's own limit Â* it is between "
        f"{_span(to_limit, low)} and between {_span(to_limit, high)}. No drawn noise or start is "
        "in the mean: what moves it are the recorded rows, one per round at a constant step size, "
        f"and a θ that has not arrived. A larger Σ_y makes the error larger in {_names(worse)}; it "
        f"acts like ridge and at {high:g} takes Â* between {_span(moved, high)} ‖Â°‖ away from Â°. "
        f"Over Σ_A⁰ the mean's error differs by at most {number(apart)}, that of a single run ends "
        f"at most a factor {number(ratio)} apart."
    )


def _levels(
    table: pd.DataFrame, quantity: str, sweep: str, name: str = "total", unit: str | None = None
) -> dict[tuple[str, str], dict[float, float]]:
    """Ends of every block and regime, in units of another quantity if given."""
    found = {b: ends(select(table, quantity, *b, sweep=sweep), name) for b in BLOCKS}
    if unit is None:
        return found
    units = _levels(table, unit, sweep)
    return {b: {v: x / units[b][v] for v, x in level.items()} for b, level in found.items()}


def _held(table: pd.DataFrame, sweep: str, value: float) -> tuple[list[tuple[str, str]], str]:
    """Blocks whose trace still holds the prior, and the same in words with the largest share."""
    total, prior = (_levels(table, "granger_cov", sweep, name) for name in ("total", "prior"))
    shares = {b: prior[b][value] / total[b][value] for b in BLOCKS}
    held = [b for b in BLOCKS if shares[b] > DECAYED]
    return held, f"{_names(held)} (up to {share(max(shares.values()))})" if held else "no block"


def _fact(table: pd.DataFrame, name: str, client: str, sweep: str = "noise_var") -> float:
    """What is the same in all regimes of a sweep, or its value in the first."""
    return next(iter(ends(select(table, name, client, sweep=sweep)).values()))


def _span(levels: dict[tuple[str, str], dict[float, float]], value: float) -> str:
    low, *_, high = sorted(BLOCKS, key=lambda b: levels[b][value])
    return " and ".join(f"{number(levels[b][value])} ({_name(b)})" for b in (low, high))


def _names(blocks: Iterable[tuple[str, str]]) -> str:
    return ", ".join(_name(b) for b in blocks) or "no block"


def _name(block: tuple[str, str]) -> str:
    return f"Â{block[0][1:]}{block[1][1:]}"
