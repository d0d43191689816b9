"""What edges do, in words: which sensor moves which, by how much, how late and for how long.

An edge of the nonlinear test is described by its shape instead where it was not found to be linear:
how much the effect changes where the cause is low, at its mean and high.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedgranger.manifest_types import DataFacts
from fedgranger.tested_facts import InferenceFacts, ResponseFacts
from fedgranger.text import elapsed, enumerated, unit_of, without_unit


def edge_sentences(inference: InferenceFacts, data: DataFacts) -> dict[str, str]:
    """What every edge that was found does, by its name: its course, its shape or both."""
    courses, curves = response_sentences(inference, data), inference.curves or {}
    kinds = inference.kinds_found or {}
    out = {}
    for edge in courses | curves:
        found = kinds.get(edge, ["linear"])
        others = [kind for kind in found if kind != "linear"]
        if edge not in curves:
            prefix = f"{enumerated(found)} influence, of which this is the linear part: "
            out[edge] = f"{prefix if others else ''}{courses[edge]}"
        elif edge not in courses or "linear" not in found:
            out[edge] = shape_sentence(edge, found, inference)
        elif "quadratic" in others:  # the mean curve holds the linear part
            out[edge] = f"{courses[edge]}; in all, {shape_sentence(edge, found, inference)}"
        elif others:
            out[edge] = f"{courses[edge]}; besides, {shape_sentence(edge, others, inference)}"
        else:
            out[edge] = courses[edge]
    return out


def response_sentences(inference: InferenceFacts, data: DataFacts) -> dict[str, str]:
    """The course of every edge that was found, by its name `cause -> effect`.

    Args:
        inference: facts of the test.
        data: facts of the data, with the seconds of one step where they are known.
    """
    sensors, step = inference.sensor_responses or {}, data.step_seconds
    return {
        edge: response_sentence(edge, ResponseFacts(**response | sensors.get(edge, {})), step)
        for edge, response in (inference.responses or {}).items()
    }


def shape_sentence(edge: str, kinds: Sequence[str], inference: InferenceFacts) -> str:
    """Of which kinds an influence is, on what it depends, and its mean curve where that says more.

    Products with another state alone have no mean: their curve is flat.
    """
    curve, (cause, effect) = (inference.curves or {})[edge], edge.split(" -> ")
    third = (inference.third_clients or {}).get(edge)
    on = [f"{effect}'s own state"] * ("interaction" in kinds)
    on += [f"the state of {third}"] * ("joint" in kinds and third is not None)
    sentence = f"{enumerated(kinds)} influence" if kinds else "an influence of no single kind,"
    sentence += f" of {cause} on {effect}"
    if on:
        sentence += f", whose size and direction depend on {' and on '.join(on)}"
    if on and not {"linear", "quadratic"} & {*kinds}:
        return sentence
    values, middle = curve.value, len(curve.value) // 2
    cause_state, effect_state = curve.cause_state + 1, curve.effect_state + 1
    return (
        f"{sentence}: {'on average ' if on else ''}where {cause}'s state {cause_state} is 2 s.d. "
        f"below, at and 2 s.d. above its mean, {effect}'s state {effect_state} changes by "
        f"{values[0]:+.2f}, {values[middle]:+.2f} and {values[-1]:+.2f} s.d."
    )


def response_sentence(edge: str, found: ResponseFacts, step_seconds: float | None) -> str:
    """What one edge does; sides whose sensor is not known are spoken of in standard deviations."""
    cause, effect = edge.split(" -> ")
    share = (
        f"{100 * (found.variance_share or 0.0):.0f} % of the variance of {effect}'s states is from "
        f"{cause}'s own shocks"
    )
    gained = found.r2_gained
    if gained is not None:
        share += f"; {cause}'s past takes {100 * gained:.0f} % off the one-step prediction error"
    return f"{_course(cause, effect, found, step_seconds)}; {share}"


def _course(cause: str, effect: str, found: ResponseFacts, step: float | None) -> str:
    """By how much, how late and for how long the effect follows the cause."""
    first, second = found.cause_sensor, found.effect_sensor
    is_change = found.is_change or (False, False)
    value, low, high = (part[found.peak] for part in (found.value, found.low, found.high))
    if (first is None or second is None) and value < 0:  # the sign of a state says nothing
        value, low, high = -value, -high, -low
    if first is None:
        shock = f"a usual shock at {cause} (1 s.d.)"
    else:
        shock = f"+1{_spaced(unit_of(first))} at {_named(cause, first, is_change[0])}"
    if second is None:
        unit, where, shown = " s.d.", effect, ".2f" if first is None else ".3g"
    else:
        unit, where = _spaced(unit_of(second)), _named(effect, second, is_change[1])
        shown = ".3g" if first is None else "+.3g"
    size = f"{value:{shown}}{unit} ({low:{shown}} to {high:{shown}})"
    if (first is None) != (second is None):
        size += ", up or down,"
    return f"{shock} → {size} at {where}{_times(found, step)}"


def _named(client: str, sensor: str, is_change: bool) -> str:
    return f"{'the change of ' if is_change else ''}{client}.{without_unit(sensor)}"


def _times(found: ResponseFacts, step: float | None) -> str:
    """When it arrives, is largest and gone; where the first two differ, each is named.

    `delay` is the table's: the lag at which most of what was tested arrives. The effect's own
    course can go on growing after it.
    """
    peak, delay = found.peak, found.peak if found.delay is None else found.delay
    late = f" after {elapsed(peak, step)}"
    if delay < peak:
        late = f": arrives after {elapsed(delay, step)}, largest{late}"
    elif delay > peak:
        late = f": largest{late}, most arrives after {elapsed(delay, step)}"
    if found.gone is None:
        return f"{late}, still there after {elapsed(len(found.value) - 1, step)}"
    return f"{late}, gone after {elapsed(found.gone, step)}"


def _spaced(unit: str) -> str:
    return f" {unit}" if unit else ""
