"""Comparisons that can be checked by hand."""

import math

import pandas as pd
import pytest

from fedgranger.data.known_graph import KnownGraph
from fedgranger.errors import ConfigError, DataError, RunError
from fedgranger.evaluation.comparison import compare_runs, compare_with_graph
from tests.configs import formula_config
from tests.fake_runs import made_manifest, made_result, pairs_of, table_of


def make_run(clients, edges, *, data="h", intervals=None, dims=None, untested=(), **options):
    """A run that finds exactly `edges` (a dictionary pair -> strength)."""
    pairs = pairs_of(clients)
    p_values = [math.nan if pair in untested else 0.001 if pair in edges else 0.5 for pair in pairs]
    strengths = [edges.get(pair, 0.01) for pair in pairs]
    table = table_of(clients, strength=strengths, p_value=p_values)
    if intervals is not None:
        ends = [intervals.get(pair, (0.0, 0.02)) for pair in pairs]
        table["ci_low"], table["ci_high"] = zip(*ends, strict=True)
    config = formula_config(**{"correction": "none", **options})
    manifest = made_manifest(
        clients, data={"hash": data}, inference={"test": config.test, "reason": "too short"}
    )
    dims = dims or (2,) * len(clients)
    return made_result(clients, table, state_dims=dims, manifest=manifest, config=config)


def changes(found):
    table = found.edges
    pairs = zip(table["cause"], table["effect"], strict=True)
    return dict(zip(pairs, table["change"], strict=True))


def test_changes_by_hand():
    first = make_run("abc", {("a", "b"): 1.0, ("b", "c"): 0.5})
    second = make_run("abc", {("a", "b"): 1.5, ("c", "a"): 0.4}, data="other")
    found = compare_runs(first, second)
    assert changes(found) == {
        ("a", "b"): "stayed",
        ("b", "c"): "disappeared",
        ("c", "a"): "appeared",
        ("a", "c"): "absent",
        ("b", "a"): "absent",
        ("c", "b"): "absent",
    }
    assert found.headline == (
        "1 edge stayed, 1 appeared and 1 disappeared, of 6 possible between 3 common clients."
    )
    row = found.edges.set_index(["cause", "effect"]).loc[("a", "b")]
    assert row["strength_change"] == 0.5
    assert found.edges["change"].tolist()[:3] == ["appeared", "disappeared", "stayed"]
    assert found.is_same_data is False
    assert found.edges["intervals"].isna().all()


def test_the_other_way_round():
    first = make_run("abc", {("a", "b"): 1.0, ("b", "c"): 0.5}, alpha=0.01)
    second = make_run("abc", {("a", "b"): 1.5, ("c", "a"): 0.4})
    one, two = compare_runs(first, second), compare_runs(second, first)
    swap = {"appeared": "disappeared", "disappeared": "appeared"}
    assert changes(two) == {pair: swap.get(word, word) for pair, word in changes(one).items()}
    assert one.settings[["option", "first", "second"]].values.tolist() == [["alpha", 0.01, 0.05]]
    assert two.settings["first"].tolist() == one.settings["second"].tolist()


def test_intervals_meet_or_not():
    first = make_run("ab", {("a", "b"): 1.0, ("b", "a"): 1.0}, intervals={
        ("a", "b"): (0.5, 1.5), ("b", "a"): (0.5, 1.5),
    })  # fmt: skip
    second = make_run("ab", {("a", "b"): 3.0, ("b", "a"): 2.0}, intervals={
        ("a", "b"): (1.6, 4.0), ("b", "a"): (1.5, 3.0),
    })  # fmt: skip
    table = compare_runs(first, second).edges.set_index(["cause", "effect"])
    assert table.loc[("a", "b"), "intervals"] == "apart"
    assert table.loc[("b", "a"), "intervals"] == "overlap"  # touching is meeting
    back = compare_runs(second, first).edges.set_index(["cause", "effect"])
    assert back["intervals"].sort_index().equals(table["intervals"].sort_index())


@pytest.mark.parametrize(
    "other",
    [{"state_model": "svd"}, {"standardise": False}, {"confidence": 0.9}, {"dims": (2, 3)}],
)
def test_strengths_on_other_scales_are_not_compared(other):
    pair = {("a", "b"): (0.5, 1.5)}
    first = make_run("ab", {("a", "b"): 1.0}, intervals=pair)
    found = compare_runs(first, make_run("ab", {("a", "b"): 1.0}, intervals=pair, **other))
    assert found.edges["intervals"].isna().all()
    assert any("cannot be compared" in note for note in found.notes)
    assert changes(found)["a", "b"] == "stayed"


def test_missing_intervals_stay_empty():
    first = make_run("ab", {}, intervals={("a", "b"): (math.nan, math.nan)})
    table = compare_runs(first, first).edges.set_index(["cause", "effect"])
    assert pd.isna(table.loc[("a", "b"), "intervals"])
    assert table.loc[("b", "a"), "intervals"] == "overlap"


def test_clients_in_one_run_only():
    first = make_run("abx", {("a", "b"): 1.0, ("x", "a"): 1.0, ("b", "x"): 1.0})
    second = make_run("yab", {("a", "b"): 1.0})
    found = compare_runs(first, second)
    assert found.only_first == {"x": 2}
    assert found.only_second == {"y": 0}
    assert changes(found) == {("a", "b"): "stayed", ("b", "a"): "absent"}
    with pytest.raises(RunError, match="1 client in common"):
        compare_runs(first, make_run("pqx", {}))


def test_level_for_both_or_each_its_own():
    first = make_run("ab", {("a", "b"): 1.0}, alpha=0.0001)
    second = make_run("ab", {("a", "b"): 1.0})
    found = compare_runs(first, second)
    assert changes(found)["a", "b"] == "appeared"
    assert any("own levels, none 0.0001 and none 0.05" in note for note in found.notes)
    same = compare_runs(first, second, alpha=0.05, correction="holm")
    assert changes(same)["a", "b"] == "stayed"
    assert not any("own levels" in note for note in same.notes)
    with pytest.raises(ConfigError, match="alpha is 7"):
        compare_runs(first, second, alpha=7)


def test_not_tested_is_not_absent():
    first = make_run("ab", {("b", "a"): 1.0}, untested=[("a", "b")])
    found = compare_runs(first, make_run("ab", {("a", "b"): 1.0}))
    assert changes(found) == {("a", "b"): "not tested", ("b", "a"): "disappeared"}
    assert any("1 pair could not be tested" in note for note in found.notes)


def test_a_run_without_tests_is_refused():
    tested, untested = make_run("ab", {}), make_run("ab", {}, test="none")
    with pytest.raises(RunError, match=r"the second run has no edge tests \(too short\)"):
        compare_runs(tested, untested)
    with pytest.raises(RunError, match="the run has no edge tests"):
        compare_with_graph(untested, KnownGraph(("a", "b"), frozenset()))


def test_unknown_data_are_not_called_the_same():
    first, second = (make_run("ab", {}, data=data) for data in (None, "h"))
    assert compare_runs(first, second).is_same_data is None
    assert compare_runs(second, second).is_same_data is True
    assert compare_runs(second, second).settings.empty


def test_against_a_graph():
    run = make_run("abcd", {("a", "b"): 1.0, ("b", "c"): 0.5}, untested=[("c", "b")])
    graph = KnownGraph(("a", "b", "c"), frozenset({("a", "b"), ("c", "a"), ("c", "b")}))
    found = compare_with_graph(run, graph)
    expected = {("a", "b"): "confirmed", ("c", "a"): "missed", ("b", "c"): "extra"}
    expected |= {("c", "b"): "not tested"}
    assert {pair: word for pair, word in changes(found).items() if word != "absent"} == expected
    assert found.headline == ("1 of 3 known edges confirmed, 1 missed, 1 extra, of 12 possible.")
    assert any("does not name 'd'" in note for note in found.notes)
    assert any("1 known edge could not be tested" in note for note in found.notes)
    with pytest.raises(DataError, match="client 'z' that the run does not have"):
        compare_with_graph(run, KnownGraph(("a", "z"), frozenset({("a", "z")})))
