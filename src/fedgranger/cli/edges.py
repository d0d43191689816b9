"""`fedgranger edges`."""

from __future__ import annotations

from pathlib import Path
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
from fedgranger.cli.tables import edge_table, over_time_table, untested_lines
from fedgranger.errors import ConfigError
from fedgranger.inference.answer import (
    RANKING_WORDS,
    answer_sentence,
    question_sentences,
    shape_sentences,
)
from fedgranger.inference.response_words import response_sentences
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
    over_time: Annotated[
        bool,
        typer.Option(
            "--over-time",
            help="When each edge is there: of a run that was fit with --time-windows.",
        ),
    ] = False,
    picture: Annotated[
        Path | None,
        typer.Option(help="With --over-time, also draw it: a .png, .svg or .pdf file."),
    ] = None,
    json_output: Json = False,
) -> None:
    """List the edges of a run, most certain first."""
    if top is not None and top < 1:
        raise ConfigError(f"--top is {top}; it must be at least 1")
    check_level(alpha)
    result = Result.load(run)
    if over_time:
        if bound or alpha is not None or correction is not None or estimate != "auto":
            raise ConfigError(
                "--over-time has the level, correction and test of the run; leave --alpha, "
                "--correction, --estimate and --bound out"
            )
        _print_over_time(result, top, picture, json_output=json_output)
        return
    if picture is not None:
        raise ConfigError("--picture is for --over-time; add it, or see 'fedgranger report'")
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
        words = response_sentences(facts, result.manifest["data"]).values()
        for line in (*words, *shape_sentences(facts), *untested_lines(table, facts)):
            print_line(line)
    if bound:
        value = result.false_edge_bound(alpha=alpha, correction=correction)
        print_line(
            "\nAll reported edges pass Holm's test, which reports any false edge with probability "
            f"at most its level, at level {value:.3g}."
        )


def _print_over_time(
    result: Result, top: int | None, picture: Path | None, *, json_output: bool
) -> None:
    table = result.edges_over_time()
    if picture is not None:
        from fedgranger.plot.bands import bands
        from fedgranger.plot.canvas import save_figure

        save_figure(bands(result), picture)
    if json_output:
        typer.echo(table.to_json(orient="records"))
        return
    stretches = table[["start", "end"]].drop_duplicates()
    first, last = stretches.iloc[0], stretches.iloc[-1]
    config = result.config
    print_line(
        f"{len(stretches)} stretches from {first['start']} to {last['end']}, each half in the "
        f"next. '#': the edge is there ({config.correction}, level {config.alpha:g} for all "
        "stretches of an edge together), '.': not shown, '?': not tested. Strengths with their "
        "bands are in edges_over_time.csv."
    )
    out.print(over_time_table(table, top))
