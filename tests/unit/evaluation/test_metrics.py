"""Scores on cases small enough to count by hand, and on a fit with known truth."""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.client.params import known_models
from fedgranger.data.simulation_options import SCENARIOS
from fedgranger.errors import ConfigError, DataError
from fedgranger.evaluation.metrics import evaluate, score
from fedgranger_research.studies.calibration_trials import Record, Setting, run_data_set, summarise
from tests.configs import formula_config

TRUE = np.array([True, True, False, False, False])
STRENGTH = np.array([5.0, 2.0, 3.0, 1.0, 0.5])


def flags(*values):
    return np.array(values, dtype=bool)


def test_score_by_hand():
    """Ranking 5(t) 3 2(t) 1 .5: of the 6 (true, false) pairs one is in the wrong order.

    Average precision: (1/1 + 2/3)/2. One of two true ones found and one false one.
    """
    found = score(
        TRUE, STRENGTH, flags(1, 0, 1, 0, 0), np.array([0.01, 0.2, 0.03, np.nan, 0.5]), 0.05
    )
    assert found == {
        "num_true": 2,
        "num_possible": 5,
        "auc_roc": pytest.approx(5 / 6),
        "auc_pr": pytest.approx((1 + 2 / 3) / 2),
        "base_rate": 0.4,
        "f1": pytest.approx(2 * 1 / (2 * 1 + 1 + 1)),
        "fp": 1,
        "fn": 1,
        "shd": 2,
        "fdr": 0.5,
        "type_1_error": 0.5,  # of the two null tests that were made
        "power": 0.5,
    }


def test_ties_count_half():
    assert score(TRUE, np.ones(5))["auc_roc"] == 0.5


def test_alpha_is_inclusive():
    found = score(TRUE, STRENGTH, None, np.array([0.05, 0.051, 0.05, 0.9, 0.9]), 0.05)
    assert found["power"] == 0.5
    assert found["type_1_error"] == pytest.approx(1 / 3)


def test_only_what_was_asked_for():
    assert set(score(TRUE, STRENGTH)) == {
        "num_true",
        "num_possible",
        "auc_roc",
        "auc_pr",
        "base_rate",
    }


@pytest.mark.parametrize(
    ("is_true", "is_found", "f1", "shd", "fdr"),
    [
        (flags(0, 0, 0), flags(0, 0, 0), 1.0, 0, 0.0),  # nothing there, nothing claimed
        (flags(0, 0, 0), flags(0, 1, 0), 0.0, 1, 1.0),
        (flags(1, 1, 0), flags(0, 0, 0), 0.0, 2, 0.0),
        (flags(1, 1, 1), flags(1, 1, 1), 1.0, 0, 0.0),
        (flags(1, 0, 0), flags(0, 1, 1), 0.0, 3, 1.0),
        (flags(), flags(), 1.0, 0, 0.0),
    ],
)
def test_decisions_on_empty_classes(is_true, is_found, f1, shd, fdr):
    found = score(is_true, np.arange(len(is_true)) * 1.0, is_found, np.full(len(is_true), np.nan))
    assert (found["f1"], found["shd"], found["fdr"]) == (f1, shd, fdr)
    assert found["shd"] == found["fp"] + found["fn"]
    assert found["type_1_error"] is None
    assert found["power"] is None


@pytest.mark.parametrize("is_true", [flags(0, 0), flags(1, 1), flags()])
def test_ranking_of_one_class_is_undefined(is_true):
    found = score(is_true, np.arange(len(is_true)) * 1.0)
    assert found["auc_roc"] is None
    assert found["auc_pr"] is None


def test_no_null_tests_no_type_1_error():
    found = score(flags(1, 1), np.ones(2), None, np.array([0.01, 0.2]))
    assert (found["type_1_error"], found["power"]) == (None, 0.5)


# A fit ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def known():
    """Six clients with two states, nine edges, local models known."""
    panel, truth = fg.simulate(6, 800, edges=9, seed=5)
    config = formula_config(passes=1, tolerance=0, window=50)
    return fg.fit(panel, config, models=known_models(truth)), truth


def test_levels_count_like_the_paper(known):
    """144 entries of the 12 x 12 matrix: 24 within clients and 36 across are true."""
    scores = evaluate(*known)
    for kind in ("debiased", "fedgc"):
        counts = {
            level: (found["num_true"], found["num_possible"])
            for level, found in scores[kind].items()
            if level != "coverage"
        }
        assert counts == {
            "edges": (9, 30),
            "entries_across": (36, 120),
            "entries_all": (60, 144),
        }
    assert scores["num_clients"] == 6
    assert scores["num_true_edges"] == 9
    assert (scores["alpha"], scores["correction"]) == (0.05, "bh")


def test_debiased_edges_vs_counting_by_hand(known):
    result, truth = known
    found = evaluate(result, truth)["debiased"]["edges"]
    table = result.edges()
    is_true = [(row.cause, row.effect) in truth.edges for row in table.itertuples()]
    fp = sum(row and not true for row, true in zip(table["is_edge"], is_true, strict=True))
    fn = sum(not row and true for row, true in zip(table["is_edge"], is_true, strict=True))
    assert (found["fp"], found["fn"], found["shd"]) == (fp, fn, fp + fn)
    null = table["p_value"][~np.array(is_true)]
    assert found["type_1_error"] == pytest.approx((null <= 0.05).mean())
    assert found["power"] == 1.0  # 800 steps with little noise
    assert found["auc_roc"] == 1.0


def test_entries_of_the_debiased_estimate_by_hand(known):
    """BH over the 120 entries across clients, computed from the table of entries."""
    result, truth = known
    found = evaluate(result, truth)["debiased"]["entries_across"]
    table = result.entries()
    is_true = np.array([(row.cause, row.effect) in truth.edges for row in table.itertuples()])
    p = table["p_value"].to_numpy()
    order = np.argsort(p)
    passing = np.flatnonzero(p[order] <= 0.05 * np.arange(1, 121) / 120)
    reported = np.zeros(120, dtype=bool)
    reported[order[: passing.max() + 1]] = True
    assert found["fp"] == (reported & ~is_true).sum()
    assert found["fn"] == (~reported & is_true).sum()
    assert found["type_1_error"] == pytest.approx((p[~is_true] <= 0.05).mean())


def test_coverage_with_known_models(known):
    """The interval of every entry against the true value; 120 intervals of 95 %, s.d. 2.4."""
    result, truth = known
    coverage = evaluate(result, truth)["debiased"]["coverage"]
    table = result.entries()
    inside, null = [], []
    for row in table.itertuples():
        value = truth.block(row.effect, row.cause)[row.row, row.col]
        inside.append(row.ci_low <= value <= row.ci_high)
        if (row.cause, row.effect) not in truth.edges:
            null.append(inside[-1])
    assert coverage["all_entries"] == pytest.approx(np.mean(inside))
    assert coverage["null_entries"] == pytest.approx(np.mean(null))
    assert len(null) == 84
    assert 104 <= sum(inside) <= 120


def test_coverage_of_identified_models_is_for_zeros_only():
    """The coordinates of identified states are the client's own: only zero blocks compare."""
    panel, truth = fg.simulate(3, 600, edges=2, seed=6)
    config = fg.RunConfig(passes=1, tolerance=0, window=50, state_dim=2, test="debiased")
    coverage = evaluate(fg.fit(panel, config), truth)["debiased"]["coverage"]
    assert coverage["all_entries"] is None
    assert 0 <= coverage["null_entries"] <= 1


def test_run_without_tests_scores_fedgc_only():
    panel, truth = fg.simulate(3, 600, edges=2, seed=7)
    config = fg.RunConfig(passes=1, tolerance=0, window=50, state_dim=2, test="none")
    scores = evaluate(fg.fit(panel, config), truth)
    assert "debiased" not in scores
    assert scores["fedgc"]["edges"]["num_true"] == 2
    assert "f1" not in scores["fedgc"]["edges"]  # no decision without an error rate


def test_lags_count_as_entries():
    """Two lags: every block has twice the entries, those of the second lag are null."""
    panel, truth = fg.simulate(3, 600, edges=2, seed=8)
    config = formula_config(passes=1, tolerance=0, window=50, lags=2)
    scores = evaluate(fg.fit(panel, config, models=known_models(truth)), truth)["debiased"]
    assert scores["entries_all"]["num_possible"] == 72
    assert scores["entries_all"]["num_true"] == 3 * 4 + 2 * 4
    assert scores["coverage"]["all_entries"] is None


def test_order_of_clients_does_not_matter(known):
    result, truth = known
    order = truth.clients[::-1]
    rows = np.concatenate(
        [np.arange(truth.rows(name).start, truth.rows(name).stop) for name in order]
    )
    other = fg.Truth(
        order, truth.edges[::-1], truth.transition[np.ix_(rows, rows)], truth.state_dims
    )
    assert evaluate(result, other) == evaluate(result, truth)


def test_truth_of_other_clients_is_refused(known):
    result, _ = known
    other = fg.Truth(("client1", "pump"), (), np.eye(2), {"client1": 1, "pump": 1})
    with pytest.raises(DataError) as caught:
        evaluate(result, other)
    assert str(caught.value) == (
        "the run and the truth have different clients, for example 'client2'; "
        "give the truth.json that belongs to the data"
    )


# Calibration ------------------------------------------------------------------------------------


def record(edge_p, edge_true, f1=1.0):
    p, true = np.array(edge_p), flags(*edge_true)
    return Record(p, true, p, true, flags(1, 1, 0, 1), f1, 0.0)


def test_summary_by_hand():
    found = summarise(
        [
            record([0.01, 0.2, 0.04, np.nan], [1, 0, 0, 0], f1=1.0),
            record([0.5, 0.6, 0.7, 0.8], [1, 0, 0, 0], f1=0.5),
        ]
    )
    assert found.num_data_sets == 2
    assert found.edge_size == pytest.approx((0.5 + 0.0) / 2)
    assert found.edge_size_se == pytest.approx(np.std([0.5, 0.0], ddof=1) / np.sqrt(2))
    assert found.edge_power == 0.5
    assert found.coverage == 0.75
    assert found.coverage_se == 0.0
    assert found.f1 == 0.75


def test_records_of_a_known_system():
    setting = Setting("mixed", 400, known_models=True, options={"alpha": 0.1})
    first, again = (run_data_set(setting, 3) for _ in range(2))
    np.testing.assert_array_equal(first.edge_p, again.edge_p)
    assert first.edge_true.sum() == 9
    assert len(first.edge_p) == 30
    assert len(first.entry_p) == 144 - (1 + 4 + 9) * 2
    assert len(first.covered) == len(first.entry_p)
    assert setting.name == "mixed-T400-known"


def test_unknown_scenario():
    with pytest.raises(ConfigError, match="scenario is 'bse'; choose one of base, noise5"):
        Setting("bse")
    assert "base" in SCENARIOS
