"""What `fedgranger diagnose` shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.markup import escape

from fedgranger.cli.console import out, print_json, print_line
from fedgranger.cli.narrow_tables import NarrowTable
from fedgranger.cli.tables import headline, untested_lines
from fedgranger.edge_test_kinds import EDGE_TESTS
from fedgranger.errors import RunError
from fedgranger.evaluation.diagnosis import LEVELS, check_sentences, diagnosis, edges_at, powers
from fedgranger.inference.answer import count_edges, nothing_tested
from fedgranger.results import Result
from fedgranger.tested_facts import InferenceFacts, StabilityFacts


def show_diagnosis(result: Result, run: Path, strength: float | None, *, json_output: bool) -> None:
    """All checks of the run's own test, in lines and tables or as JSON."""
    facts = result.manifest.inference
    for note in () if json_output else result.manifest.data.notes:
        print_line(note, "[dim]data:[/] ")
    if result.inference is None:
        raise RunError(f"{run}: nothing was tested: {nothing_tested(facts)}")
    if json_output:
        print_json({"headline": headline(result)} | diagnosis(result, strength))
    else:
        _print_all(result, facts, strength)


def _print_all(result: Result, facts: InferenceFacts, strength: float | None) -> None:
    print_line(f"{headline(result)}\n")
    # by what a test has to show, so that a new one needs nothing here
    if facts.stability is not None:
        _print_stability(facts, facts.stability)
    if facts.own_lags is not None:
        _print_own_pasts(result, facts, facts.own_lags)
    if facts.portmanteau is not None:
        _print_residual_checks(result, facts, facts.portmanteau)
    for line in check_sentences(facts):
        print_line(line)
    strengths = sorted(facts.detectable_strength.items(), key=lambda item: item[1])
    alpha = result.config.alpha
    if strengths:
        (easy, low), (hard, high) = strengths[0], strengths[-1]
        print_line(
            f"\nfound with 80 % power by a single test at level {alpha:g} in the least "
            f"favourable direction: strength {low:.3g} ({easy}) to {high:.3g} ({hard})"
        )
    for edge, chance in ({} if strength is None else powers(result, facts, strength)).items():
        print_line(f"  power for strength {strength:g}, {edge}: {chance:.2f}")
    counts = count_edges(result.edges())
    out.print(f"\nedges at other levels, of {counts.tested} tested pairs:")
    base = edges_at(result, alpha)
    for level in LEVELS:
        found = edges_at(result, level)
        changes = [f"+ {edge}" for edge in sorted(found - base)]
        changes += [f"- {edge}" for edge in sorted(base - found)]
        print_line(f"  {level:<6g} {len(found):>4}  {', '.join(changes)}")
    table = result.edges()
    for line in untested_lines(table, facts):
        print_line(line)
    tested = table.loc[table["p_value"].notna()]
    for cause, effect in zip(tested["cause"], tested["effect"], strict=True):
        note = facts.reasons.get(f"{cause} -> {effect}")
        if note is not None:
            print_line(f"note: {cause} -> {effect}: {note}")
    for sentence in facts.warnings:
        print_line(sentence, "[yellow]warning:[/] ")


def _print_residual_checks(
    result: Result, facts: InferenceFacts, portmanteau: Mapping[str, float]
) -> None:
    unit_root, effective = facts.unit_root or {}, facts.effective_samples or {}
    print_line(
        f"lags {facts.lags}, long-run covariance: {facts.hac} (lag {facts.hac_lag}), "
        f"{facts.num_pairs} pairs, {facts.effective_pairs:.0f} effective, "
        f"denominator df {facts.df_denominator:.0f}"
    )
    out.print(f"largest root {facts.spectral_radius:.3f}, condition number {facts.condition:.3g}\n")
    rows = (
        (
            escape(client),
            f"{portmanteau[client]:.3g}",
            f"{unit_root[client]:.3g}",
            f"{effective[client]:.0f}",
        )
        for client in result.clients
        if client in portmanteau
    )
    columns = ("client", "residuals uncorrelated (p)", "unit root (p)", "effective samples")
    out.print(NarrowTable(columns, rows))


def _print_own_pasts(result: Result, facts: InferenceFacts, own_lags: Mapping[str, int]) -> None:
    unit_root = facts.unit_root or {}
    out.print(f"{EDGE_TESTS[facts.test].title}, {facts.num_pairs} rows\n")
    rows = (
        (escape(client), str(own_lags[client]), f"{unit_root[client]:.3g}")
        for client in result.clients
        if client in own_lags
    )
    out.print(NarrowTable(("client", "own lags", "unit root (p)"), rows))


def _print_stability(facts: InferenceFacts, stability: Mapping[str, StabilityFacts]) -> None:
    """Steady state of FedGC's estimate: how fast every row forgets, and how close to diverging."""
    print_line(
        f"steady-state covariance of FedGC's estimate, {facts.num_pairs} pairs, "
        f"noise lags {facts.hac_lag}, df {facts.df_denominator:.0f}\n"
    )
    rows = (
        (
            escape(client),
            f"{row.joint:.6f}",
            f"{row.mean_square:.6f}",
            f"{row.time_constant:.0f}",
            f"{row.largest_factor:.2f}",
        )
        for client, row in stability.items()
    )
    radii = ("radius, mean", "radius, mean square")
    out.print(NarrowTable(("client", *radii, "time constant", "step-size margin"), rows))
    out.print("step-size margin: all three step sizes may be multiplied by less than this.")
