"""Named departures from the plain simulation, each with its truth; see `synthetic.simulate`."""

from __future__ import annotations

from typing import Any

from fedgranger.option_fields import check_choice

HUB: dict[str, Any] = {
    "num_clients": 4,
    "edges": [("client1", "client2"), ("client1", "client3"), ("client1", "client4")],
    "state_dims": 1,
    "sensor_dims": 4,
    "spectral_radius": 0.97,
    "outage_client": "client1",
}
"""One slow client drives three others, and it is the one that is off."""

SCENARIOS: dict[str, dict[str, Any]] = {
    "base": {},
    "noise5": {"measurement_var": 0.5},
    "correlated": {"process_correlation": 0.5},
    "student4": {"student_df": 4.0},
    "missing10": {"missing_share": 0.1},
    "mixed": {"state_dims": [1, 2, 3, 1, 2, 3], "sensor_dims": [3, 5, 8, 6, 12, 10]},
    "nearunit": {"spectral_radius": 0.98},
    "twenty": {"num_clients": 20, "edges": 38},
    "loop1": {"reading_feedback": 1.0, "measurement_var": 1.0},
    "loop3": {"reading_feedback": 1.0, "measurement_var": 3.0},
    "declaredhalf": {"measurement_var": 3.0},
    "declaredtwice": {"measurement_var": 3.0},
    "outage10": {"outage_share": 0.1},
    "outage50": {"outage_share": 0.5},
    "outagehub10": {**HUB, "outage_share": 0.1},
    "outagehub50": {**HUB, "outage_share": 0.5},
    "gaps20": {**HUB, "outage_share": 0.1, "outage_steps": 20},
    "deadtime6": {"dead_time": 6},
    "onesensor": {"state_dims": 1, "sensor_dims": 1},
    "unit1e5": {"unit_factor": 1e5},
    "counter": {"counter": True},
    "daily": {"cycle_size": 1.0, "cycle_period": 24.0},
}
"""What differs from six clients with two states and eight sensors, nine of thirty edges."""

DECLARED_NOISE: dict[str, float] = {"declaredhalf": 0.5, "declaredtwice": 2.0}
"""Scenarios whose local models are given with this multiple of the true R."""


def scenario_options(name: str) -> dict[str, Any]:
    """Options of `simulate` for a scenario."""
    check_choice("scenario", name, tuple(SCENARIOS))
    return dict(SCENARIOS[name])
