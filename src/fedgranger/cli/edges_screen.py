"""What `fedgranger edges` shows."""

from __future__ import annotations

from pathlib import Path

from fedgranger.cli.console import out, print_json, print_line
from fedgranger.cli.tables import edge_table, over_time_table, untested_lines
from fedgranger.errors import ConfigError
from fedgranger.inference.answer import RANKING_WORDS, answer_sentence, question_sentences
from fedgranger.inference.followed_edges import over_time_doubt
from fedgranger.inference.response_words import edge_sentences
from fedgranger.results import Result


def show_edges(
    result: Result,
    estimate: str,
    alpha: float | None,
    correction: str | None,
    top: int | None,
    *,
    bound: bool,
    json_output: bool,
) -> None:
    """The answer of a test at a level, by default the run's own, in a sentence and a table."""
    is_tested = result.inference is not None and estimate != "fedgc"
    if not is_tested and (bound or alpha is not None or correction is not None):
        raise ConfigError("--alpha, --correction and --bound need a run with tests")
    table = result.edges(estimate=estimate, alpha=alpha, correction=correction, sort=True)
    if json_output:
        print_json(table.head(top if top is not None else len(table)).to_dict("records"))
    elif estimate == "fedgc":
        print_line(RANKING_WORDS)
        out.print(edge_table(table, top))
    else:
        facts = result.test_facts(estimate)
        answer = answer_sentence(table, facts, alpha, correction)
        print_line(" ".join([answer, *question_sentences(facts)]))
        if result.inference is not None:
            out.print(edge_table(table, top))
            words = edge_sentences(facts, result.manifest.data).values()
            for line in (*words, *untested_lines(table, facts)):
                print_line(line)
    if bound:
        value = result.false_edge_bound(alpha=alpha, correction=correction)
        print_line(
            "\nAll reported edges pass Holm's test, which reports any false edge with probability "
            f"at most its level, at level {value:.3g}."
        )


def show_edges_over_time(
    result: Result, top: int | None, picture: Path | None, *, json_output: bool
) -> None:
    """When each edge is there, drawn too when a file is named."""
    table = result.edges_over_time()
    if picture is not None:
        from fedgranger.plot.bands import bands
        from fedgranger.plot.canvas import save_figure

        save_figure(bands(result), picture)
    if json_output:
        print_json(table.to_dict("records"))
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
    doubt = over_time_doubt(result.manifest.inference)
    if doubt:
        print_line(f"{doubt[0].upper()}{doubt[1:]}.")
    out.print(over_time_table(table, top))
