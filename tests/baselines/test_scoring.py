"""Scores of compared methods against counts by hand and formulas written out."""

import numpy as np
import pytest

from fedgranger_research.baselines.method_protocol import BaselineError, Columns, EdgeScores
from fedgranger_research.baselines.problems import with_truth
from fedgranger_research.baselines.scoring import LEVELS, MEASURES, score_method

NAMES = ("a", "b", "c")
TRUE = (("a", "b"),)


def problem(dims=(2, 1, 1)):
    series = tuple(np.zeros((4, dim)) for dim in dims)
    covs = tuple(np.zeros((dim, dim)) for dim in dims)
    starts = np.array([True, False, False, False])
    return with_truth(Columns(NAMES[: len(dims)], series, starts, covs), TRUE)


def answer(score, is_edge, client_score, is_client_edge):
    return EdgeScores(
        np.asarray(score, dtype=float),
        np.asarray(is_edge, dtype=bool),
        np.asarray(client_score, dtype=float),
        np.asarray(is_client_edge, dtype=bool),
        0.0,
        0,
        0,
        "direct",
        float("nan"),
    )


# Columns a1 a2 b c; true: within a (4), b, c, and a1, a2 -> b.
SCORE = [[9, 8, 0.1, 0.2], [8, 9, 0.0, 0.0], [3, 0.15, 9, 0.3], [0.0, 0.0, 5, 9]]
FOUND = [[1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1]]
CLIENT_SCORE = [[9, 0.1, 0.2], [3, 9, 0.3], [0, 5, 9]]
CLIENT_FOUND = [[1, 0, 0], [1, 1, 0], [0, 1, 1]]


def area(is_true, score):
    """Share of (true, absent) pairs in the right order, ties count a half."""
    first, second = score[is_true][:, None], score[~is_true][None, :]
    return float(((first > second) + 0.5 * (first == second)).mean())


def average_precision(is_true, score):
    """Precision at every threshold, weighted by the recall that it adds."""
    out, recall = 0.0, 0.0
    for level in np.unique(score)[::-1]:
        chosen = score >= level
        now = (chosen & is_true).sum() / is_true.sum()
        out += (now - recall) * (chosen & is_true).sum() / chosen.sum()
        recall = now
    return out


def rows_of(name):
    rows = score_method(name, answer(SCORE, FOUND, CLIENT_SCORE, CLIENT_FOUND), problem())
    assert [row["level"] for row in rows] == list(LEVELS)
    assert all(set(row) == {"level", *MEASURES} for row in rows)
    return {row["level"]: row for row in rows}


def test_counts_by_hand():
    rows = rows_of("other")
    # all 16 entries: 8 true; missed a2->a2 and a2->b, false b->c
    expected = {"fp": 1, "fn": 2, "shd": 3, "f1": 2 * 6 / (2 * 6 + 1 + 2)}
    assert {key: rows["paper"][key] for key in expected} == pytest.approx(expected)
    assert (rows["paper"]["size"], rows["paper"]["power"]) == (1 / 8, 6 / 8)
    # 10 entries across clients: true a1->b, a2->b
    expected = {"fp": 1, "fn": 1, "shd": 2, "f1": 0.5, "size": 1 / 8, "power": 0.5}
    assert {key: rows["entries"][key] for key in expected} == pytest.approx(expected)
    # six pairs of clients: true a->b, false b->c
    expected = {"fp": 1, "fn": 0, "shd": 1, "f1": 2 / 3, "size": 1 / 5, "power": 1.0}
    assert {key: rows["clients"][key] for key in expected} == pytest.approx(expected)


def test_areas_vs_pairs_in_order():
    rows, known = rows_of("other"), problem()
    across = known.owner[:, None] != known.owner
    is_true, score = known.is_true[across], np.array(SCORE)[across]
    assert rows["entries"]["auc_roc"] == pytest.approx(area(is_true, score))
    assert rows["entries"]["auc_pr"] == pytest.approx(average_precision(is_true, score))
    apart = ~np.eye(3, dtype=bool)
    is_true, score = known.is_client_true[apart], np.array(CLIENT_SCORE)[apart]
    assert rows["clients"]["auc_roc"] == pytest.approx(area(is_true, score))


def test_the_paper_takes_areas_of_decisions_except_for_fedgc():
    known = problem()
    is_true = known.is_true.reshape(-1)
    decided = np.array(FOUND, dtype=float).reshape(-1)
    assert rows_of("other")["paper"]["auc_roc"] == pytest.approx(area(is_true, decided))
    score = np.array(SCORE).reshape(-1)
    assert rows_of("fedgc")["paper"]["auc_roc"] == pytest.approx(area(is_true, score))
    assert rows_of("fedgc")["paper"]["auc_pr"] == pytest.approx(average_precision(is_true, score))


def test_the_papers_rows_follow_from_their_counts():
    """144 entries, 60 true: TP 8, 12, 6 or 23 and no false one give the F1 that is printed."""
    series = tuple(np.zeros((3, 2)) for _ in range(6))
    names = tuple("abcdef")
    edges = tuple((c, e) for e in names for c in names if c != e)[:9]
    columns = Columns(names, series, np.array([True, False, False]), (np.zeros((2, 2)),) * 6)
    known = with_truth(columns, edges)
    assert (known.is_true.sum(), known.is_true.size) == (60, 144)
    for hits, f1 in ((8, 0.235), (12, 0.333), (6, 0.182), (23, 0.554)):
        found = np.zeros((12, 12), dtype=bool)
        found[tuple(np.argwhere(known.is_true)[:hits].T)] = True
        none = np.zeros((6, 6))
        (row, *_) = score_method("x", answer(found, found, none, none), known)
        assert row["f1"] == pytest.approx(f1, abs=5e-4)
        assert row["auc_roc"] == pytest.approx(0.5 + hits / 120)


def test_unknown_pairs_are_not_counted():
    known = problem()
    only = np.zeros((3, 3), dtype=bool)
    only[2, 1] = True
    found = answer(SCORE, FOUND, CLIENT_SCORE, CLIENT_FOUND)
    clients = score_method("x", found, known._replace(is_known=only))[2]
    assert (clients["fp"], clients["fn"], clients["size"]) == (1, 0, 1.0)
    assert clients["power"] is None


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("score", np.zeros((3, 3)), r"score has shape \(3, 3\), \(4, 4\) is needed"),
        ("is_edge", np.zeros((4, 4)), "is_edge has type float64, bool is needed"),
        ("client_score", np.full((3, 3), np.nan), "client_score has entries that are not finite"),
    ],
)
def test_a_wrong_answer_is_one_sentence(field, value, words):
    found = answer(SCORE, FOUND, CLIENT_SCORE, CLIENT_FOUND)._replace(**{field: value})
    with pytest.raises(BaselineError, match=f"method 'mine': {words}"):
        score_method("mine", found, problem())
