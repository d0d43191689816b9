"""The manifest of a run: what was done, with what, and how it ended."""

from __future__ import annotations

import platform
import time
from importlib.metadata import version
from typing import Any

import numpy as np

from fedgranger._version import __version__
from fedgranger.client.quality import local_fit
from fedgranger.config import RunConfig
from fedgranger.convergence import CRITERION, NOT_TRAINED
from fedgranger.data.findings import Finding
from fedgranger.messages import PASS_REPORT_BYTES, hello_bytes, message_bytes, state_bytes
from fedgranger.runtime.inprocess import Snapshot
from fedgranger.runtime.seasons import Seasonless
from fedgranger.runtime.setup import Setup
from fedgranger.server.trainer import NEWTON_TOLERANCE

__all__ = ["describe"]


def _status(final: Snapshot, tolerance: float, *, exact: bool) -> str:
    unit, units = ("round", "rounds") if exact else ("pass", "passes")
    distance, count = final.progress.distance, f"{final.pass_index} {units}"
    reached = f"{CRITERION} {f'{distance:.2g}' if np.isfinite(distance) else 'not yet known'}"
    if tolerance == 0:
        return f"ran all {count}: {reached}"
    if final.progress.distance <= tolerance:
        return f"converged after {count}: {reached}, tolerance {tolerance:g}"
    return (
        f"stopped at the last allowed {unit}, {final.pass_index}: {reached}, above the tolerance "
        f"{tolerance:g}; raise 'passes' or 'tolerance'"
    )


def describe(
    seasonless: Seasonless,
    config: RunConfig,
    setup: Setup,
    final: Snapshot | None,
    failure: str,
    data_hash: str,
    timings: dict[str, float],
) -> dict[str, Any]:
    """Collect versions, data facts, how training ended (None: there was none, or why) and bytes."""
    panel, clients, sent = seasonless.panel, {}, {}
    passes = 0 if final is None else final.pass_index
    for stream in setup.streams:
        p = stream.model.state_dim
        num_periods = len(seasonless.seasons[stream.name].lengths)
        size = (p, num_periods)
        sent[stream.name] = _bytes(size, setup.num_pairs, passes, panel.num_steps, config)
        clients[stream.name] = {
            "num_sensors": stream.model.num_sensors,
            "state_dim": p,
            "state_model": stream.model.method,
            "noise_share": stream.model.noise_share,
            "missing_share": round(1 - float(stream.is_observed.mean()), 6),
            "notes": [*seasonless.notes[stream.name], *stream.model.notes],
            "season": seasonless.facts(stream.name),
            "treatment": panel[stream.name].treatment.to_mapping(),
            "local_fit": local_fit(stream).to_mapping(
                panel[stream.name].sensors, 1 - panel[stream.name].observed.mean(axis=0)
            ),
        }
    return {
        "fedgranger_version": __version__,
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("jax", "numpy", "scipy", "scikit-learn")},
        },
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "runtime": "inprocess",
        "seed": config.seed,
        "data": {
            "hash": data_hash,
            "num_steps": panel.num_steps,
            "num_segments": int(panel.segment_starts.sum()),
            "notes": list(panel.notes),
            "findings": [_plain(finding) for finding in panel.findings or ()],
            "clients": clients,
        },
        "training": _training(setup, config, final, failure),
        "bytes": sent,
        "timings": timings,
        "config": config.to_mapping(),
    }


def _plain(finding: Finding) -> dict[str, Any]:
    """A finding for JSON, which has no NaN."""
    values = finding._asdict()
    values["value"] = finding.value if np.isfinite(finding.value) else None
    return values


def _training(
    setup: Setup, config: RunConfig, final: Snapshot | None, failure: str
) -> dict[str, Any]:
    """How training ended, and with which step sizes."""
    if failure:
        return {
            "solver": config.training_solver,
            "rounds": 0,
            "converged": False,
            "status": f"training failed, and the edge tests did without it: {failure}",
        }
    if final is None:
        return dict(NOT_TRAINED)
    exact = config.training_solver == "newton"
    tolerance = NEWTON_TOLERANCE if exact else config.tolerance
    distance, converged = final.progress.distance, final.progress.distance <= tolerance
    chosen = [
        name
        for name in ("local_step_size", "feedback_step_size", "server_step_size")
        if getattr(config, name) == "auto"
    ]
    step_sizes = {
        stream.name: {"local": c.local, "feedback": c.feedback, "server": s.server}
        for stream, c, s in zip(
            setup.streams, setup.client_step_sizes, setup.server_step_sizes, strict=True
        )
    }
    return {
        "solver": config.training_solver,
        "window": setup.num_pairs if exact else setup.window,
        "passes": final.pass_index,
        "rounds": final.pass_index * (1 if exact else setup.num_rounds),
        "converged": converged,
        "criterion": CRITERION,
        "distance": distance if np.isfinite(distance) else None,
        "status": _status(final, tolerance, exact=exact),
        "step_sizes": step_sizes,
        "step_size_reason": (
            "only feedback_step_size / local_step_size matters to exact solves"
            if exact
            else f"{', '.join(chosen)} chosen so that each side's largest mean-square gain is "
            f"{config.step_safety:g} (divergence is possible from 2 for both together)"
            if chosen
            else "given"
        ),
    }


def _bytes(
    size: tuple[int, int], num_pairs: int, passes: int, num_steps: int, config: RunConfig
) -> dict[str, int]:
    """Payload bytes of one client with so many (states, periods): per training step, and in all."""
    state_dim, num_periods = size
    up, down = message_bytes(state_dim)
    hello, state_hello = hello_bytes(state_dim, num_periods)
    for_tests = state_hello + state_bytes(state_dim) * num_steps if config.test != "none" else 0
    if config.solver == "none":
        up = down = hello = 0
    steps, filtered = passes * num_pairs, 8 * state_dim
    up_training = up * steps + PASS_REPORT_BYTES * passes
    if (
        config.training_solver == "newton"
    ):  # filtered states only once; one more message than answers
        up_training = filtered * num_pairs + (up - filtered) * (passes + 1) * num_pairs
    return {
        "once": hello,
        "edge_tests": for_tests,
        "up_per_step": up,
        "down_per_step": down,
        "up_total": hello + for_tests + up_training,
        "down_total": down * steps,
    }
