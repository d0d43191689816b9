"""What edges do, in words: which sensor moves which, by how much, how late and for how long."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fedgranger.text import elapsed

_UNIT = re.compile(r"\s*[\[(]([^\[\]()]{1,12})[\])]\s*$")


def response_sentences(inference: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, str]:
    """One sentence per edge that was found, by its name `cause -> effect`.

    Args:
        inference: facts of the test.
        data: facts of the data, with the seconds of one step where they are known.
    """
    sensors = inference.get("sensor_responses") or {}
    step = (data.get("period") or {}).get("step_seconds")
    out = {}
    for edge, response in (inference.get("responses") or {}).items():
        cause, effect = edge.split(" -> ", 1)
        share = f"{100 * response['variance_share']:.0f} % of {effect}'s variance is from {cause}"
        gained = response.get("r2_gained")
        if gained is not None:
            share += (
                f", whose past takes {100 * gained:.0f} % off the error of predicting {effect} one "
                "step ahead"
            )
        if edge in sensors:
            course = _sensor_course(cause, effect, sensors[edge], step)
        else:
            course = _state_course(cause, effect, response, step)
        out[edge] = f"{course}; {share}"
    return out


def unit_of(sensor: str) -> str:
    """The unit that a sensor's name ends with, in brackets; empty where it does not.

    Example:
        >>> unit_of("P03 [bar]"), unit_of("P03")
        ('bar', '')
    """
    found = _UNIT.search(sensor)
    return found.group(1) if found else ""


def _sensor_course(cause: str, effect: str, found: Mapping[str, Any], step: float | None) -> str:
    (one, other), peak = found["is_change"], found["peak"]
    first, second = (
        f"{'the change of ' if is_change else ''}{client}.{_UNIT.sub('', sensor)}"
        for is_change, client, sensor in (
            (one, cause, found["cause_sensor"]),
            (other, effect, found["effect_sensor"]),
        )
    )
    units = [_spaced(unit_of(found[side])) for side in ("cause_sensor", "effect_sensor")]
    value, low, high = (found[name][peak] for name in ("value", "low", "high"))
    return (
        f"+1{units[0]} at {first} → {value:+.3g}{units[1]} ({low:+.3g} to {high:+.3g}) at {second} "
        f"{_times(found, step)}"
    )


def _state_course(cause: str, effect: str, found: Mapping[str, Any], step: float | None) -> str:
    peak = found["peak"]
    value, low, high = (found[name][peak] for name in ("value", "low", "high"))
    if value < 0:  # the sign of a state says nothing
        value, low, high = -value, -high, -low
    return (
        f"a usual shock at {cause} (1 s.d.) → {value:.2f} s.d. ({low:.2f} to {high:.2f}) at "
        f"{effect} {_times(found, step)}"
    )


def _times(found: Mapping[str, Any], step: float | None) -> str:
    late = f"after {elapsed(found['peak'], step)}"
    if found["gone"] is None:
        return f"{late}, still there after {elapsed(len(found['value']) - 1, step)}"
    return f"{late}, gone after {elapsed(found['gone'], step)}"


def _spaced(unit: str) -> str:
    return f" {unit}" if unit else ""
