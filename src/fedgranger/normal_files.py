"""What is normal, as the arrays of `normal.npz` in a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from fedgranger.data.treatment import NO_TREATMENT, Treatment
from fedgranger.inference.reference import Reference
from fedgranger.normal_operation import Monitor

__all__ = ["NORMAL_FILE", "normal_from_arrays", "normal_to_arrays"]

NORMAL_FILE = "normal.npz"
_PLAIN = tuple(part.name for part in fields(Monitor) if part.name != "treatment")


def normal_to_arrays(
    monitors: Mapping[str, Monitor], reference: Reference
) -> dict[str, np.ndarray]:
    """One array per field; clients are numbered in the order of the reference."""
    arrays = {f"reference_{name}": np.array(value) for name, value in reference._asdict().items()}
    for m, client in enumerate(reference.names):
        for name in _PLAIN:
            arrays[f"{name}_{m}"] = np.array(getattr(monitors[client], name))
        if monitors[client].treatment != NO_TREATMENT:
            treatment = monitors[client].treatment._asdict()
            arrays |= {f"{name}_{m}": np.array(value) for name, value in treatment.items()}
    return arrays


def normal_from_arrays(arrays: Mapping[str, Any]) -> tuple[dict[str, Monitor], Reference]:
    """Undo `normal_to_arrays`."""
    read = {name: arrays[f"reference_{name}"] for name in Reference._fields}
    read["names"] = tuple(str(name) for name in read["names"])
    read["dims"] = tuple(int(dim) for dim in read["dims"])
    reference = Reference(**read)
    monitors = {}
    for m, client in enumerate(reference.names):
        parts = {name: arrays[f"{name}_{m}"] for name in _PLAIN}
        parts["sensors"] = tuple(str(name) for name in parts["sensors"])
        parts["usual_energy"] = float(parts["usual_energy"])
        parts["threshold"] = float(parts["threshold"])
        monitors[client] = Monitor(**parts, treatment=_treatment(arrays, m))
    return monitors, reference


def _treatment(arrays: Mapping[str, Any], m: int) -> Treatment:
    if f"differenced_{m}" not in arrays:
        return NO_TREATMENT
    return Treatment(
        tuple(str(name) for name in arrays[f"differenced_{m}"]),
        tuple(int(sign) for sign in arrays[f"directions_{m}"]),
        tuple(str(name) for name in arrays[f"coded_{m}"]),
        tuple(float(code) for code in arrays[f"codes_{m}"]),
    )
