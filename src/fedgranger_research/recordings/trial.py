"""One control panel through the public fit, and through the textbook test beside it."""

from __future__ import annotations

import time
import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np

from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.errors import FedGrangerError
from fedgranger.federation.direct import state_source
from fedgranger.runtime.fitting import fit_panel
from fedgranger.runtime.setup import set_up
from fedgranger.tested_facts import InferenceFacts
from fedgranger_research.added_noise import infer_with_added_noise, with_added_noise
from fedgranger_research.recordings.textbook import var_p_values

ABSENT, ADDED, UNKNOWN = "absent", "added", "unknown"


class Source(NamedTuple):
    """Where a client's rows come from: a unit (machine, run) and its rows `start:stop`."""

    unit: str
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class Control:
    """A panel about which something is known by construction.

    Attributes:
        key: unique name within a study.
        kind: null, odd or added (or a name of the caller's own).
        arrays: (time, sensor) per client; NaN marks a missing sample.
        sources: where each client's rows come from; may be empty.
        truths: (cause, effect) -> absent or added; a pair that is not listed is unknown.
        size: of the added edge, in standard deviations of the effect's innovation.
        added_noise: s.d. of the noise that clients add to their states, in each state's own.
    """

    key: str
    kind: str
    arrays: Mapping[str, np.ndarray]
    truths: Mapping[tuple[str, str], str]
    sources: Mapping[str, Source] = field(default_factory=dict)
    size: float = 0.0
    added_noise: float = 0.0

    @property
    def seed(self) -> int:
        """Of the noise: another one for every panel."""
        return zlib.crc32(self.key.encode())


def study_config(options: Mapping[str, Any]) -> RunConfig:
    """Options of `fit` for a study of edge tests: FedGC is trained only when the test needs it."""
    solver = "newton" if options.get("test") == "asymptotic" else "none"
    return RunConfig.from_mapping({"solver": solver, **options})


def fitting_config(config: RunConfig, control: Control) -> RunConfig:
    """The options for a panel: a client has at most as many states as sensors that change."""
    if config.state_dim == "auto":
        return config
    dims = {}
    for name, values in control.arrays.items():
        dim = config.state_dim_of(name)
        if dim != "auto":
            dims[name] = min(int(dim), values.shape[1])
    return replace(config, state_dim=dims)


def run_control(control: Control, config: RunConfig) -> dict[str, Any]:
    """Test every pair; plain values for one line of JSON.

    A panel that the fit refuses has a `reason` and no p-values; the textbook test is made
    wherever the local models could be identified.
    """
    started = time.perf_counter()
    panel = Panel.from_arrays(control.arrays)
    fitted = _fitted_with_noise if control.added_noise else _fitted
    found, reason, facts = fitted(panel, config, control)
    seconds = time.perf_counter() - started
    textbook = _textbook(panel, config, control)
    pairs = []
    for cause, effect in ((c, e) for e in panel.names for c in panel.names if c != e):
        pairs.append(
            {
                "cause": cause,
                "effect": effect,
                "truth": control.truths.get((cause, effect), UNKNOWN),
                "p_value": _plain(found.get((cause, effect), (None, None))[0]),
                "place": found.get((cause, effect), (None, None))[1],
                "p_textbook": _plain(textbook.get((cause, effect))),
            }
        )
    return {
        "key": control.key,
        "kind": control.kind,
        "size": control.size,
        "reason": reason,
        "test": facts.test or config.test,
        "units": {name: source.unit for name, source in control.sources.items()},
        "pairs": pairs,
        "seconds": round(seconds, 3),
    }


def _fitted(
    panel: Panel, config: RunConfig, _: Control
) -> tuple[dict[tuple[str, str], tuple[float, int]], str | None, InferenceFacts]:
    """P-value and place in the order of certainty of every pair, why not, and facts."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = fit_panel(panel, config)
    except (FedGrangerError, np.linalg.LinAlgError) as error:
        return {}, str(error), InferenceFacts()
    facts = result.manifest.inference
    if result.inference is None:
        return {}, facts.reason or "no test was made", facts
    table = result.edges(sort=True)
    rows = zip(table["cause"], table["effect"], table["p_value"].astype(float), strict=True)
    return {(c, e): (p, place) for place, (c, e, p) in enumerate(rows)}, None, facts


def _fitted_with_noise(
    panel: Panel, config: RunConfig, control: Control
) -> tuple[dict[tuple[str, str], tuple[float, int]], str | None, InferenceFacts]:
    """The same with noise added to the states."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tested = infer_with_added_noise(panel, config, control.added_noise, control.seed)
    except (FedGrangerError, np.linalg.LinAlgError) as error:
        return {}, str(error), InferenceFacts()
    found, facts = tested
    if found is None:
        return {}, str(facts.reason), facts
    table = found.edges.sort_values(["p_value", "statistic"], ascending=[True, False])
    rows = zip(table["cause"], table["effect"], table["p_value"].astype(float), strict=True)
    return {(c, e): (p, place) for place, (c, e, p) in enumerate(rows)}, None, facts


def _textbook(panel: Panel, config: RunConfig, control: Control) -> dict[tuple[str, str], float]:
    """The same states, taken for measurements without error."""
    try:
        with warnings.catch_warnings(), jax.enable_x64(True):
            warnings.simplefilter("ignore")
            setup = set_up(panel, config)
            source = state_source(panel, {data.name: data.model for data in setup.client_data})
            source = with_added_noise(source, control.added_noise, control.seed)
            chunks = list(source.chunks())
    except (FedGrangerError, np.linalg.LinAlgError):
        return {}
    states = np.concatenate([chunk.states for chunk in chunks])
    complete = np.concatenate([chunk.observed.all(axis=1) for chunk in chunks])
    follows = ~np.concatenate([chunk.starts for chunk in chunks])
    try:
        p = var_p_values(states, source.dims, np.stack([complete, follows], axis=1))
    except np.linalg.LinAlgError:
        return {}
    return {
        (cause, effect): float(p[m, n])
        for m, effect in enumerate(source.names)
        for n, cause in enumerate(source.names)
        if m != n
    }


def _plain(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else float(value)
