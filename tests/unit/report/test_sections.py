"""Sections of the page, each against the tables or facts it is made from."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import fedgranger as fg
from fedgranger.errors import RunError
from fedgranger.inference.edges import decide
from fedgranger.report.audit import audit_section
from fedgranger.report.chart import draw_variance_chart
from fedgranger.report.checks import checks_section
from fedgranger.report.clients import clients_section
from fedgranger.report.headline import cautions
from fedgranger.report.payload import build_payload, to_script_text
from fedgranger.report.privacy import privacy_section
from fedgranger.report.root_cause import root_cause_section
from fedgranger.report.run import write_run_report
from fedgranger.report.small_charts import draw_p_histogram, draw_p_quantiles, draw_quantiles
from fedgranger.report.training import training_section
from tests.browser.pages import (
    made_audit,
    made_manifest,
    made_root_causes,
    made_tables,
    made_uncertainty,
)
from tests.configs import formula_config

NAMES = ["a", "b", "c"]


def payload_of(names=NAMES, couplings=None, **changes):
    edges, entries = made_tables(names)
    inference = {"test": "debiased", "alpha": 0.05, "correction": "bh", "confidence": 0.9}
    parts = {"entries": entries, "fedgc": None, **changes}
    return (
        edges,
        entries,
        build_payload(names, edges, inference=inference, couplings=couplings, **parts),
    )


def test_payload_holds_the_tables_without_loss():
    edges, entries, payload = payload_of()
    again = json.loads(to_script_text(payload))
    test = again["tests"][0]
    for key, column in {"strength": "strength", "p": "p_value", "low": "ci_low"}.items():
        values = np.array([np.nan if x is None else x for x in test[key]])
        np.testing.assert_array_equal(values, edges[column].to_numpy())
    starts = again["entries"]["start"]
    assert starts == list(range(0, 4 * len(edges) + 1, 4))
    np.testing.assert_allclose(again["entries"]["estimate"], entries["estimate"], rtol=1e-8)
    assert again["confidence"] == 0.9


def test_entries_in_another_order_find_their_pair():
    edges, entries, _ = payload_of()
    _, _, payload = payload_of(entries=entries.sample(frac=1, random_state=3))
    place = {pair: i for i, pair in enumerate(zip(edges["cause"], edges["effect"], strict=True))}
    start = payload["entries"]["start"]
    for (cause, effect), block in entries.groupby(["cause", "effect"]):
        i = place[cause, effect]
        found = payload["entries"]["estimate"][start[i] : start[i + 1]]
        assert sorted(found) == pytest.approx(sorted(block["estimate"]))


def test_pairs_outside_the_couplings_do_not_count():
    edges, _, payload = payload_of(couplings=[["a", "b"], ["b", "a"]])
    pairs = zip(edges["cause"], edges["effect"], strict=True)
    assert payload["counted"] == [set(pair) == {"a", "b"} for pair in pairs]


def test_untested_run_shows_fedgc_only_when_it_is_chosen():
    edges, _ = made_tables(NAMES)
    bare = edges[["cause", "effect", "strength"]]
    payload = build_payload(NAMES, bare, None, None, {}, None)
    assert [test["id"] for test in payload["tests"]] == ["none"]
    assert "p" not in payload["tests"][0]
    assert set(payload["tests"][0]["strength"]) == {None}
    payload = build_payload(NAMES, bare, None, bare, {}, None)
    assert [test["id"] for test in payload["tests"]] == ["none", "fedgc"]
    assert payload["tests"][1]["label"] == "FedGC's ranking, not tested"


def test_the_other_test_can_be_chosen_and_says_its_question():
    edges, entries = made_tables(NAMES)
    other = edges.assign(p_value=edges["p_value"].to_numpy()[::-1]).sample(frac=1, random_state=1)
    inference = {"test": "readings", "test_reason": "x", "beside": {"test": "debiased"}}
    payload = build_payload(NAMES, edges, entries, None, inference, None, other)
    own, beside, single = payload["tests"]
    assert [own["id"], beside["id"], single["id"]] == ["readings", "debiased", "entries"]
    assert "beyond the effect's own past" in own["question"]
    assert "Why this test: x." in own["question"]
    assert "latent influence" in beside["question"]
    at = other.set_index(["cause", "effect"])["p_value"]
    for i, (cause, effect) in enumerate(zip(edges["cause"], edges["effect"], strict=True)):
        p = at.loc[(cause, effect)]
        assert beside["p"][i] == (None if np.isnan(p) else p)
    assert own["untested"][1] == "its test could not be made"
    assert own["untested"][0] is None


def test_audit_section_says_rate_worst_client_and_positive_control():
    facts = {
        "test": "readings",
        "alpha": 0.05,
        "audit": made_audit(NAMES),
        "extrapolated": ["a -> b"],
        "positive_control": {"a -> b": 0.1, "c -> b": 0.3, "a -> c": 0.2},
        "innovation_sensor": {
            "b": {"sensor": "<flow>", "innovation": 5.0, "is_change": True},
            "c": {"sensor": "level", "innovation": 2.0, "is_change": False},
        },
    }
    text = audit_section({"inference": facts})
    for words in (
        "Can these p-values be trusted on this data?",
        "0.210 ± 0.020",
        "Worst: 0.400 ± 0.050, where b is the effect. Its record is seasonal (12 % of its changes",
        "repeat every 24 steps",
        "1 of the copies could not be tested",
        "is 0.1 (a -&gt; b, which moves the change per row of &lt;flow&gt; by 0.5) to 0.3",
        "level by 0.4",
        "2 of 4 levels lie outside the band",
        "class='band'",
    ):
        assert words in text, words
    assert "knows no sensor" not in text
    assert "Yes: they are taken from copies" in text
    facts["audit"]["clients"]["c"] = {**facts["audit"]["clients"]["b"], "peak_period": 12.1}
    assert "Only with a reservation: b, c repeat with" in audit_section({"inference": facts})
    assert "Caution:</strong> b, c repeat with" in cautions({"inference": facts})
    del facts["innovation_sensor"]
    assert "knows no sensor" in audit_section({"inference": facts})


def test_audit_section_of_older_runs_and_of_runs_without_it():
    old = made_audit(NAMES)
    for key in ("quantiles", "clients"):
        del old[key]
    text = audit_section({"inference": {"test": "debiased", "audit": old}})
    assert "0.210 ± 0.020" in text
    assert "<svg" not in text
    assert "No: on copies" in text
    assert "Not tried" in audit_section({"inference": {"test": "debiased"}})
    assert audit_section({"inference": {"test": "auto", "reason": "too short"}}) == ""
    assert audit_section({}) == ""


def test_quantile_plot_of_even_p_values_lies_on_its_line():
    level = [0.001, 0.01, 0.1, 0.5]
    svg = draw_p_quantiles({"level": level, "observed": level, "low": level, "high": level}, "x")
    x0, y0, x1, y1 = (
        float(re.search(rf" {key}='([\d.]+)'", svg)[1]) for key in ("x1", "y1", "x2", "y2")
    )
    points = re.findall(r"cx='([\d.]+)' cy='([\d.]+)'", svg)
    assert len(points) == 4
    for x, y in points:
        assert float(y) == pytest.approx(y0 + (y1 - y0) * (float(x) - x0) / (x1 - x0), abs=0.15)
    assert "0 of 4 quantiles outside" in svg
    assert draw_p_quantiles({}, "x") == ""


def test_geometry_has_an_arrow_per_pair_that_ends_at_its_effect():
    _, _, payload = payload_of()
    assert len(payload["geometry"]) == len(payload["cause"])
    tips = {effect: [] for effect in range(3)}
    for effect, shape in zip(payload["effect"], payload["geometry"], strict=True):
        tips[effect].append(shape[4:6])
    for points in tips.values():  # near each other: on the rim of the same client
        assert np.hypot(*np.subtract(*points)) < 20


def test_variance_chart_sums_over_clients_and_keeps_the_split():
    table = made_uncertainty(NAMES)
    both = pd.concat([table, table.assign(client="b")])
    one = draw_variance_chart(table, "granger_cov", "x")
    two = draw_variance_chart(both, "granger_cov", "x")
    number = lambda svg: float(re.search(r"total from ([\d.e+-]+)", svg)[1])  # noqa: E731
    assert number(two) == pytest.approx(2 * number(one))
    for label in ("total", "from data", "from prior"):
        assert f">{label}<" in one
    unsplit = draw_variance_chart(table.assign(prior=np.nan, data=np.nan), "granger_cov", "x")
    assert "from prior" not in unsplit
    assert draw_variance_chart(table, "nothing", "x") == ""


def test_training_says_how_to_get_the_uncertainty():
    trace = pd.DataFrame({"pass_index": [0, 1], "local_loss": [2.0, 1.0], "server_loss": [1, 0.5]})
    assert "--uncertainty joint" in training_section(trace, None, None, {})
    shown = training_section(trace, made_uncertainty(NAMES), {"a": 1200.0, "b": float("inf")}, {})
    assert "1200" in shown
    assert "not reached" in shown
    assert training_section(pd.DataFrame(), None, None, {}) == ""


def test_histogram_counts():
    svg = draw_p_histogram(np.array([0.01, 0.02, 0.55, np.nan, 1.0]), "p")
    assert "2 of 4 below 0.1; the rest 0, 0, 0, 0, 1, 0, 0, 0, 1" in svg
    assert draw_p_histogram(np.array([np.nan]), "p") == ""


def test_quantiles_of_a_perfect_fit_lie_on_the_line():
    from scipy import stats

    perfect = stats.norm.ppf((np.arange(41) + 0.5) / 41)
    svg = draw_quantiles(perfect.tolist(), "q")
    points = re.findall(r"cx='([\d.]+)' cy='([\d.]+)'", svg)
    assert len(points) == 41
    assert all(float(x) - 30 == pytest.approx(190 - float(y), abs=0.11) for x, y in points)
    assert draw_quantiles([None, 1.0], "q") == ""


def test_checks_state_what_the_manifest_says():
    edges, entries = made_tables([f"n{k}" for k in range(6)])
    text = checks_section(edges, entries, made_manifest(["n0"]))
    p = edges["p_value"].dropna()
    assert f"about {2 * (p > 0.5).sum():.0f} of {len(p)} pairs have no influence" in text
    assert "strength 0.080" in text
    assert checks_section(edges[["cause", "effect", "strength"]], None, {}) == ""


def test_client_pages_name_causes_effects_and_local_fit():
    edges, _ = made_tables(NAMES)
    text = clients_section(NAMES, decide(edges, 0.999, "none"), made_manifest(NAMES))
    assert text.count("<details class='client'") == 3
    assert "a is driven by" in text
    assert "variance 1.210" in text
    assert "90.0 %" in text
    manifest = made_manifest(NAMES)
    for facts in manifest["data"]["clients"].values():
        facts.pop("local_fit", None)
    assert "known to the client alone" in clients_section(NAMES, edges, manifest)
    assert clients_section(NAMES, edges, {}) == ""


def test_privacy_says_plainly_that_there_is_no_budget_or_lists_it():
    assert "no differential-privacy guarantee" in privacy_section(made_manifest(NAMES))
    spent = {"privacy": {"clients": {"a<b": {"epsilon": 1.5, "delta": 1e-6}}}}
    text = privacy_section(spent)
    assert "a&lt;b" in text
    assert "1.500" in text
    assert privacy_section({}) == ""


def test_root_cause_panel_is_there_when_the_run_has_one():
    text = root_cause_section(made_root_causes(["<i>", "b"]))
    assert "&lt;i&gt;" in text
    assert "60 %" in text
    assert "4 steps before" in text
    assert root_cause_section(None) == ""


def test_report_of_a_run_shows_its_root_causes_and_refuses_a_broken_file(tmp_path):
    panel, _ = fg.simulate(2, 600, seed=3)
    result = fg.fit(panel, formula_config(state_dim=2, passes=2, tolerance=0))
    write_run_report(tmp_path / "report.html", result)
    assert "id='root-cause'" not in (tmp_path / "report.html").read_text()
    (tmp_path / "rca.json").write_text(json.dumps(made_root_causes(list(result.clients))))
    write_run_report(tmp_path / "report.html", result)
    text = (tmp_path / "report.html").read_text()
    assert "id='root-cause'" in text
    assert "smallest entry" in text
    (tmp_path / "rca.json").write_text("{")
    for wrong in ("{", "[1]", '{"windows": [{"name": "x"}]}'):
        (tmp_path / "rca.json").write_text(wrong)
        with pytest.raises(RunError, match=r"rca\.json: cannot be read"):
            write_run_report(tmp_path / "report.html", result)
    assert (tmp_path / "report.html").read_text() == text
