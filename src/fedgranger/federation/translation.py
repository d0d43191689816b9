r"""The server's part of translating edges to sensors: each side gets its own and answers freely.

Of an edge with response \(\Psi_h\) the cause is sent \(r^\top \Psi_h\), the effect
\(\Psi_h s\), with r the read-out and s the shock where the edge is strongest; what that means for
its sensors each computes by itself (`own_edges`). Where a site shares the sensor that shows the
edge best, its row takes the place of s or r: then the other side knows both sensors, and so does
the server. Nothing but that sensor is ever asked for.
"""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from fedgranger.federation.edge_fields import OtherSide, SideOfEdges, read_sensors, side_fields
from fedgranger.federation.exchanges import Answers, Participants, Request
from fedgranger.inference.edge_response import EdgeSide, band
from fedgranger.inference.edge_tables import EdgeInference
from fedgranger.messages import LARGEST_NUMBER, EdgeMessage, ShownSensor
from fedgranger.tested_facts import ResponseFacts

Edge = tuple[str, str]
Shown = dict[Edge, ShownSensor | None]
Sides = dict[Edge, EdgeSide]


def translate(
    participants: Participants, found: EdgeInference, *, largest: float = LARGEST_NUMBER
) -> Generator[Request, Answers, dict[str, ResponseFacts]]:
    """Send every client what its edges do; return how shared sensors of both sides follow.

    The cause is asked first, so that the effect can be sent its sensor; then, where the effect
    shares one, the cause is sent that. What has numbers above `largest`, which no message can
    hold, is left out with a warning.
    """
    strongest = {edge: one.directions() for edge, one in found.responses.items()}

    def seen_by(side: str, edge: Edge, row: np.ndarray | None = None) -> EdgeSide:
        """An edge along a row of the other side; without one, where it is strongest."""
        response, (readout, shock) = found.responses[edge], strongest[edge]
        if side == "cause":
            return response.seen_by_cause(readout if row is None else row, shock)
        return response.seen_by_effect(shock if row is None else row, readout)

    def along(side: str, shown: Shown) -> Sides:
        """One side of every edge, along the other's sensor where it is known and fits."""
        out = {}
        for edge, sensor in shown.items():
            out[edge] = seen_by(side, edge, None if sensor is None else sensor.row)
            if sensor is not None and not _is_small(out[edge], largest):
                _warn(found, edge, "a shared sensor has numbers")
                shown[edge], out[edge] = None, seen_by(side, edge)
        return out

    causes: Shown = {}
    for edge in strongest:
        if all(_is_small(seen_by(side, edge), largest) for side in ("cause", "effect")):
            causes[edge] = None
        else:
            _warn(found, edge, "its response has numbers")
    if not causes:
        return {}
    causes = yield from _ask(participants, found, "cause", along("cause", causes), causes)
    sides = along("effect", causes)
    effects = yield from _ask(participants, found, "effect", sides, causes)
    sides = along("cause", effects)
    known = {edge: side for edge, side in sides.items() if effects[edge] is not None}
    if known:
        yield from _ask(participants, found, "cause", known, effects)
    return {
        " -> ".join(edge): _facts(found, edge, cause, effect)
        for edge in known
        if (cause := causes[edge]) is not None and (effect := effects[edge]) is not None
    }


def _warn(found: EdgeInference, edge: Edge, what: str) -> None:
    found.facts.warnings.append(
        f"what '{edge[0]}' does to '{edge[1]}' cannot be said in all sensors: {what} too large for "
        "a message; let the sites standardise their sensors"
    )


def _is_small(side: EdgeSide, largest: float) -> bool:
    return all(bool((np.abs(part) <= largest).all()) for part in side)  # NaN is not


def _ask(
    participants: Participants,
    found: EdgeInference,
    side: str,
    sides: Sides,
    sensors: Shown,
) -> Generator[Request, Answers, Shown]:
    """Send to the clients on one side of these edges; `sensors` are those of the other side."""
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
        blocks, confidence = found.responses[edges[0]].blocks, found.facts.confidence
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
    response = (found.facts.responses or {})[" -> ".join(edge)]
    sensor = None if shown is None else shown.sensor
    return OtherSide(name, response.variance_share or 0.0, response.r2_gained, sensor)


def _facts(
    found: EdgeInference, edge: Edge, cause: ShownSensor, effect: ShownSensor
) -> ResponseFacts:
    """How the effect's sensor follows one unit of the cause's, for the manifest."""
    readout, shock = effect.sensor.scale * effect.row, cause.row / cause.sensor.scale
    values = found.responses[edge].along(readout, shock)
    facts = band(values, found.facts.confidence).facts()
    facts.cause_sensor, facts.effect_sensor = cause.sensor.name, effect.sensor.name
    facts.is_change = [cause.sensor.is_change, effect.sensor.is_change]
    facts.cause_sensors, facts.effect_sensors = list(cause.behind), list(effect.behind)
    return facts
