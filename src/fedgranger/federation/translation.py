r"""The server's part of telling edges in sensors: each side gets its own, and answers as it likes.

Of an edge with response \(\Psi_h\) the cause is told \(r^\top \Psi_h\), the effect
\(\Psi_h s\), with r the read-out and s the shock where the edge is strongest; what that means for
its sensors each computes by itself (`own_edges`). Where a site shares the sensor that shows the
edge best, its row takes the place of s or r: then the other side knows both sensors, and so does
the server. Nothing but that sensor is ever asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

import numpy as np

from fedgranger.federation.edge_fields import (
    OtherSide,
    SideOfEdges,
    is_covariance,
    read_sensors,
    side_fields,
)
from fedgranger.federation.exchanges import Answers, Participants, Request
from fedgranger.inference.edge_response import EdgeResponse, EdgeSide, band
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.messages import LARGEST_NUMBER, EdgeMessage, ShownSensor

Edge = tuple[str, str]
Shown = dict[Edge, ShownSensor | None]


def translate(
    participants: Participants, found: EdgeInference
) -> Generator[Request, Answers, dict[str, dict[str, Any]]]:
    """Tell every client what its edges do; return how shared sensors of both sides follow.

    The cause is asked first, so that the effect can be told of its sensor; then, where the effect
    shares one, the cause is told of that. An edge whose response no message can hold is left out
    with a warning.
    """
    responses = {edge: one for edge, one in found.responses.items() if _fits(one)}
    for cause, effect in sorted(found.responses.keys() - responses.keys()):
        found.facts["warnings"].append(
            f"what '{cause}' does to '{effect}' is not said in sensors: its response grows beyond "
            f"{LARGEST_NUMBER:g} standard deviations, or the covariance of its shocks is none"
        )
    if not responses:
        return {}
    strongest = {edge: one.directions() for edge, one in responses.items()}
    sides = {edge: one.seen_by_cause(strongest[edge][0]) for edge, one in responses.items()}
    causes = yield from _ask(participants, found, "cause", sides, dict.fromkeys(sides))
    for edge, one in responses.items():
        causes[edge], sides[edge] = _along(one.seen_by_effect, causes[edge], strongest[edge][1])
    effects = yield from _ask(participants, found, "effect", sides, causes)
    for edge, one in responses.items():
        effects[edge], sides[edge] = _along(one.seen_by_cause, effects[edge], strongest[edge][0])
    known = {edge: side for edge, side in sides.items() if effects[edge] is not None}
    if known:
        yield from _ask(participants, found, "cause", known, effects)
    return {
        " -> ".join(edge): _facts(responses[edge], cause, effect, found.facts["confidence"])
        for edge in responses
        if (cause := causes[edge]) is not None and (effect := effects[edge]) is not None
    }


def _along(
    seen: Callable[[np.ndarray], EdgeSide], shown: ShownSensor | None, strongest: np.ndarray
) -> tuple[ShownSensor | None, EdgeSide]:
    """One side of an edge along the other's shared sensor, else along the strongest direction.

    A sensor with numbers that no message can hold counts as not shared.
    """
    if shown is not None and _is_small(side := seen(shown.row)):
        return shown, side
    return None, seen(strongest)


def _ask(
    participants: Participants,
    found: EdgeInference,
    side: str,
    sides: Mapping[Edge, EdgeSide],
    sensors: Shown,
) -> Generator[Request, Answers, Shown]:
    """Tell the clients on one side of these edges; `sensors` are those of the other side."""
    place = 0 if side == "cause" else 1
    own: dict[str, list[Edge]] = {}
    for edge in sides:
        own.setdefault(edge[place], []).append(edge)
    values, arrays, shapes = {}, {}, {}
    for name in sorted(own):
        edges = own[name]
        others = tuple(_other(found, edge, edge[1 - place], sensors[edge]) for edge in edges)
        parts = [sides[edge] for edge in edges]
        message = EdgeMessage(
            parts[0].cov,
            np.stack([one.direction for one in parts]),
            np.stack([one.course for one in parts]),
            np.stack([one.course_cov for one in parts]),
        )
        blocks, confidence = found.responses[edges[0]].blocks, found.facts["confidence"]
        fields, arrays[name] = side_fields(SideOfEdges(side, others, message, blocks, confidence))
        values[name] = {"epoch": participants.epoch, **fields}
        shapes[name] = (len(edges), participants.dims[name])
    answers = yield Request("translate", values, arrays, shapes)
    return {
        edge: shown
        for name, edges in own.items()
        for edge, shown in zip(edges, read_sensors(answers[name]), strict=True)
    }


def _other(found: EdgeInference, edge: Edge, name: str, shown: ShownSensor | None) -> OtherSide:
    response = found.facts["responses"][" -> ".join(edge)]
    sensor = None if shown is None else shown.sensor
    return OtherSide(name, response["variance_share"], response["r2_gained"], sensor)


def _fits(response: EdgeResponse) -> bool:
    """Whether a message can hold it; its squares are among the errors."""
    readout, shock = response.directions()
    sides = (response.seen_by_cause(readout), response.seen_by_effect(shock))
    return all(_is_small(one) and is_covariance(one.cov) for one in sides)


def _is_small(side: EdgeSide) -> bool:
    return all(bool((np.abs(part) <= LARGEST_NUMBER).all()) for part in side)  # NaN is not


def _facts(
    response: EdgeResponse, cause: ShownSensor, effect: ShownSensor, confidence: float
) -> dict[str, Any]:
    """How the effect's sensor follows one unit of the cause's, for the manifest."""
    shock = cause.row / cause.sensor.scale
    values = response.along(effect.sensor.scale * effect.row, shock)
    return band(values, confidence).facts() | {
        "cause_sensor": cause.sensor.name,
        "effect_sensor": effect.sensor.name,
        "is_change": [cause.sensor.is_change, effect.sensor.is_change],
        "cause_sensors": list(cause.behind),
        "effect_sensors": list(effect.behind),
    }
