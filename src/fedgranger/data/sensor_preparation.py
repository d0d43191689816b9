"""From what was found about a client's sensors to what is done: refuse, treat, report.

Defaults: a clock or a code for missing samples is refused; a counter and a sensor that wanders are
replaced by their change per row; slow and stuck sensors are used and named. Whatever is done ends
up in a note.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from shlex import quote

import numpy as np

from fedgranger.data.client_data import ClientData, segment_starts
from fedgranger.data.clock_steps import resampled
from fedgranger.data.columns import find_code
from fedgranger.data.findings import DEAD, DIFFERENCED, Finding, examine
from fedgranger.data.named_sensors import named_sensors
from fedgranger.data.reading_options import ReadingOptions
from fedgranger.data.treatment import NO_TREATMENT, ClientTable, Treatment, treat_columns
from fedgranger.errors import ConfigError, ReadingError
from fedgranger.text import quoted_list

WANDERING = (*DIFFERENCED, "slow")
NO_TREATMENTS: Mapping[str, Treatment] = {}
UNDO = "--difference none switches this off, a list of sensors replaces the choice"


@dataclass(frozen=True)
class SensorPlan:
    """What is to be done about the clients' sensors, and what was found and done so far.

    Attributes:
        options: as the user chose.
        differenced: by client, sensors whose change per row is used as asked for.
        is_automatic: counters and wandering sensors are differenced, too.
        treatments: of new data, by client: what was done to the training data. It is done on the
            client's own rows, as it was then, before all are brought to one time axis.
        findings: grow from client to client.
        notes: sentences for the user; grow, too.
    """

    options: ReadingOptions
    differenced: Mapping[str, Collection[str]]
    is_automatic: bool
    treatments: Mapping[str, Treatment] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def plan_sensors(
    clients: Sequence[ClientTable | ClientData],
    options: ReadingOptions,
    treatments: Mapping[str, Treatment] = NO_TREATMENTS,
) -> SensorPlan:
    """Read from the options what is to be done about single sensors.

    Raises:
        ConfigError: a name or word is unknown, or two contradict each other.
    """
    known = {client.name: client.sensors for client in clients}
    words, differenced = named_sensors("difference", options.difference, known, ("auto", "none"))
    if "none" in words and (len(words) > 1 or any(differenced.values())):
        raise ConfigError(
            f"difference='{options.difference}' contradicts itself; pass 'none' alone, or leave "
            "it out"
        )
    return SensorPlan(options, differenced, "auto" in words, treatments)


def prepare(table: ClientTable, plan: SensorPlan, *, may_lack: bool = False) -> ClientTable:
    """Check, resample and treat single sensors on the client's own time axis, in place.

    Missing samples are refused when the options say so, unless the table `may_lack` some; of a
    client that is resampled those that are still missing afterwards.

    Raises:
        DataError: samples are missing, or a sensor is a clock or holds a code for missing ones.
    """
    options = plan.options
    is_new = options.constant == "keep"  # new data are not judged
    is_resampled = options.resample != "none"
    must_have_all = options.missing == "error" and not may_lack
    if must_have_all and not is_resampled:
        table = _with_all_samples(table, plan)
    found = [] if is_new else examine(table)
    _refuse_suspects(table, found, options)
    treatment = NO_TREATMENT if is_new else _treatment(table, found, plan)
    if is_resampled:
        # codes first: a mean with -9999 in it is no number that anybody measured
        codes = treatment if not is_new else _codes(table)
        starts = np.zeros(len(table.values), dtype=np.bool_)
        treat_columns(
            table.sensors, table.values, starts, codes._replace(differenced=(), directions=())
        )
        table, notes = resampled(table, options.resample, options.resample_rule)
        plan.notes.extend(notes)
        if must_have_all:
            table = _with_all_samples(table, plan)
    if is_new:
        treatment = plan.treatments.get(table.name, NO_TREATMENT)
    axis = np.arange(len(table.values)) if table.time is None else table.time
    treat_columns(table.sensors, table.values, segment_starts(axis), treatment)
    if is_new:
        return table._replace(treatment=treatment)
    plan.findings.extend(found)
    plan.notes.extend(finding_sentences(found, treatment))
    noted = {f.sensor for f in found if f.kind in WANDERING}
    asked = [name for name in treatment.differenced if name not in noted]
    if asked:
        listed = quoted_list(asked)
        plan.notes.append(f"client '{table.name}': change per row used as asked for: {listed}")
    return table._replace(treatment=treatment)


def _codes(table: ClientTable) -> Treatment:
    """Codes for missing samples in new data, which are averaged before a monitor sees them."""
    found = {
        name: find_code(np.ascontiguousarray(column))
        for name, column in zip(table.sensors, table.values.T, strict=True)
    }
    known = {name: code.value for name, code in found.items() if code is not None}
    return Treatment((), (), tuple(known), tuple(known.values()))


def _refuse_suspects(table: ClientTable, found: Sequence[Finding], options: ReadingOptions) -> None:
    """Refuse clocks, and codes for missing samples, unless the user wants them as measured."""
    if options.suspect != "error":
        return
    for finding in found:
        is_clock = finding.kind == "clock"
        if is_clock or (finding.kind == "code" and options.missing == "error"):
            keep = " (--suspect keep uses it as measured)" if is_clock else ""
            name, sensor = table.name, finding.sensor
            time: dict[str, str | dict[str, str]] = {
                "time_column": sensor if table.is_alone else {name: sensor}
            }
            as_clock = time if table.time is None else {"leave_out": finding.label}
            raise ReadingError(
                f"client '{name}': column '{sensor}' {finding.sentence}; {finding.remedy}{keep}",
                as_clock if is_clock else {"missing": "mask"},
            )


def _with_all_samples(table: ClientTable, plan: SensorPlan) -> ClientTable:
    """Refuse missing samples; sensors without any are left out when constant ones are dropped."""
    is_empty = np.logical_and.reduce(np.isnan(table.values), axis=0)
    if plan.options.constant == "drop" and is_empty.any() and not is_empty.all():
        names = [name for name, empty in zip(table.sensors, is_empty, strict=True) if empty]
        listed = quoted_list(names)
        plan.notes.append(f"client '{table.name}': without any sample and dropped: {listed}")
        kept = tuple(name for name in table.sensors if name not in names)
        table = table._replace(sensors=kept, values=table.values[:, ~is_empty])
    check_missing(table)
    return table


def check_missing(table: ClientTable) -> None:
    """Refuse missing samples, naming the first column that has some."""
    for sensor, column in zip(table.sensors, table.values.T, strict=True):
        is_missing = np.isnan(column)
        count = int(is_missing.sum())
        check_observed(table.name, sensor, len(column) - count)
        if count:
            is_dead = count > DEAD * len(column) and len(table.sensors) > 1
            leave_out = f", or leave the sensor out (--leave-out {quote(table.label(sensor))})"
            raise ReadingError(
                f"client '{table.name}', column '{sensor}': {count} of {len(column)} samples are "
                f"missing, the first in data row {int(np.argmax(is_missing)) + 1}; fill them in "
                f"or pass missing='mask' (--missing mask){leave_out if is_dead else ''}",
                {"leave_out": table.label(sensor)} if is_dead else {"missing": "mask"},
            )


def check_observed(client: str, sensor: str, num_samples: int) -> None:
    """Refuse a sensor without any sample."""
    if not num_samples:
        raise ReadingError(
            f"client '{client}': sensor '{sensor}' has no observed sample; remove the column or "
            "pass constant='drop' (--constant drop)",
            {"constant": "drop"},
        )


def _treatment(table: ClientTable, found: Sequence[Finding], plan: SensorPlan) -> Treatment:
    direction = {f.sensor: f.direction for f in found if f.kind == "counter"}
    wanted = set(plan.differenced[table.name])
    if plan.is_automatic:
        wanted |= {f.sensor for f in found if f.kind in DIFFERENCED}
    differenced = tuple(name for name in table.sensors if name in wanted)
    codes = [f for f in found if f.kind == "code" and plan.options.suspect == "error"]
    return Treatment(
        differenced,
        tuple(direction.get(name, 0) for name in differenced),
        tuple(f.sensor for f in codes),
        tuple(f.value for f in codes),
    )


def finding_sentences(found: Sequence[Finding], treatment: Treatment) -> list[str]:
    """One or two sentences per client and kind, by what the treatment does about it."""
    order = sorted(found, key=lambda finding: (finding.client, finding.kind))
    sentences = []
    for (client, kind), group in groupby(order, key=lambda finding: (finding.client, finding.kind)):
        differenced = treatment.differenced if kind in WANDERING else ()
        treated = treatment.coded if kind == "code" else differenced
        named = list(group)
        done = [f for f in named if f.sensor in treated]
        left = [f for f in named if f.sensor not in treated]
        if done:
            action = "masked" if kind == "code" else "change per row used; " + UNDO
            sentences.append(f"client '{client}': {_each_finding(done)}; {action}")
        if left:
            sentences.append(f"client '{client}': {_each_finding(left)}; {_remedy(kind, left)}")
    return sentences


def propose(found: Sequence[Finding]) -> str:
    """The option that differences every sensor that may wander and was left alone; or ""."""
    slow = [f.label for f in found if f.kind == "slow"]
    return f"--difference {quote(','.join(['auto', *slow]))}" if slow else ""


def _each_finding(found: Sequence[Finding]) -> str:
    texts = [f"sensor '{f.sensor}' {f.sentence}" for f in found[:3]]
    rest = f", and likewise {quoted_list(f.sensor for f in found[3:])}" if len(found) > 3 else ""
    return "; ".join(texts) + rest


def _remedy(kind: str, left: Sequence[Finding]) -> str:
    """What to do about sensors that were left as they are."""
    if kind == "slow":
        return f"used as measured; {propose(left)} uses the change per row"
    if kind in DIFFERENCED:
        return "used as measured; --difference auto uses the change per row"
    if kind == "stuck":
        remedy = left[0].remedy if len(left) == 1 else "leave out what was stuck with --leave-out"
        return f"used all the same; {remedy}"
    return "; ".join(filter(None, ("used as measured", left[0].remedy)))
