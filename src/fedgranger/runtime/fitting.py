"""Run a fit from a panel to a `Result`, with checkpoints and progress reports."""

from __future__ import annotations

import hashlib
import json
import platform
import time
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from fedgranger._version import __version__
from fedgranger.client.params import LocalModel
from fedgranger.config import RunConfig
from fedgranger.data.panel import Panel
from fedgranger.errors import ConvergenceWarning
from fedgranger.linalg.blocks import pack_square
from fedgranger.messages import message_bytes
from fedgranger.results import Result
from fedgranger.runtime import checkpoint
from fedgranger.runtime.inprocess import Snapshot, TraceRow, chunk_rounds, train
from fedgranger.runtime.setup import Setup, set_up

__all__ = ["fit_panel"]

CRITERION = "estimated relative distance of the parameters to their limit"


def fit_panel(
    panel: Panel,
    config: RunConfig,
    *,
    models: Mapping[str, LocalModel] | None = None,
    checkpoint_folder: Path | None = None,
    checkpoint_seconds: float = 10.0,
    resume: bool = False,
    report: Callable[[str, int, int], None] = lambda *_: None,
) -> Result:
    """Train in process and collect the result.

    Args:
        panel: the data.
        config: the options.
        models: local models that are known; the others are identified.
        checkpoint_folder: where to leave a checkpoint now and then and when interrupted.
        checkpoint_seconds: how often.
        resume: continue from the checkpoint in that folder.
        report: called with (what, done, total).
    """
    started = time.perf_counter()
    with jax.enable_x64(True):
        data_hash = panel.data_hash()
        fingerprint = _fingerprint(data_hash, config, models)
        resumed, trace = None, []
        if resume and checkpoint_folder is not None:
            resumed, trace = checkpoint.load(checkpoint_folder, fingerprint)
        setup = set_up(panel, config, models, report)
        prepared = time.perf_counter()

        def save(snapshot: Snapshot) -> None:
            if checkpoint_folder is not None:
                checkpoint.save(checkpoint_folder, snapshot, trace, fingerprint)

        final = _run(setup, config, resumed, trace, save, checkpoint_seconds, report)
        finished = time.perf_counter()
    timings = {
        "seconds_local_models": round(prepared - started, 3),
        "seconds_training": round(finished - prepared, 3),
    }
    manifest = _manifest(panel, config, setup, final, data_hash, timings)
    if not manifest["training"]["converged"] and config.tolerance > 0:
        warnings.warn(manifest["training"]["status"], ConvergenceWarning, stacklevel=2)
    return _result(panel, config, setup, final, trace, manifest)


def _run(
    setup: Setup,
    config: RunConfig,
    resumed: Snapshot | None,
    trace: list[TraceRow],
    save: Callable[[Snapshot], None],
    save_seconds: float,
    report: Callable[[str, int, int], None],
) -> Snapshot:
    chunks_per_pass = -(-setup.num_rounds // chunk_rounds(setup))
    total = config.passes * chunks_per_pass
    latest, last_saved = resumed, time.monotonic()
    if resumed is not None and resumed.is_finished:
        return resumed
    try:
        for snapshot, row in train(setup, config, resumed):
            latest = snapshot
            trace.append(row)
            report("training", latest.pass_index * chunks_per_pass + latest.chunk, total)
            if time.monotonic() - last_saved >= save_seconds:
                save(latest)
                last_saved = time.monotonic()
    except KeyboardInterrupt:
        if latest is not None:
            save(latest)
        raise
    if latest is None:  # train always yields at least once for an unfinished run
        raise RuntimeError("training ended without a single chunk")
    return latest


def _fingerprint(
    data_hash: str, config: RunConfig, models: Mapping[str, LocalModel] | None
) -> str:
    digest = hashlib.sha256(f"{__version__} {data_hash}".encode())
    digest.update(json.dumps(config.to_mapping(), sort_keys=True).encode())
    for name, model in sorted((models or {}).items()):
        digest.update(name.encode())
        for leaf in jax.tree.leaves(model):
            digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def _result(
    panel: Panel,
    config: RunConfig,
    setup: Setup,
    final: Snapshot,
    trace: list[TraceRow],
    manifest: dict[str, Any],
) -> Result:
    """Remove the padding and go back from sorted to panel order."""
    dims = setup.state_dims
    granger = pack_square(np.asarray(final.state.server.granger_row), dims)
    offsets = np.concatenate([[0], np.cumsum(dims)])
    for m, stream in enumerate(setup.streams):
        own = slice(offsets[m], offsets[m + 1])
        granger[own, own] = stream.model.self_transition
    order = [setup.names.index(name) for name in panel.names]
    places = np.concatenate([np.arange(offsets[m], offsets[m + 1]) for m in order])
    thetas = np.asarray(final.state.clients.augmentation)
    augmentations = {
        stream.name: thetas[m, : dims[m], : stream.model.num_sensors]
        for m, stream in enumerate(setup.streams)
    }
    return Result(
        panel.names,
        tuple(dims[m] for m in order),
        granger[np.ix_(places, places)],
        {name: augmentations[name] for name in panel.names},
        _trace_table(setup.names, trace),
        manifest,
        config,
    )


def _trace_table(names: tuple[str, ...], trace: list[TraceRow]) -> pd.DataFrame:
    M = len(names)
    return pd.DataFrame(
        {
            "pass_index": np.repeat([row.pass_index for row in trace], M),
            "round": np.repeat([row.round for row in trace], M),
            "client": list(names) * len(trace),
            "local_loss": np.concatenate([row.local_loss for row in trace]),
            "server_loss": np.concatenate([row.server_loss for row in trace]),
        }
    )


def _status(final: Snapshot, config: RunConfig) -> str:
    reached = f"{CRITERION} {final.progress.distance:.2g}"
    if config.tolerance == 0:
        return f"ran all {final.pass_index} passes: {reached}"
    if final.progress.distance <= config.tolerance:
        return (
            f"converged after {final.pass_index} passes: {reached}, "
            f"tolerance {config.tolerance:g}"
        )
    return (
        f"stopped at the last allowed pass, {final.pass_index}: {reached}, above the tolerance "
        f"{config.tolerance:g}; raise 'passes' or 'tolerance'"
    )


def _manifest(
    panel: Panel,
    config: RunConfig,
    setup: Setup,
    final: Snapshot,
    data_hash: str,
    timings: dict[str, float],
) -> dict[str, Any]:
    steps = final.pass_index * setup.num_pairs
    distance, converged = final.progress.distance, final.progress.distance <= config.tolerance
    chosen = [
        name
        for name in ("local_step_size", "feedback_step_size", "server_step_size")
        if getattr(config, name) == "auto"
    ]
    clients, sent = {}, {}
    for stream in setup.streams:
        up, down = message_bytes(stream.model.state_dim)
        p = stream.model.state_dim
        hello = 8 * (p * p + 1)
        sent[stream.name] = {
            "once": hello,
            "up_per_step": up,
            "down_per_step": down,
            "up_total": hello + up * steps,
            "down_total": down * steps,
        }
        clients[stream.name] = {
            "num_sensors": stream.model.num_sensors,
            "state_dim": p,
            "state_model": stream.model.method,
            "missing_share": round(1 - float(stream.is_observed.mean()), 6),
            "notes": list(stream.model.notes),
        }
    step_sizes = {
        stream.name: {"local": c.local, "feedback": c.feedback, "server": s.server}
        for stream, c, s in zip(
            setup.streams, setup.client_step_sizes, setup.server_step_sizes, strict=True
        )
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
            "clients": clients,
        },
        "training": {
            "window": setup.window,
            "passes": final.pass_index,
            "rounds": final.pass_index * setup.num_rounds,
            "converged": converged,
            "criterion": CRITERION,
            "distance": distance if np.isfinite(distance) else None,
            "status": _status(final, config),
            "step_sizes": step_sizes,
            "step_size_reason": (
                f"{', '.join(chosen)} chosen so that each side's largest mean-square gain is "
                f"{config.step_safety:g} (divergence is possible from 2 for both together)"
                if chosen
                else "given"
            ),
        },
        "bytes": sent,
        "timings": timings,
        "config": config.to_mapping(),
    }
