"""What `fedgranger diagnose` shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markup import escape

from fedgranger.cli.console import out, print_line
from fedgranger.cli.json_output import print_json
from fedgranger.cli.narrow_tables import make_table
from fedgranger.cli.tables import headline, untested_lines
from fedgranger.edge_test_kinds import EDGE_TESTS
from fedgranger.errors import RunError
from fedgranger.inference.answer import count_edges, nothing_tested
from fedgranger.inference.audit_words import audit_sentences, control_sentences
from fedgranger.inference.followed_edges import change_sentences
from fedgranger.inference.strength import power_at
from fedgranger.results import Result

LEVELS = (0.001, 0.01, 0.05, 0.1, 0.2)


def show_diagnosis(result: Result, run: Path, strength: float | None, *, json_output: bool) -> None:
    """All checks of the run's own test, in lines and tables or as JSON."""
    facts = result.manifest["inference"]
    for note in () if json_output else result.manifest["data"].get("notes", ()):
        out.print(f"[dim]data:[/] {escape(note)}", soft_wrap=True)
    if result.inference is None:
        raise RunError(f"{run}: nothing was tested: {nothing_tested(facts)}")
    if json_output:
        print_json(_plain(result, facts, strength))
    else:
        _print_all(result, facts, strength)


def _plain(result: Result, facts: Mapping[str, Any], strength: float | None) -> dict[str, Any]:
    return {
        "headline": headline(result),
        "data_notes": result.manifest["data"].get("notes", ()),
        "edges_at_levels": {f"{level:g}": sorted(_edges_at(result, level)) for level in LEVELS},
        "power": {} if strength is None else _powers(result, facts, strength),
        "checks": facts,
    }


def _print_all(result: Result, facts: Mapping[str, Any], strength: float | None) -> None:
    print_line(f"{headline(result)}\n")
    # by what a test has to show, so that a new one needs nothing here
    if "stability" in facts:
        _print_stability(facts)
    if "own_lags" in facts:
        _print_own_pasts(result, facts)
    if "portmanteau" in facts:
        _print_residual_checks(result, facts)
    lines = (*_lag_lines(facts), *audit_sentences(facts), *control_sentences(facts))
    for line in lines:
        print_line(line)
    strengths = sorted(facts["detectable_strength"].items(), key=lambda item: item[1])
    if strengths:
        (easy, low), (hard, high) = strengths[0], strengths[-1]
        print_line(
            f"\nfound with 80 % power by a single test at level {facts['alpha']:g} in the least "
            f"favourable direction: strength {low:.3g} ({easy}) to {high:.3g} ({hard})"
        )
    for edge, chance in ({} if strength is None else _powers(result, facts, strength)).items():
        print_line(f"  power for strength {strength:g}, {edge}: {chance:.2f}")
    counts = count_edges(result.edges())
    out.print(f"\nedges at other levels, of {counts.tested} tested pairs:")
    base = _edges_at(result, facts["alpha"])
    for level in LEVELS:
        found = _edges_at(result, level)
        changes = [f"+ {edge}" for edge in sorted(found - base)]
        changes += [f"- {edge}" for edge in sorted(base - found)]
        print_line(f"  {level:<6g} {len(found):>4}  {', '.join(changes)}")
    table = result.edges()
    for line in untested_lines(table, facts):
        print_line(line)
    tested = table.loc[table["p_value"].notna()]
    for cause, effect in zip(tested["cause"], tested["effect"], strict=True):
        note = facts["reasons"].get(f"{cause} -> {effect}")
        if note is not None:
            print_line(f"note: {cause} -> {effect}: {note}")
    for sentence in facts["warnings"]:
        out.print(f"[yellow]warning:[/] {escape(sentence)}", soft_wrap=True)


def _powers(result: Result, facts: Mapping[str, Any], strength: float) -> dict[str, float]:
    """Chance that the test of a pair finds an influence of this strength, where it is known."""
    sizes = dict(zip(result.clients, result.state_dims, strict=True))
    found: dict[str, float] = {}
    if "df_denominator" not in facts:
        return found
    for edge, detectable in facts["detectable_strength"].items():
        cause, effect = edge.split(" -> ")
        k = sizes[cause] * sizes[effect] * facts["lags"]
        level = facts["alpha"]
        found[edge] = power_at(strength, detectable, k, facts["df_denominator"], level)
    return found


def _lag_lines(facts: Mapping[str, Any]) -> list[str]:
    """The lag criterion's table, what arrives later, what changes, and what gaps cost."""
    lines = []
    if scores := facts.get("lag_criterion"):
        listed = ", ".join(f"{order}: {score:.3f}" for order, score in scores.items())
        lines.append(f"\nlag criterion (BIC, the smallest is taken): {listed}")
    lines += [
        f"arrives late: something of {one['cause']}'s at {one['effect']} {one['steps']} steps "
        f"later (p = {one['p_value']:.2g})"
        for one in facts.get("late_arrivals", ())
    ]
    lines += [f"changes over the record: {sentence}" for sentence in change_sentences(facts)]
    if gaps := facts.get("gaps"):
        lines.append(
            f"gaps of more than {gaps['longest_gap']} rows: {gaps['rows_left_out']} of "
            f"{gaps['rows']} rows left out for all clients"
        )
    return lines


def _edges_at(result: Result, alpha: float) -> set[str]:
    table = result.edges(alpha=alpha)
    chosen = table[table["is_edge"].fillna(False).astype(bool)]
    pairs = zip(chosen["cause"], chosen["effect"], strict=True)
    return {f"{cause} -> {effect}" for cause, effect in pairs}


def _print_residual_checks(result: Result, facts: Mapping[str, Any]) -> None:
    print_line(
        f"lags {facts['lags']}, long-run covariance: {facts['hac']} (lag {facts['hac_lag']}), "
        f"{facts['num_pairs']} pairs, {facts['effective_pairs']:.0f} effective, "
        f"denominator df {facts['df_denominator']:.0f}"
    )
    out.print(
        f"largest root {facts['spectral_radius']:.3f}, condition number {facts['condition']:.3g}\n"
    )
    rows = (
        (
            escape(client),
            f"{facts['portmanteau'][client]:.3g}",
            f"{facts['unit_root'][client]:.3g}",
            f"{facts['effective_samples'][client]:.0f}",
        )
        for client in result.clients
        if client in facts["portmanteau"]
    )
    columns = ("client", "residuals uncorrelated (p)", "unit root (p)", "effective samples")
    out.print(make_table(columns, rows))


def _print_own_pasts(result: Result, facts: Mapping[str, Any]) -> None:
    out.print(f"{EDGE_TESTS[facts['test']].title}, {facts['num_pairs']} rows\n")
    rows = (
        (escape(client), str(facts["own_lags"][client]), f"{facts['unit_root'][client]:.3g}")
        for client in result.clients
        if client in facts["own_lags"]
    )
    out.print(make_table(("client", "own lags", "unit root (p)"), rows))


def _print_stability(facts: Mapping[str, Any]) -> None:
    """Steady state of FedGC's estimate: how fast every row forgets, and how close to diverging."""
    print_line(
        f"steady-state covariance of FedGC's estimate, {facts['num_pairs']} pairs, "
        f"noise lags {facts['hac_lag']}, df {facts['df_denominator']:.0f}\n"
    )
    rows = (
        (
            escape(client),
            f"{row['joint']:.6f}",
            f"{row['mean_square']:.6f}",
            f"{row['time_constant']:.0f}",
            f"{row['largest_factor']:.2f}",
        )
        for client, row in facts["stability"].items()
    )
    radii = ("radius, mean", "radius, mean square")
    out.print(make_table(("client", *radii, "time constant", "step-size margin"), rows))
    out.print("step-size margin: all three step sizes may be multiplied by less than this.")
