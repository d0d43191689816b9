"""What a site makes of its own edges: in its own sensors, and kept at the site.

The server sends a client what its edges do along its states (`edge_fields.SideOfEdges`); here the
client's own sensors come in, and those of the other side where that site shares them. What was
made of one run's edges is kept until the run ends.
"""

from __future__ import annotations

from collections.abc import Iterable

from fedgranger.client.client_side import ClientSide
from fedgranger.client.edge_sensors import shown_sensors
from fedgranger.config import RunConfig
from fedgranger.data.time_axis import period_facts
from fedgranger.federation import answers
from fedgranger.federation.answers import Answer
from fedgranger.federation.codec import Packet
from fedgranger.federation.edge_fields import (
    LONGEST_TEXT,
    MOST_EDGES,
    OtherSide,
    SideOfEdges,
    check_side,
    is_showable,
    read_side,
    sensor_fields,
)
from fedgranger.federation.followed_run import FollowedRun
from fedgranger.federation.questions import Site
from fedgranger.federation.requests import RefusalError
from fedgranger.federation.store import Store
from fedgranger.inference.edge_response import course_curve
from fedgranger.inference.response_words import response_sentence
from fedgranger.messages import ShownSensor
from fedgranger.tested_facts import ResponseFacts

OWN_EDGES = "own_edges"
"""Name of the record."""
OwnEdges = dict[str, ResponseFacts]
"""By "cause -> effect": the response, the sensors that are known, and a sentence."""


def answer_edges(site: Site, followed: FollowedRun, prepared: ClientSide, packet: Packet) -> Answer:
    """See a client's own edges in its sensors, and send of these what its policy lets it."""
    config = followed.asked.config
    if config.test == "none" or followed.grid is None:
        raise RefusalError("invalid", "the run has no edge tests")
    dim, step_seconds = prepared.model.state_dim, period_facts(followed.grid).step_seconds
    name = prepared.data.name
    check_side(packet, name, dim)
    own = read_side(packet)
    try:
        shown = sensors_behind(prepared, own)
        found = own_edges(name, own, shown, step_seconds, config)
        keep_edges(site.store, followed.run, followed.epoch, found)
    except (OSError, RefusalError):  # which do not depend on the sensors
        raise
    except Exception as error:  # the answer must not tell which numbers fail with them
        site.log(f"run '{followed.run}': its edges cannot be said in sensors: {error!r}")
        return answers.sensors([None] * len(own.others), dim)
    return answers.sensors(shared_sensors(site, config, shown), dim)


def sensors_behind(prepared: ClientSide, own: SideOfEdges) -> list[ShownSensor]:
    """The client's sensor that shows each of these edges best."""
    is_cause = own.side == "cause"
    return shown_sensors(prepared.data, prepared.model, own.message, is_cause=is_cause)


def shared_sensors(
    site: Site, config: RunConfig, shown: list[ShownSensor]
) -> list[ShownSensor | None]:
    """What the site sends of them: nothing without its policy's word, or beside its noise."""
    nothing: list[ShownSensor | None] = [None] * len(shown)
    if not site.policy.share_sensors or config.client_terms is not None:
        return nothing
    shared = [one if is_showable(one) else None for one in shown]
    for one in shown:
        if not any(one is other for other in shared):
            site.log(
                f"sensor {one.sensor.name[:100]!r} is not shared: its name, or that of one that "
                "moves with it, cannot be printed, or its numbers are out of range"
            )
    if len(str(sensor_fields(shared, len(shown[0].row))[0])) <= LONGEST_TEXT:
        return shared
    site.log("no sensor is shared: the names are too long for one message")
    return nothing


def shared_names(shown: Iterable[ShownSensor | None]) -> list[str]:
    """Names of all sensors that an answer names, for the audit log."""
    known = [one for one in shown if one is not None]
    return sorted({name for one in known for name in (one.sensor.name, *dict(one.behind))})


def own_edges(
    client: str,
    own: SideOfEdges,
    shown: list[ShownSensor],
    step_seconds: float | None,
    config: RunConfig,
) -> OwnEdges:
    """What the edges on one side of a client do, as far as it can say."""
    out, part = {}, "linear part of the influence: " if config.test == "nonlinear" else ""
    for k, (other, sensor) in enumerate(zip(own.others, shown, strict=True)):
        facts = _facts(own, k, other, sensor)
        ends = (client, other.client) if own.side == "cause" else (other.client, client)
        edge = " -> ".join(ends)
        facts.sentence, out[edge] = part + response_sentence(edge, facts, step_seconds), facts
    return out


def _facts(own: SideOfEdges, k: int, other: OtherSide, shown: ShownSensor) -> ResponseFacts:
    """One edge; the response is per unit of the cause's sensor and in units of the effect's."""
    scale = 1.0 if other.sensor is None else other.sensor.scale
    if own.side == "cause":
        sensors, along = (shown.sensor, other.sensor), shown.row * (scale / shown.sensor.scale)
    else:
        sensors, along = (other.sensor, shown.sensor), shown.row * (shown.sensor.scale / scale)
    message = own.message
    curve = course_curve(
        message.courses[k], message.course_covs[k], along, own.blocks, own.confidence
    )
    if None in sensors:  # the sign of a state says nothing
        curve = curve.upright()
    facts = curve.facts()
    facts.variance_share, facts.r2_gained = other.variance_share, other.r2_gained
    if sensors[0] is not None:
        facts.cause_sensor = sensors[0].name
    if sensors[1] is not None:
        facts.effect_sensor = sensors[1].name
    facts.is_change = [sensor is not None and sensor.is_change for sensor in sensors]
    if own.side == "cause":
        facts.cause_sensors = list(shown.behind)
    else:
        facts.effect_sensors = list(shown.behind)
    return facts


def keep_edges(store: Store, run: str, epoch: int, found: OwnEdges) -> None:
    """Add what was made of some edges to the record of the run.

    A request that comes late must not take away the sensor that a later one sent.
    """
    edges = kept_edges(store, run, epoch)
    for edge, new in found.items():
        if edge not in edges or _num_known(new) >= _num_known(edges[edge]):
            edges[edge] = new
    if len(edges) > 2 * MOST_EDGES:  # as cause and as effect
        raise RefusalError("invalid", "it describes more edges than a client can have")
    store.save(OWN_EDGES, {"run": run, "epoch": epoch, "edges": edges}, {})


def _num_known(facts: ResponseFacts) -> int:
    return (facts.cause_sensor is not None) + (facts.effect_sensor is not None)


def kept_edges(store: Store, run: str, epoch: int) -> OwnEdges:
    """What was made of the edges of this start of a run; nothing of any other's."""
    record = store.load(OWN_EDGES)
    if record is None or (record[0]["run"], record[0]["epoch"]) != (run, epoch):
        return {}
    return {edge: ResponseFacts.of(facts) for edge, facts in record[0]["edges"].items()}
