"""One panel through fit and textbook test; the journal; shares and their errors."""

import json

import numpy as np
import pandas as pd
import pytest
from statsmodels.tsa.api import VAR

from fedgranger.data.synthetic import simulate
from fedgranger.errors import ConfigError, RunError
from fedgranger_research.recordings import journal as journal_module
from fedgranger_research.recordings.journal import Journal, run_controls
from fedgranger_research.recordings.summary import (
    pair_table,
    share_of_rejections,
    summarise_controls,
)
from fedgranger_research.recordings.textbook import var_order, var_p_values
from fedgranger_research.recordings.trial import ABSENT, ADDED, Control, run_control, study_config

QUESTION = {"states": "2"}


def var_data(num_steps=400):
    rng, x = np.random.default_rng(3), np.zeros((num_steps, 4))
    for t in range(2, num_steps):
        x[t] = 0.5 * x[t - 1] + 0.3 * x[t - 2] + rng.standard_normal(4)
        x[t, 2] += 0.2 * x[t - 1, 0]
    return x


def whole(num_steps):
    usable = np.ones((num_steps, 2), dtype=bool)
    usable[0, 1] = False
    return usable


def test_textbook_vs_statsmodels():
    x = var_data()
    order = VAR(x).select_order(6).bic
    assert order == 2
    assert var_order(x, whole(len(x)), 6) == order
    fitted = VAR(x).fit(order)
    p = var_p_values(x, (2, 2), whole(len(x)), 6)
    for effect, cause in ((0, 1), (1, 0)):
        names = [[f"y{2 * k + 1}", f"y{2 * k + 2}"] for k in (effect, cause)]
        expected = fitted.test_causality(*names, kind="f").pvalue
        np.testing.assert_allclose(p[effect, cause], expected, rtol=1e-8)
    assert np.isnan(np.diag(p)).all()


def test_textbook_leaves_out_windows_with_a_gap():
    """Rows of nonsense that are marked as missing change nothing but the number of rows."""
    x = var_data()
    usable = whole(len(x))
    usable[200:210, 0] = False
    spoilt = x.copy()
    spoilt[200:210] = 1e6
    np.testing.assert_array_equal(
        var_p_values(x, (2, 2), usable, 3), var_p_values(spoilt, (2, 2), usable, 3)
    )


def test_textbook_says_nothing_on_too_few_rows():
    assert np.isnan(var_p_values(var_data(12), (2, 2), whole(12))).all()


def small_control(key="k"):
    panel, truth = simulate(3, 400, edges=[("client1", "client2")], seed=2)
    arrays = {client.name: client.values for client in panel}
    truths = {
        (c, e): ADDED if (c, e) in truth.edges else ABSENT
        for c in panel.names
        for e in panel.names
        if c != e
    }
    return Control(key, "null", arrays, truths)


def test_control_is_tested_by_fit_and_textbook():
    record = run_control(small_control(), study_config({"state_dim": 2}))
    assert record["reason"] is None
    assert len(record["pairs"]) == 6
    added = next(pair for pair in record["pairs"] if pair["truth"] == ADDED)
    assert (added["cause"], added["effect"]) == ("client1", "client2")
    assert added["p_value"] < 1e-5
    assert added["p_textbook"] < 1e-6
    json.dumps(record, allow_nan=False)


def test_refusal_is_counted_not_fatal():
    control = small_control()
    doubled = dict(control.arrays) | {"client3": control.arrays["client1"]}
    config = study_config({"state_dim": 2, "test": "debiased"})
    record = run_control(Control("twice", "null", doubled, control.truths), config)
    assert "linearly dependent" in record["reason"]
    assert all(pair["p_value"] is None for pair in record["pairs"])
    row = summarise_controls([record])[0]
    assert (row["panels"], row["refused"], row["pairs"]) == (1, 1, 0)


def test_unknown_options_are_refused_before_anything_runs():
    with pytest.raises(ConfigError, match="alhpa"):
        study_config({"alhpa": 0.1})


def test_interrupted_panels_are_continued(tmp_path, monkeypatch):
    """What was finished is not run again; the outcome is that of one run."""
    config, keys, ran = study_config({"state_dim": 2}), ["a", "b", "c"], []

    def fake(control, config):
        ran.append(control.key)
        if control.key == "c" and len(ran) == 3:
            raise KeyboardInterrupt
        return {"key": control.key, "value": len(control.arrays)}

    monkeypatch.setattr(journal_module, "run_control", fake)
    path = tmp_path / "deep" / "finished.jsonl"

    def run():
        return run_controls(Journal(path, QUESTION), keys, small_control, lambda _: config)

    with pytest.raises(KeyboardInterrupt):
        run()
    records = run()
    assert ran == ["a", "b", "c", "c"]
    assert [record["key"] for record in records] == keys
    path.write_text(path.read_text()[:-9])  # a crash in the middle of a line
    assert run() == records
    assert ran[4:] == ["c"]


def test_journal_of_another_question_is_refused(tmp_path):
    Journal(tmp_path / "j", QUESTION).add({"key": "a"})
    assert Journal(tmp_path / "j", QUESTION).records == {"a": {"key": "a"}}
    with pytest.raises(RunError, match="other data or options"):
        Journal(tmp_path / "j", {"states": "3"})


def test_panels_that_do_not_exist_are_skipped():
    journal = Journal(None, QUESTION)
    records = run_controls(journal, ["a"], lambda _: None, lambda _: study_config({}))
    assert records == [{"key": "a", "skipped": True}]
    assert pair_table(records).empty


def test_error_counts_panels_not_pairs():
    """Ten panels that reject all or nothing are ten observations, however many pairs they have."""
    hit = np.repeat([0.0] * 5 + [1.0] * 5, 20)
    table = pd.DataFrame(
        {"panel": np.repeat(np.arange(10), 20), "p": 1 - hit, "cause_unit": "", "effect_unit": ""}
    ).assign(cause="a", effect="b")
    share, error = share_of_rejections(table, "p", 0.05)
    assert share == 0.5
    assert error == pytest.approx(np.std([0] * 5 + [1] * 5, ddof=1) / np.sqrt(10))


def test_error_over_machines_is_larger_when_one_machine_is_to_blame():
    rng = np.random.default_rng(0)
    ends = np.array([rng.choice(8, 2, replace=False) for _ in range(400)])
    blamed = (ends == 3).any(axis=1)
    table = pd.DataFrame(
        {
            "panel": np.arange(400),
            "p": np.where(blamed, 0.0, 1.0),
            "cause_unit": ends[:, 0].astype(str),
            "effect_unit": ends[:, 1].astype(str),
        }
    ).assign(cause="a", effect="b")
    _, error = share_of_rejections(table, "p", 0.05)
    _, by_panel = share_of_rejections(table.assign(cause_unit="", effect_unit=""), "p", 0.05)
    assert error > 3 * by_panel


def test_error_counts_the_same_two_stretches_once():
    """Thirty panels of three stretches: six ordered pairs, and one of them is to blame."""
    stretches = [(one, other) for one in "xyz" for other in "xyz" if one != other]
    table = pd.DataFrame(stretches * 30, columns=["cause_unit", "effect_unit"]).assign(
        cause="a", effect="b", panel=np.arange(180)
    )
    table["p"] = np.where((table["cause_unit"] == "x") & (table["effect_unit"] == "y"), 0.0, 1.0)
    share, error = share_of_rejections(table, "p", 0.05)
    assert share == pytest.approx(1 / 6)
    assert error == pytest.approx(np.std([1, 0, 0, 0, 0, 0], ddof=1) / np.sqrt(6))
