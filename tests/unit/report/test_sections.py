"""Sections of the page, each against the tables or facts it is made from."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from fedgranger.errors import RunError
from fedgranger.inference.audit_words import verdict
from fedgranger.inference.decision import decide
from fedgranger.manifest_types import Manifest
from fedgranger.report.charts import error_quantiles, p_histogram, p_quantiles
from fedgranger.report.first_screen import first_screen
from fedgranger.report.html import render_report, write_run_report
from fedgranger.report.pairs import check_edges
from fedgranger.report.payload import build_payload, to_script_text
from fedgranger.report.training_section import loss_chart, variance_chart
from fedgranger.tested_facts import InferenceFacts, QuantileFacts
from tests.fake_runs import (
    full_manifest,
    made_audit,
    made_over_time,
    made_root_causes,
    made_tables,
    made_uncertainty,
)

NAMES = ["a", "b", "c"]
NO_TRACE = pd.DataFrame()


def section(name, manifest, edges=None, trace=NO_TRACE, **more):
    """One section of the page, or nothing where the page has none."""
    edges = made_tables(NAMES)[0] if edges is None else edges
    page = render_report(edges, manifest, trace, **more)
    found = re.search(rf'<section id="{name}">.*?</section>', page, flags=re.DOTALL)
    assert (f'href="#{name}"' in page) == bool(found)
    return found[0] if found else ""


def verdict_of(facts):
    return verdict(InferenceFacts.of(facts))


def payload_of(names=NAMES, couplings=None, **changes):
    edges, entries = made_tables(names)
    inference = InferenceFacts(test="debiased", alpha=0.05, correction="bh", confidence=0.9)
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
    payload = build_payload(NAMES, bare, None, None, InferenceFacts(), None)
    assert [test["id"] for test in payload["tests"]] == ["none"]
    assert "p" not in payload["tests"][0]
    assert set(payload["tests"][0]["strength"]) == {None}
    payload = build_payload(NAMES, bare, None, bare, InferenceFacts(), None)
    assert [test["id"] for test in payload["tests"]] == ["none", "fedgc"]
    assert payload["tests"][1]["label"] == "FedGC's ranking, not tested"


def test_the_other_test_can_be_chosen_and_says_its_question():
    edges, entries = made_tables(NAMES)
    other = edges.assign(p_value=edges["p_value"].to_numpy()[::-1]).sample(frac=1, random_state=1)
    latent = InferenceFacts(test="debiased")
    inference = InferenceFacts(test="readings", test_reason="x", beside=latent)
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
    text = section("audit", {"inference": facts})
    for words in (
        "Can these p-values be trusted on this data?",
        "0.210 ± 0.020",
        "Worst: 0.400 ± 0.050, where b is the effect. Its record is seasonal (12 % of its changes",
        "repeat every 24 steps",
        "1 of the copies could not be tested",
        "is 0.1 (a -&gt; b, which moves the change per row of &lt;flow&gt; by 0.5) to 0.3",
        "level by 0.4",
        "2 of 4 levels lie outside the band",
        'data-chart="audit"',
    ):
        assert words in text, words
    assert "knows no sensor" not in text
    assert "Yes: the p-values come from copies" in text
    facts["audit"]["clients"]["c"] = {**facts["audit"]["clients"]["b"], "peak_period": 12.1}
    assert "Only with a reservation: b, c repeat with" in section("audit", {"inference": facts})
    assert "reservation" in verdict_of(facts)
    assert "Apart from that the p-values come from copies" in verdict_of(facts)
    by_formula = {key: value for key, value in facts.items() if key != "extrapolated"}
    assert verdict_of(by_formula).startswith("No: on copies of these very data"), "it is off anyway"
    by_formula["audit"] = by_formula["audit"] | {"is_inside": True}
    assert "Apart from that copies of these very data without" in verdict_of(by_formula)
    short = {"audit": made_audit(NAMES) | {"clients": {}, "unsearched": ["1d", "7d"]}}
    short["audit"]["is_inside"] = True
    assert verdict_of(short).startswith(
        "Only with a reservation: the record is too short to look for"
    )
    assert "(period = '1d,7d')" in verdict_of(short)
    page = render_report(made_tables(NAMES)[0], {"inference": facts}, NO_TRACE)
    assert page.count("Only with a reservation: b, c repeat with") == 2  # also at the top
    del facts["innovation_sensor"]
    assert "knows no sensor" in section("audit", {"inference": facts})


def test_audit_section_of_older_runs_and_of_runs_without_it():
    old = made_audit(NAMES)
    for key in ("quantiles", "clients"):
        del old[key]
    text = section("audit", {"inference": {"test": "debiased", "audit": old}})
    assert "0.210 ± 0.020" in text
    assert "<svg" not in text
    assert "No: on copies" in text
    assert "Not tried" in section("audit", {"inference": {"test": "debiased"}})
    assert section("audit", {"inference": {"test": "auto", "reason": "too short"}}) == ""
    assert section("audit", {}) == ""


def test_quantile_plot_counts_what_lies_outside_its_band():
    found = made_audit(NAMES)["quantiles"]
    chart = p_quantiles("x", QuantileFacts(**found))
    assert chart.words == "2 of 4 quantiles outside the 95 % band"
    assert chart.data["rows"] == list(zip(*found.values(), strict=True))
    assert chart.rows[0] == ["0.010", "0.001", "0.005", "0.015"]
    assert p_quantiles("x", None) is None


def test_loss_chart_has_means_over_clients():
    trace = pd.DataFrame(
        {
            "pass_index": [0, 0, 1, 1, 2, 2],
            "local_loss": [50.0, 150.0, 10.0, np.nan, 0.5, 1.5],
            "server_loss": [0.0, -1.0, 1.0, 1.0, np.inf, 10.0],
        }
    )
    chart = loss_chart(trace)
    local, server = chart.data["lines"]
    assert (local["x"], local["y"]) == ([0, 1, 2], [100, 10, 1])
    assert (server["x"], server["y"]) == ([1, 2], [1, 10])  # a log axis has no zero
    assert chart.words.startswith("local loss from 100 at pass 0 to 1 at pass 2; server loss")
    assert chart.rows == [["0", "100", "–"], ["1", "10", "1"], ["2", "1", "10"]]
    assert loss_chart(pd.DataFrame({"pass_index": [0, 1]})) is None


def test_long_lines_are_thinned_and_keep_their_end():
    trace = pd.DataFrame({"pass_index": range(5000), "local_loss": np.arange(5000) + 1.0})
    chart = loss_chart(trace)
    assert len(chart.data["lines"][0]["x"]) <= 600
    assert chart.data["lines"][0]["x"][-1] == 4999
    assert len(chart.rows) == 9
    assert chart.rows[-1] == ["4999", "5e+03"]


def test_variance_chart_sums_over_clients_and_keeps_the_split():
    table = made_uncertainty(NAMES)
    both = pd.concat([table, table.assign(client="b")])
    one, two = (variance_chart(rows, "granger_cov", "x").data["lines"] for rows in (table, both))
    assert [line["label"] for line in one] == ["total", "from data", "from prior"]
    for single, double in zip(one, two, strict=True):
        np.testing.assert_allclose(double["y"], 2 * np.array(single["y"]), rtol=2e-4)
    prior = next(line for line in one if line["style"] == "prior")
    np.testing.assert_allclose(prior["y"], np.exp(-np.array(prior["x"]) / 400), rtol=1e-4)
    unsplit = variance_chart(table.assign(prior=np.nan, data=np.nan), "granger_cov", "x")
    assert [line["label"] for line in unsplit.data["lines"]] == ["total"]
    assert variance_chart(table, "nothing", "x") is None


def test_a_line_far_below_the_others_is_cut_off():
    table = made_uncertainty(NAMES).assign(total=1.0, prior=1e-9, data=1e-7)
    lines = variance_chart(table, "granger_cov", "x").data["lines"]
    assert [line["style"] for line in lines] == ["total", "data"]


def test_training_says_how_to_get_the_uncertainty():
    trace = pd.DataFrame({"pass_index": [0, 1], "local_loss": [2.0, 1.0], "server_loss": [1, 0.5]})
    assert "--uncertainty joint" in section("training", {}, trace=trace)
    more = {"uncertainty": made_uncertainty(NAMES), "prior_time": {"a": 1200.0, "b": float("inf")}}
    shown = section("training", {}, trace=trace, **more)
    assert "1200" in shown
    assert "not reached" in shown
    assert section("training", {}) == ""
    none = section("training", {"training": {"solver": "none", "status": "not <run>"}}, trace=trace)
    assert "not &lt;run&gt;." in none
    assert "Uncertainty" not in none


def test_edges_over_time_have_a_section_with_what_drifts():
    manifest, table = full_manifest(NAMES), made_over_time(NAMES)
    assert section("over-time", manifest) == ""
    quiet = section("over-time", manifest, over_time=table)
    assert "Drift" not in quiet
    assert "Caution" not in quiet
    change = {"client": "b", "what": "the level of the states", "p_value": 1e-4, "time": "step 7"}
    manifest["inference"]["drift"] = {"num_tests": 12, "level": 0.01, "changes": []}
    assert "was found in 12 tests" in section("over-time", manifest, over_time=table)
    manifest["inference"] |= {
        "drift": {"num_tests": 12, "level": 0.01, "changes": [change]},
        "test": "readings",
    }
    changed = section("over-time", manifest, over_time=table)
    assert "the level of the states of b around step 7 (p = 0.0001 after 12 tests)" in changed
    assert "take them as a picture, not as tests" in changed
    assert changed.count("data-chart=") == 6
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", changed.partition("Least and most")[0])
    assert cells[-42:-35] == ["a", "b", ".?.###", "2026-03-31T00:00:00 to 2026-04-29T23:00:00",
                              "0.100", "0.550", "1.00e-06"]  # fmt: skip
    unknown = ["2026-03-11T00:00:00", "2026-03-20T23:00:00", "–", "–", "–", "not tested"]
    assert cells[6:12] == unknown


def test_first_screen_says_data_trust_gaps_and_next_steps():
    edges, _ = made_tables(NAMES)
    edges.loc[0, "is_edge"] = True
    manifest = full_manifest(NAMES)
    manifest["data"]["period"] = {"text": "1 to 5 May, 4000 steps of 1 min", "step_seconds": 60.0}
    manifest = Manifest.of(manifest)
    found = first_screen(check_edges(edges), manifest)
    sensors = sum(row["num_sensors"] for row in manifest["data"]["clients"].values())
    start = f"{len(NAMES)} clients with {sensors} sensors; 1 to 5 May, 4000 steps of 1 min"
    assert found["data"].startswith(start)
    assert found["trust"] == verdict(manifest["inference"])
    (gap,) = found["untested"]
    assert gap.startswith("{cause} → {effect}: ".format(**edges.loc[1]))
    assert any("unknown, not absent" in step for step in found["next"])
    assert any("weather" in step for step in found["next"])
    none = edges.assign(is_edge=False, p_value=0.9)
    steps = first_screen(check_edges(none), manifest)["next"]
    assert any("could have been missed" in step for step in steps)
    assert not any("weather" in step for step in steps)
    untested = edges.assign(is_edge=None, p_value=np.nan)
    reason = {"inference": {"reason": "too short"}}
    steps = first_screen(check_edges(untested), Manifest.of(reason))["next"]
    assert len(steps) == 1
    assert "fedgranger check" in steps[0]


def test_histogram_counts():
    chart = p_histogram("x", np.array([0.01, 0.02, 0.55, np.nan, 1.0]), "pairs")
    assert chart.words == "2 of 4 below 0.1; the rest 0, 0, 0, 0, 1, 0, 0, 0, 1"
    assert chart.data["counts"] == [2, 0, 0, 0, 0, 1, 0, 0, 0, 1]
    assert chart.rows[5] == ["0.5 to 0.6", "1"]
    assert p_histogram("x", np.array([np.nan]), "pairs") is None


def test_error_quantiles_stand_beside_the_normal_ones():
    from scipy import stats

    perfect = stats.norm.ppf((np.arange(41) + 0.5) / 41)
    points = np.array(error_quantiles("x", perfect.tolist()).data["points"])
    assert points.shape == (41, 2)
    np.testing.assert_allclose(points[:, 0], perfect, atol=6e-4)
    np.testing.assert_array_equal(points[:, 0], points[:, 1])
    assert error_quantiles("x", [None, 1.0]) is None


def test_checks_state_what_the_manifest_says():
    edges, entries = made_tables([f"n{k}" for k in range(6)])
    text = section("checks", full_manifest(["n0"]), edges, entries=entries)
    p = edges["p_value"].dropna()
    assert f"about {2 * (p > 0.5).sum():.0f} of {len(p)} pairs have no influence" in text
    assert "strength 0.080" in text
    assert section("checks", {}, edges[["cause", "effect", "strength"]]) == ""


def test_client_pages_name_causes_effects_and_local_fit():
    edges, _ = made_tables(NAMES)
    text = section("clients", full_manifest(NAMES), decide(edges, 0.999, "none"))
    assert text.count('<details class="client"') == 3
    assert "a is driven by" in text
    assert "variance 1.210" in text
    assert "90.0 %" in text
    manifest = full_manifest(NAMES)
    for facts in manifest["data"]["clients"].values():
        facts.pop("local_fit", None)
    assert "known to the client alone" in section("clients", manifest, edges)
    assert section("clients", {}, edges) == ""


def test_privacy_says_plainly_that_there_is_no_budget():
    assert "no differential-privacy guarantee" in section("privacy", full_manifest(NAMES))
    assert section("privacy", {}) == ""


def test_root_cause_panel_is_there_when_the_run_has_one():
    text = section("root-cause", {}, root_causes=made_root_causes(["<i>", "b"]))
    assert "&lt;i&gt;" in text
    assert "60 %" in text
    assert "4 steps before" in text
    assert section("root-cause", {}) == ""


def test_report_of_a_run_shows_its_root_causes_and_refuses_a_broken_file(small_run, tmp_path):
    write_run_report(tmp_path / "report.html", small_run)
    assert 'id="root-cause"' not in (tmp_path / "report.html").read_text()
    (tmp_path / "rca.json").write_text(json.dumps(made_root_causes(list(small_run.clients))))
    write_run_report(tmp_path / "report.html", small_run)
    text = (tmp_path / "report.html").read_text()
    assert 'id="root-cause"' in text
    assert "smallest entry" in text
    (tmp_path / "rca.json").write_text("{")
    for wrong in ("{", "[1]", '{"windows": [{"name": "x"}]}'):
        (tmp_path / "rca.json").write_text(wrong)
        with pytest.raises(RunError, match=r"rca\.json: cannot be read"):
            write_run_report(tmp_path / "report.html", small_run)
    assert (tmp_path / "report.html").read_text() == text
