"""What is normal, as the arrays of `normal.npz` in a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from fedgranger.data.treatment import NO_TREATMENT, Treatment
from fedgranger.inference.reference import Reference
from fedgranger.normal_operation import Monitor

NORMAL_FILE = "normal.npz"
_PLAIN = tuple(part.name for part in fields(Monitor) if part.name != "treatment")


def normal_to_arrays(
    monitors: Mapping[str, Monitor], reference: Reference
) -> dict[str, np.ndarray]:
    """One array per field; clients are numbered in the order of the reference.

    Of a run between parties only the reference is here: every site keeps its monitor.
    """
    arrays = {f"reference_{name}": np.array(value) for name, value in reference._asdict().items()}
    for m, client in enumerate(reference.names):
        if client in monitors:
            own = monitor_to_arrays(monitors[client])
            arrays |= {f"{name}_{m}": value for name, value in own.items()}
    return arrays


def normal_from_arrays(arrays: Mapping[str, Any]) -> tuple[dict[str, Monitor], Reference]:
    """Undo `normal_to_arrays`."""
    read = {name: arrays[f"reference_{name}"] for name in Reference._fields}
    read["names"] = tuple(str(name) for name in read["names"])
    read["dims"] = tuple(int(dim) for dim in read["dims"])
    reference = Reference(**read)
    monitors = {}
    for m, client in enumerate(reference.names):
        names = (*_PLAIN, *Treatment._fields)
        own = {name: arrays[f"{name}_{m}"] for name in names if f"{name}_{m}" in arrays}
        if own:
            monitors[client] = monitor_from_arrays(own)
    return monitors, reference


def monitor_to_arrays(monitor: Monitor) -> dict[str, np.ndarray]:
    """One array per field; of names arrays of text."""
    arrays = {name: np.array(getattr(monitor, name)) for name in _PLAIN}
    if monitor.treatment != NO_TREATMENT:
        arrays |= {name: np.array(value) for name, value in monitor.treatment._asdict().items()}
    return arrays


def monitor_from_arrays(arrays: Mapping[str, Any]) -> Monitor:
    """Undo `monitor_to_arrays`."""
    parts = {name: arrays[name] for name in _PLAIN}
    parts["sensors"] = tuple(str(name) for name in parts["sensors"])
    parts["usual_energy"] = float(parts["usual_energy"])
    parts["threshold"] = float(parts["threshold"])
    return Monitor(**parts, treatment=_treatment(arrays))


def _treatment(arrays: Mapping[str, Any]) -> Treatment:
    if "differenced" not in arrays:
        return NO_TREATMENT
    return Treatment(
        tuple(str(name) for name in arrays["differenced"]),
        tuple(int(sign) for sign in arrays["directions"]),
        tuple(str(name) for name in arrays["coded"]),
        tuple(float(code) for code in arrays["codes"]),
    )
