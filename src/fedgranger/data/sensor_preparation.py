"""From what was found about a client's sensors to what is done: refuse, treat, report.

Defaults: a clock or a code for missing samples is refused; a counter and a sensor that wanders are
replaced by their change per row; slow and stuck sensors are used and named. Whatever is done ends
up in a note.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from shlex import quote
from typing import NamedTuple

import numpy as np

from fedgranger.data.findings import DIFFERENCED, Finding, examine, quoted_list
from fedgranger.data.treatment import Treatment, chosen_sensors, treat_columns
from fedgranger.errors import ConfigError, DataError
from fedgranger.option_fields import check_choice

WANDERING = (*DIFFERENCED, "slow")
UNDO = "--difference none switches this off, a list of sensors replaces the choice"


class SensorChoices(NamedTuple):
    """What the user chose for single sensors, by client.

    Attributes:
        differenced: sensors whose change per row is used.
        left_out: sensors that are not used.
        automatic: counters and wandering sensors are differenced, too.
        keeps_suspects: clocks and codes are used as measured.
        masks_codes: codes are treated as missing samples.
    """

    differenced: Mapping[str, set[str]]
    left_out: Mapping[str, set[str]]
    automatic: bool
    keeps_suspects: bool
    masks_codes: bool


def choose(
    known: Mapping[str, Sequence[str]],
    *,
    difference: str,
    leave_out: str,
    suspect: str,
    missing: str,
) -> SensorChoices:
    """Read the options.

    Args:
        known: every client's sensors.
        difference: "auto", "none", or sensors, as client.sensor,client.sensor; "auto,a.x" adds
            one to the automatic ones.
        leave_out: sensors, the same way.
        suspect: "error" or "keep".
        missing: "error" or "mask".

    Raises:
        ConfigError: a name or word is unknown, or two contradict each other.
    """
    check_choice("suspect", suspect, ("error", "keep"))
    words, differenced = chosen_sensors("difference", difference, known, words=("auto", "none"))
    if "none" in words and (len(words) > 1 or any(differenced.values())):
        raise ConfigError(
            f"difference='{difference}' contradicts itself; pass 'none' alone, or leave it out"
        )
    _, left_out = chosen_sensors("leave_out", leave_out, known)
    for client, sensors in known.items():
        if sensors and set(sensors) <= left_out[client]:
            raise ConfigError(
                f"leave_out takes all sensors of client '{client}'; remove the client instead"
            )
    return SensorChoices(
        differenced, left_out, "auto" in words, suspect == "keep", missing == "mask"
    )


def labels_of(client: str, *, is_alone: bool) -> Callable[[str], str]:
    """How options name a client's sensors: client.sensor, at its own site just the sensor."""
    return (lambda sensor: sensor) if is_alone else (lambda sensor: f"{client}.{sensor}")


def prepare(
    client: str,
    sensors: tuple[str, ...],
    values: np.ndarray,
    time: np.ndarray | None,
    starts: np.ndarray,
    choices: SensorChoices,
    label: Callable[[str], str],
) -> tuple[Treatment, list[Finding], list[str]]:
    """Examine a client's sensors, refuse what cannot be one and treat the others.

    Args:
        client: its name.
        sensors: names of the columns.
        values: shape (time, sensor), NaN where missing; changed in place.
        time: the client's time axis, None when rows are it.
        starts: rows that do not follow their predecessor.
        choices: what the user chose.
        label: how options name a sensor.

    Returns:
        The treatment, the findings, and notes on both.

    Raises:
        DataError: a sensor is a clock or holds a code for missing samples.
    """
    found = examine(client, sensors, values, time, label)
    if not choices.keeps_suspects:
        for finding in found:
            if finding.kind == "clock" or (finding.kind == "code" and not choices.masks_codes):
                raise _refusal(finding)
    treatment = _treatment(client, sensors, found, choices)
    treat_columns(sensors, values, starts, treatment)
    notes = finding_sentences(found, treatment)
    noted = {f.sensor for f in found if f.kind in WANDERING}
    asked = [name for name in treatment.differenced if name not in noted]
    if asked:
        notes.append(f"client '{client}': change per row used as asked for: {quoted_list(asked)}")
    return treatment, found, notes


def without(
    client: str, sensors: tuple[str, ...], values: np.ndarray, choices: SensorChoices
) -> tuple[tuple[str, ...], np.ndarray, list[str]]:
    """Leave out the sensors that the user does not want, with a note."""
    left_out = choices.left_out[client]
    if not left_out:
        return sensors, values, []
    kept = [k for k, name in enumerate(sensors) if name not in left_out]
    note = f"client '{client}': left out as asked for: {quoted_list(sorted(left_out))}"
    return tuple(sensors[k] for k in kept), values[:, kept], [note]


def finding_sentences(found: Sequence[Finding], treatment: Treatment | None) -> list[str]:
    """One or two sentences per client and kind.

    Args:
        found: on one or several clients.
        treatment: what was done; None when nothing was.
    """
    order = sorted(found, key=lambda finding: (finding.client, finding.kind))
    sentences = []
    for (client, kind), group in groupby(order, key=lambda finding: (finding.client, finding.kind)):
        named = list(group)
        done = [f for f in named if _is_done(f, treatment)]
        left = [f for f in named if not _is_done(f, treatment)]
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


def _treatment(
    client: str, sensors: Sequence[str], found: Sequence[Finding], choices: SensorChoices
) -> Treatment:
    direction = {f.sensor: f.direction for f in found if f.kind == "counter"}
    wanted = set(choices.differenced[client])
    if choices.automatic:
        wanted |= {f.sensor for f in found if f.kind in DIFFERENCED}
    differenced = tuple(name for name in sensors if name in wanted)
    codes = [f for f in found if f.kind == "code"] if not choices.keeps_suspects else []
    return Treatment(
        differenced,
        tuple(direction.get(name, 0) for name in differenced),
        tuple(f.sensor for f in codes),
        tuple(f.value for f in codes),
    )


def _is_done(finding: Finding, treatment: Treatment | None) -> bool:
    if treatment is None or finding.kind not in ("code", *WANDERING):
        return False
    done = treatment.coded if finding.kind == "code" else treatment.differenced
    return finding.sensor in done


def _refusal(finding: Finding) -> DataError:
    keep = " (--suspect keep uses it as measured)" if finding.kind == "clock" else ""
    return DataError(
        f"client '{finding.client}': column '{finding.sensor}' {finding.sentence}; "
        f"{finding.remedy}{keep}"
    )


def _each_finding(found: Sequence[Finding]) -> str:
    if len(found) == 1:
        return f"sensor '{found[0].sensor}' {found[0].sentence}"
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
    return f"used as measured; {left[0].remedy}"
