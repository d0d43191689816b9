"""The library's own answers and centralised peers behind the protocol."""

import builtins

import numpy as np
import pytest
import scipy.stats

from fedgranger_research.baselines import ours, peers
from fedgranger_research.baselines.method_list import find_methods, missing_package
from fedgranger_research.baselines.method_protocol import BaselineError, Columns
from fedgranger_research.baselines.method_trials import run_method, score_trial, summarise_trials
from fedgranger_research.baselines.problems import Scenario, draw_problem
from fedgranger_research.baselines.scoring import check_shapes, score_method

ALL = {**ours.METHODS, **peers.METHODS}


@pytest.fixture(scope="module")
def problem():
    return draw_problem(Scenario(num_steps=1500, num_clients=3, edge_share=0.34), 2)


@pytest.fixture(scope="module")
def answers(problem):
    names = [name for name in ALL if missing_package(name) is None]
    return {name: run_method(name, ALL[name], problem) for name in names}


def test_every_answer_fits_the_columns(problem, answers):
    for name, found in answers.items():
        check_shapes(name, found, problem)
        assert found.seconds > 0
        assert found.bytes_sent > 0
        assert found.status in ("converged", "stopped", "direct")


@pytest.mark.parametrize("name", ["debiased", "debiased-pairs", "auto", "var"])
def test_tests_find_the_edges_between_clients(problem, answers, name):
    clients = score_method(name, answers[name], problem)[2]
    assert clients["auc_roc"] == 1.0
    assert clients["power"] == 1.0


def test_fedgc_calls_everything_an_edge(answers):
    assert answers["fedgc"].is_edge.all()
    assert answers["fedgc"].is_client_edge.all()


def test_states_go_up_once(problem, answers):
    sent = sum(part.nbytes for part in problem.columns.series)
    assert answers["debiased"].messages == 3
    assert answers["debiased"].bytes_sent == sent + 3 * 4 * 8
    assert answers["fedgc"].bytes_sent > answers["debiased"].bytes_sent


def test_entries_by_pairs_have_their_pairs_test(problem, answers):
    single, joint = answers["debiased"], answers["debiased-pairs"]
    owner = problem.owner
    within = owner[:, None] == owner
    np.testing.assert_array_equal(joint.is_edge[within], single.is_edge[within])
    np.testing.assert_array_equal(
        joint.score[~within], single.client_score[np.ix_(owner, owner)][~within]
    )


def test_clients_in_another_order_give_the_same(problem, answers):
    columns = problem.columns
    order = [2, 0, 1]
    turned = Columns(
        *(tuple(part[k] for k in order) for part in (columns.names, columns.series)),
        columns.starts,
        tuple(columns.error_covs[k] for k in order),
    )
    own = tuple(problem.own_transitions[k] for k in order)
    for name in ("fedgc", "debiased"):
        extra = {"self_transitions": own} if name == "fedgc" else {}
        found = ALL[name].fit(turned, {**ALL[name].defaults, **extra})
        expected = answers[name].client_score[np.ix_(order, order)]
        np.testing.assert_allclose(found.client_score, expected, rtol=1e-6)


def test_local_model_recovers_an_autoregression():
    rng = np.random.default_rng(0)
    A = np.array([[0.7, 0.2], [-0.1, 0.5]])
    h, states = np.zeros(2), np.empty((40_000, 2))
    for t in range(len(states)):
        states[t] = h = A @ h + rng.normal(size=2)
    E = np.diag([0.5, 0.25])
    seen = states + rng.normal(size=states.shape) * np.sqrt(np.diag(E))
    starts = np.zeros(len(seen), dtype=bool)
    starts[0] = True
    model = ours.local_model("x", seen, starts, E)
    np.testing.assert_allclose(model.self_transition, A, atol=0.03)
    np.testing.assert_allclose(model.process_cov, np.eye(2), atol=0.05)
    with pytest.raises(BaselineError, match="client 'x': the error given for its columns exceeds"):
        ours.local_model("x", seen, starts, 100 * np.eye(2))


def test_var_vs_statsmodels(problem, answers):
    from statsmodels.tsa.api import VAR

    values = np.concatenate(problem.columns.series, axis=1)
    fit = VAR(values - values.mean(axis=0)).fit(1)
    np.testing.assert_allclose(answers["var"].score, np.abs(fit.tvalues[1:].T), rtol=1e-6)
    p = fit.test_causality([2, 3], [0, 1], kind="wald").pvalue
    _, client_p = _wald_of(problem.columns)
    assert client_p[1, 0] == pytest.approx(p, rel=1e-6, abs=1e-300)


def _wald_of(columns):
    before, after = peers.lag_pairs(columns)
    design = np.column_stack([np.ones(len(before)), before])
    B = np.linalg.lstsq(design, after, rcond=None)[0]
    rest = after - design @ B
    cov = rest.T @ rest / (len(after) - design.shape[1])
    inverse = np.linalg.inv(design.T @ design)[1:, 1:]
    return B, peers._wald(columns.dims, B[1:].T, cov, inverse)[0]


def test_pairs_vs_two_regressions(problem, answers):
    before, after = peers.lag_pairs(problem.columns)
    for i, j in ((0, 1), (3, 0), (5, 2)):
        rest = []
        for chosen in ([i], [i, j]):
            X = before[:, chosen]
            b = np.linalg.lstsq(X, after[:, i], rcond=None)[0]
            rest.append(((after[:, i] - X @ b) ** 2).sum())
        F = (rest[0] - rest[1]) / (rest[1] / (len(after) - 3))
        assert answers["granger-pairs"].score[i, j] == pytest.approx(F, rel=1e-9)
    assert scipy.stats.f.sf(1e-9, 1, 100) == pytest.approx(1.0, abs=1e-4)


def test_gaps_join_no_rows(problem):
    columns = problem.columns
    starts = columns.starts.copy()
    starts[[500, 900]] = True
    cut = columns._replace(starts=starts)
    assert len(peers.lag_pairs(cut)[0]) == len(peers.lag_pairs(columns)[0]) - 2
    assert len(peers.longest_stretch(cut)) == 600
    for name in ("fedgc", "debiased", "var"):
        check_shapes(name, ALL[name].fit(cut, ALL[name].defaults), problem)


@pytest.mark.parametrize("name", ["var-lingam", "granger-lasso"])
def test_peers_of_other_packages(problem, answers, name):
    if name not in answers:
        pytest.skip(f"the package '{missing_package(name)}' is not installed (extra 'peers')")
    assert score_method(name, answers[name], problem)[2]["power"] == 1.0


def test_a_missing_package_is_one_sentence(problem, monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.split(".")[0] == "lingam":
            raise ModuleNotFoundError("no", name="lingam")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr(peers.importlib, "import_module", lambda name: without(name))
    with pytest.raises(BaselineError, match=r"pip install 'fedgranger\[peers\]'"):
        peers.fit_var_lingam(problem.columns, {"seed": 0})


def test_options_and_names_are_checked(problem):
    with pytest.raises(BaselineError, match="method 'var' has no option 'level'; its options are"):
        run_method("var", ALL["var"], problem, {"level": 0.1})
    with pytest.raises(BaselineError, match="no method 'magic'; choose among fedgc, asymptotic"):
        find_methods(["magic"])


def test_a_refusal_is_counted_with_its_reason(problem):
    short = problem._replace(
        columns=problem.columns._replace(
            series=tuple(part[:5] for part in problem.columns.series),
            starts=problem.columns.starts[:5],
        )
    )
    rows = score_trial("var", ALL["var"], short)
    assert {row["status"] for row in rows} == {"refused"}
    assert "too few for 6 columns" in rows[0]["reason"]
    import pandas as pd

    table = summarise_trials(
        pd.DataFrame([*rows, *score_trial("var", ALL["var"], problem)]), ["level", "method"]
    )
    assert table["refused"].tolist() == [1, 1, 1]
    assert table["f1"].notna().all()
