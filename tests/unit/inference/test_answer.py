"""Counts, reasons and questions: one source for terminal, page, export and plots."""

import doctest

import numpy as np
import pandas as pd

from fedgranger.inference import answer
from fedgranger.inference.answer import (
    count_edges,
    counts_text,
    nothing_tested,
    question_sentences,
    untested_reasons,
)
from fedgranger.inference.decision import decide
from fedgranger.tested_facts import InferenceFacts

EDGES = pd.DataFrame(
    {
        "cause": ["a", "a", "b", "c"],
        "effect": ["b", "c", "c", "a"],
        "strength": 1.0,
        "p_value": [1e-5, 0.8, np.nan, np.nan],
    }
)


def test_docstrings():
    assert doctest.testmod(answer).failed == 0


def test_pairs_without_a_test_are_counted_apart():
    table = decide(EDGES, 0.05, "bh")
    assert count_edges(table) == (4, 2, 1)
    text = counts_text(count_edges(table))
    assert text == "1 of 2 tested pairs is an edge, 2 of 4 pairs were not tested"
    assert counts_text(count_edges(EDGES)) == "nothing was tested"
    read = table.assign(is_edge=["True", "", "False", ""]).replace("", None)
    assert count_edges(read.assign(is_edge=[True, False, None, None])) == (4, 2, 1)


def test_every_pair_without_a_p_value_has_its_reason():
    facts = InferenceFacts(reasons={"b -> c": "collinear", "a -> b": "Bartlett weights"})
    assert untested_reasons(decide(EDGES, 0.05, "bh"), facts) == [
        None,
        None,
        "collinear",
        "its test could not be made",
    ]
    none = EDGES[["cause", "effect", "strength"]]
    assert set(untested_reasons(none, InferenceFacts(reason="too few rows"))) == {"too few rows"}
    assert nothing_tested(InferenceFacts(test="none")) == "no test was asked for (test = 'none')"


def test_the_question_its_reason_and_the_other_answer_are_said():
    facts = InferenceFacts(
        test="readings",
        test_reason="no white noise fits",
        beside=InferenceFacts(test="debiased"),
    )
    first, why, other = question_sentences(facts)
    assert "help to predict the effect beyond the effect's own past" in first
    assert why == "Why this test: no white noise fits."
    assert "edges_latent.csv" in other
    assert question_sentences(InferenceFacts(test="auto", reason="too short")) == []
