"""What is normal, as the arrays of `normal.npz` in a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from fedgranger.client.monitor import Monitor
from fedgranger.inference.reference import Reference

__all__ = ["NORMAL_FILE", "normal_from_arrays", "normal_to_arrays"]

NORMAL_FILE = "normal.npz"


def normal_to_arrays(
    monitors: Mapping[str, Monitor], reference: Reference
) -> dict[str, np.ndarray]:
    """One array per field; clients are numbered in the order of the reference."""
    arrays = {f"reference_{name}": np.array(value) for name, value in reference._asdict().items()}
    for m, client in enumerate(reference.names):
        for part in fields(Monitor):
            arrays[f"{part.name}_{m}"] = np.array(getattr(monitors[client], part.name))
    return arrays


def normal_from_arrays(arrays: Mapping[str, Any]) -> tuple[dict[str, Monitor], Reference]:
    """Undo `normal_to_arrays`."""
    read = {name: arrays[f"reference_{name}"] for name in Reference._fields}
    read["names"] = tuple(str(name) for name in read["names"])
    read["dims"] = tuple(int(dim) for dim in read["dims"])
    reference = Reference(**read)
    monitors = {}
    for m, client in enumerate(reference.names):
        parts = {part.name: arrays[f"{part.name}_{m}"] for part in fields(Monitor)}
        parts["sensors"] = tuple(str(name) for name in parts["sensors"])
        parts["usual_energy"] = float(parts["usual_energy"])
        parts["threshold"] = float(parts["threshold"])
        monitors[client] = Monitor(**parts)
    return monitors, reference
