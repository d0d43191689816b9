"""What a client learned of its own normal operation, as plain data: `Monitor` and `Season`.

A run folder stores them, so they stand below clients and server; how they are fitted and used is
the client's (`client/own_normal.py`, `client/season.py`). In a run between parties they stay at
their sites.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from fedgranger.data.treatment import NO_TREATMENT, Treatment


@dataclass(frozen=True, eq=False)
class Monitor:
    """What a client keeps to judge new samples; of it only `threshold` is sent, once.

    Attributes:
        sensors: names, in the order of the matrices.
        readout: maps scaled measurements to the states that the server knows.
        model_centre: subtracted before the readout.
        model_scale: divided by before the readout.
        centre: training mean of every sensor.
        scale: training standard deviation.
        regression: B and, in the last row, b; (d + 1, d).
        precision: S⁻¹.
        usual_energy: mean energy over training.
        threshold: upper end of the client's normal range of smoothed surprise.
        treatment: what was done to the training data, and is done to new data.
        observation_matrix: C of the local model, in the units of `model_scale`; None in runs of
            older versions, where a row that lacks a sensor is missing.
        measurement_cov: R, likewise.
        levels: (3, sensor): how the sensors' levels scatter (`client/usual_levels.py`); None in
            runs of older versions.
    """

    sensors: tuple[str, ...]
    readout: np.ndarray
    model_centre: np.ndarray
    model_scale: np.ndarray
    centre: np.ndarray
    scale: np.ndarray
    regression: np.ndarray
    precision: np.ndarray
    usual_energy: float
    threshold: float
    treatment: Treatment = NO_TREATMENT
    observation_matrix: np.ndarray | None = None
    measurement_cov: np.ndarray | None = None
    levels: np.ndarray | None = None

    def to_arrays(self) -> dict[str, np.ndarray]:
        """One array per field; of names arrays of text."""
        known = {name: getattr(self, name) for name in _monitor_fields()}
        arrays = {name: np.array(value) for name, value in known.items() if value is not None}
        if self.treatment != NO_TREATMENT:
            arrays |= {name: np.array(value) for name, value in self.treatment._asdict().items()}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Monitor:
        """Undo `to_arrays`."""
        later = ("observation_matrix", "measurement_cov", "levels")
        names = (name for name in _monitor_fields() if name in arrays or name not in later)
        parts: dict[str, Any] = {name: arrays[name] for name in names}
        parts["sensors"] = tuple(parts["sensors"].tolist())
        parts |= {name: float(parts[name]) for name in ("usual_energy", "threshold")}
        if "differenced" in arrays:
            columns = (tuple(arrays[name].tolist()) for name in Treatment._fields)
            parts["treatment"] = Treatment(*columns)
        return cls(**parts)


def _monitor_fields() -> list[str]:
    return [part.name for part in fields(Monitor) if part.name != "treatment"]


@dataclass(frozen=True, eq=False)
class Season:
    """What repeats in a client's sensors; stays at the client, but for the whole steps.

    Attributes:
        kind: "harmonics" or "profile".
        sensors: one name per column.
        lengths: of the periods, in ticks of the time axis (nanoseconds of time stamps).
        interval: ticks per step.
        is_stamped: the time axis has time stamps.
        weights: (column, sensor): of cosines and sines, or per phase.
        offset: mean of g over the samples it was fitted to, per sensor.
        shares: of every sensor's variance that repeats.
    """

    kind: str
    sensors: tuple[str, ...]
    lengths: tuple[float, ...]
    interval: float
    is_stamped: bool
    weights: np.ndarray
    offset: np.ndarray
    shares: np.ndarray

    @property
    def share(self) -> float:
        """Mean share of the sensors' variance that repeats."""
        return float(self.shares.mean()) if len(self.shares) else 0.0

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for JSON."""
        arrays = ("weights", "offset", "shares")
        plain = {name: getattr(self, name).tolist() for name in arrays}
        names = ("kind", "interval", "is_stamped")
        plain |= {name: getattr(self, name) for name in names}
        return {**plain, "sensors": list(self.sensors), "lengths": list(self.lengths)}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Season:
        """Undo `to_mapping`."""
        weights = np.array(mapping["weights"], dtype=np.float64)
        return cls(
            str(mapping["kind"]),
            tuple(mapping["sensors"]),
            tuple(float(length) for length in mapping["lengths"]),
            float(mapping["interval"]),
            bool(mapping["is_stamped"]),
            weights.reshape(-1, len(mapping["sensors"])),
            np.array(mapping["offset"], dtype=np.float64),
            np.array(mapping["shares"], dtype=np.float64),
        )
