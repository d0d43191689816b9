"""Can these p-values be trusted on this data? In sentences, for the page and the terminal."""

from typing import Any, NamedTuple

import numpy as np

from fedgranger.edge_test_kinds import EDGE_TESTS
from fedgranger.inference.record_traits import shared_cycles, traits_in_words
from fedgranger.periods import CALENDAR_REPEATS
from fedgranger.tested_facts import AuditFacts, InferenceFacts
from fedgranger.text import counted

TITLE = "Can these p-values be trusted on this data?"
QUOTED_LEVELS = (0.01, 0.05, 0.1, 0.5)
NOT_TRIED = (
    "Not tried: this run made no copies with shifted clocks. Fit with test = 'auto', "
    "'readings' or 'nonlinear' to know."
)


NOT_CHECKED = (
    "Not known: copies with shifted clocks were made, but this test could be checked on none of "
    "them, because it could not be made there or because they do not keep what drives each client."
)


class Control(NamedTuple):
    """Positive control of one pair.

    Attributes:
        edge: "cause -> effect".
        size: g, in innovation s.d. of the effect per innovation s.d. of the cause.
        units: the same in a sensor's units, in words; empty where no sensor is known.
    """

    edge: str
    size: float
    units: str


def reservation(facts: InferenceFacts) -> str:
    """What the copies cannot show: a cycle that clients share; empty where there is none."""
    if facts.audit is None:
        return ""
    cyclic, unsearched = shared_cycles(facts.audit.clients or {}), facts.audit.unsearched
    if not cyclic and unsearched:
        return (
            f"the record is too short to look for what repeats every {unsearched[-1]} "
            f"({CALENDAR_REPEATS} times are needed). A rhythm that clients share looks like an "
            "influence, and shifted clocks do not show it. If there is one, fit with it taken out "
            f"(period = '{','.join(unsearched)}'), else say so (period = 'none')."
        )
    if not cyclic:
        return ""
    return (
        f"{', '.join(cyclic)} repeat with the same period. A cycle that clients share looks like "
        "an influence, and shifted clocks do not show it; fit with it taken out (period)."
    )


def verdict(facts: InferenceFacts) -> str:
    """The answer in a sentence."""
    found = facts.audit
    if found is None:
        return NOT_TRIED
    (rate, error), (low, high), inside = found.rate, found.band, found.is_inside
    if rate is None:
        return NOT_CHECKED
    rates = (
        f"{rate:.3f} ± {error:.3f} of the pairs at 5 %, accepted between {low:g} and {high:g}, "
        "within two standard errors"
    )
    is_calibrated = facts.extrapolated is not None  # the p-values are the copies'
    if not inside and not is_calibrated:
        return (
            "No: on copies of these very data without any true link the p-values are off "
            f"({rates})."
        )
    ground = (
        "copies of these very data without any true link show nothing against the p-values "
        f"({rates})"
    )
    if is_calibrated:
        formula = "would have held" if inside else "would not have held"
        ground = (
            "the p-values come from copies of these very data in which no link can be true, not "
            f"from a formula. The formula alone {formula} ({rates})"
        )
    doubt = reservation(facts)
    return (
        f"Only with a reservation: {doubt} Apart from that {ground}."
        if doubt
        else f"Yes: {ground}."
    )


def audit_sentences(facts: InferenceFacts) -> list[str]:
    """What copies with shifted clocks show of a test; nothing when there are none."""
    found, beyond = facts.audit, facts.extrapolated
    if found is None or found.rate[0] is None:
        return []
    low, high = found.band
    out = [
        f"{EDGE_TESTS[found.test].title.capitalize()}: in {found.copies} copies with shifted "
        "clocks no edge can be true. There its own p-values are below 0.05 in "
        f"{share(found.rate)} of the pairs (accepted: between {low:g} and {high:g}) and below "
        f"0.01 in {share(found.rate_01)}; ± is the Monte Carlo error, counted by copy."
    ]
    if found.refused:
        out.append(f"{found.refused} of the copies could not be tested.")
    if beyond is not None:  # the p-values are the copies'
        out.append("The p-values of the edges come from these copies, not from a formula.")
        if beyond:
            named = ", ".join(beyond[:5]) + (" and others" if len(beyond) > 5 else "")
            count = counted(
                len(beyond),
                "statistic is larger than in any copy, so its p-value is",
                "statistics are larger than in any copy, so their p-values are",
            )
            out.append(f"{count} extrapolated below {1 / (found.copies + 1):.3f}: {named}.")
    return out + _worst(found)


def quantile_sentence(found: AuditFacts) -> str:
    """The quantile plot in words; empty for runs that did not keep it."""
    curve = found.quantiles
    if curve is None or not curve.level:
        return ""
    rows = list(zip(curve.level, curve.observed, curve.low, curve.high, strict=True))
    quoted = [
        f"{u:g} → {value:.2g} ({low:.2g} to {high:.2g})"
        for u, value, low, high in rows
        if u in QUOTED_LEVELS
    ]
    outside = sum(not low <= value <= high for _, value, low, high in rows)
    levels = f"of {len(rows)} levels"
    lie = counted(outside, f"{levels} lies", f"{levels} lie")
    return (
        f"P-values of the copies where uniform ones would be (95 % band): {', '.join(quoted)}; "
        f"{lie} outside the band."
    )


def controls(facts: InferenceFacts) -> list[Control]:
    """Positive control of every tested pair, the hardest to find first."""
    sizes, sensors, out = facts.positive_control or {}, facts.innovation_sensor or {}, []
    for edge, size in sorted(sizes.items(), key=lambda item: -item[1]):
        sensor, units = sensors.get(edge.split(" -> ")[1]), ""
        if sensor is not None:
            change = "the change per row of " if sensor.is_change else ""
            units = f"{change}{sensor.sensor} by {size * sensor.innovation:.3g}"
        out.append(Control(edge, size, units))
    return out


def control_sentences(facts: InferenceFacts) -> list[str]:
    """What the smallest influence means, and its range over the pairs."""
    found = controls(facts)
    if not found:
        return []
    hard, easy = found[0], found[-1]
    middle = float(np.median([one.size for one in found]))
    out = [
        "Positive control: the smallest added influence that is found with 80 % probability is "
        f"{easy.size:.3g} ({_named(easy)}) to {hard.size:.3g} ({_named(hard)}), {middle:.3g} in "
        f"the median pair. This is by a single test at level {facts.alpha or 0.05:g}, in the "
        "least favourable direction.",
        "Its unit: one innovation s.d. of the cause (what its own past does not predict) moves the "
        "effect by that many of the effect's innovation s.d. one step later.",
    ]
    if not facts.innovation_sensor:
        out.append(
            "The server of a federated run knows no sensor, so only innovation s.d. are given."
        )
    return out


def share(pair: Any) -> str:
    """A rate with its Monte Carlo error."""
    rate, error = pair
    return "–" if rate is None else f"{rate:.3f} ± {error:.3f}"


def _named(one: Control) -> str:
    return f"{one.edge}, which moves {one.units}" if one.units else one.edge


def _worst(found: AuditFacts) -> list[str]:
    """At which client the rate is largest, and what in its record may be why."""
    sides = [
        (rate, error, client, side)
        for side, rates in (("effect", found.by_effect), ("cause", found.by_cause))
        for client, (rate, error) in rates.items()
        if rate is not None
    ]
    if not sides:
        return []
    rate, error, client, side = max(sides, key=lambda one: one[0])
    where = f"{share((rate, error))}, where {client} is the {side}"
    if rate - 2 * (error or 0.0) <= found.band[1]:
        return [f"No client stands out; the largest share is {where}."]
    why = traits_in_words((found.clients or {}).get(client))
    because = (
        f"Its record is {why}, which such tests take for an influence."
        if why
        else "Its record shows neither season nor drift nor bursts."
    )
    return [f"Worst: {where}. {because}"]
