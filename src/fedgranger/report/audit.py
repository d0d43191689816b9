"""Section on the audit: shifted clocks, quantile plot, worst clients and the positive control."""

from collections.abc import Mapping
from typing import Any

from fedgranger.inference.answer import TEST_NAMES
from fedgranger.inference.record_traits import traits_in_words
from fedgranger.report.audit_words import (
    TITLE,
    audit_sentences,
    control_sentences,
    controls,
    quantile_sentence,
    share,
    verdict,
)
from fedgranger.report.facts import section_of
from fedgranger.report.markup import Column, escape, table
from fedgranger.report.small_charts import draw_p_quantiles

__all__ = ["audit_section"]

MOST_CONTROLS = 30


def audit_section(manifest: Mapping[str, Any]) -> str:
    """Return the audit of the run's own test, that of the other one folded; empty without tests."""
    facts = section_of(manifest, "inference")
    if "reason" in facts or facts.get("test") in (None, "none"):
        return ""
    parts = [f"<p><strong>{escape(verdict(facts))}</strong></p>", _audit(facts), _control(facts)]
    beside = section_of(facts, "beside")
    if beside:
        name = TEST_NAMES.get(str(beside.get("test")), "other test")
        said = f"<p>{escape(verdict(beside))}</p>" if "audit" in beside else ""
        parts.append(
            f"<details><summary>The same for the {escape(name)}, whose answer is not this run's"
            f"</summary>{said}{_audit(beside)}{_control(beside)}</details>"
        )
    body = "\n".join(part for part in parts if part)
    return f"<section id='audit'><h2>{TITLE}</h2>\n{body}\n</section>"


def _audit(facts: Mapping[str, Any]) -> str:
    found, said = section_of(facts, "audit"), audit_sentences(facts)
    if not said:
        return ""
    chart = draw_p_quantiles(section_of(found, "quantiles"), "P-values of the copies, quantiles")
    figure = (
        f"<figure>{chart}<figcaption>Dots: p-values of the copies against even ones. Inside the "
        "band (95 %) they are as they should be; dots above it: the formula finds edges where "
        "none are.</figcaption></figure>"
        if chart
        else ""
    )
    words = filter(None, [*said, quantile_sentence(found)])
    lines = "".join(f"<li>{escape(line)}</li>" for line in words)
    return (
        f"<div class='split audit'><div class='audit-chart'>{figure}</div>"
        f"<div><ul>{lines}</ul></div></div>{_clients(found)}"
    )


def _clients(found: Mapping[str, Any]) -> str:
    traits = section_of(found, "clients")
    columns = [Column("client"), Column("as effect", True), Column("as cause", True)]
    columns += [Column("its record")] if traits else []
    rows = []
    for client, effect in section_of(found, "by_effect").items():
        cause = section_of(found, "by_cause").get(client, (None, None))
        row = [client, share(effect), share(cause)]
        rows.append([*row, traits_in_words(traits.get(client, {})) or "–"] if traits else row)
    return table(columns, rows, caption="Share of the copies' p-values below 0.05, worst first")


def _control(facts: Mapping[str, Any]) -> str:
    said, found = control_sentences(facts), controls(facts)
    if not said:
        return ""
    has_units = any(one.units for one in found)
    columns = [Column("pair"), Column("smallest influence found", True)]
    columns += [Column("which moves, in its own unit")] if has_units else []
    rows = [
        [one.edge, f"{one.size:.3g}", *([one.units or "–"] if has_units else [])]
        for one in found[:MOST_CONTROLS]
    ]
    more = len(found) - len(rows)
    note = f"<p class='caption'>{more} easier pairs are left out.</p>" if more > 0 else ""
    body = table(columns, rows, caption="Found with 80 % probability, hardest first")
    return (
        f"<h3>What could have been found</h3><p>{escape(' '.join(said))}</p>"
        f"<details><summary>Every pair</summary>{body}{note}</details>"
    )
