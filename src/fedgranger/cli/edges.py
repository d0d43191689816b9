"""`fedgranger edges`."""

from __future__ import annotations

from typing import Annotated

import typer

from fedgranger.cli.console import (
    Correction,
    Json,
    Level,
    Run,
    check_level,
    friendly,
    out,
    print_line,
)
from fedgranger.cli.tables import edge_table, untested_lines
from fedgranger.errors import ConfigError
from fedgranger.inference.answer import (
    RANKING_WORDS,
    answer_sentence,
    question_sentences,
    shape_sentences,
)
from fedgranger.results import Result


@friendly
def edges(
    run: Run,
    top: Annotated[int | None, typer.Option(help="Show only the first N.")] = None,
    alpha: Level = None,
    correction: Correction = None,
    estimate: Annotated[
        str,
        typer.Option(
            help="debiased (latent), readings or nonlinear, where the run has it; fedgc: FedGC's "
            "ranking, which is no test; auto: the run's own test."
        ),
    ] = "auto",
    bound: Annotated[
        bool, typer.Option("--bound", help="Bound the chance that any reported edge is false.")
    ] = False,
    json_output: Json = False,
) -> None:
    """List the edges of a run, most certain first."""
    if top is not None and top < 1:
        raise ConfigError(f"--top is {top}; it must be at least 1")
    check_level(alpha)
    result = Result.load(run)
    is_tested = result.inference is not None and estimate != "fedgc"
    if not is_tested and (bound or alpha is not None or correction is not None):
        raise ConfigError("--alpha, --correction and --bound need a run with tests")
    if bound and json_output:
        raise ConfigError("--bound is a sentence; leave out --json to get it")
    table = result.edges(estimate=estimate, alpha=alpha, correction=correction, sort=True)
    if json_output:
        typer.echo(table.head(top if top is not None else len(table)).to_json(orient="records"))
        return
    if estimate == "fedgc":
        print_line(RANKING_WORDS)
        out.print(edge_table(table, top))
        return
    facts = result.test_facts(estimate)
    sentences = [answer_sentence(table, facts, alpha, correction), *question_sentences(facts)]
    print_line(" ".join(sentences))
    if is_tested:
        out.print(edge_table(table, top))
        for line in (*shape_sentences(facts), *untested_lines(table, facts)):
            print_line(line)
    if bound:
        value = result.false_edge_bound(alpha=alpha, correction=correction)
        print_line(
            "\nAll reported edges pass Holm's test, which reports any false edge with probability "
            f"at most its level, at level {value:.3g}."
        )
