"""What was tested, what was not, and that every way out counts the same."""

import json
import re

import pytest
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app
from fedgranger.inference.answer import count_edges, counts_text


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def partly(tmp_path_factory):
    """Two of six pairs are tested."""
    folder = tmp_path_factory.mktemp("partly")
    panel, _ = fg.simulate(3, 600, edges=[("client1", "client2")], seed=1)
    panel.write(folder / "data")
    words = ("--state-dim", 2, "--solver", "newton", "--copies", 20)
    pairs = ("--couplings", "client1->client2,client3->client2")
    done = call("fit", folder / "data", "--out", folder / "run", *words, *pairs)
    assert done.exit_code == 0, done.output
    return folder / "run", " ".join(done.stdout.split())


@pytest.fixture(scope="module")
def untested(tmp_path_factory):
    """Too few rows for any test."""
    folder = tmp_path_factory.mktemp("untested")
    panel, _ = fg.simulate(6, 40, state_dims=4, seed=1)
    panel.write(folder / "data")
    words = ("--state-dim", 4, "--solver", "newton")
    return folder / "run", call("fit", folder / "data", "--out", folder / "run", *words)


def test_counts_agree_everywhere(partly):
    folder, printed = partly
    result = fg.Result.load(folder)
    counts = count_edges(result.edges())
    assert (counts.possible, counts.tested) == (6, 2)
    first = counts_text(counts, "(false discovery rate 0.05)")
    assert printed.startswith(f"{first}. Tested: ")
    for word in ("edges", "diagnose", "watch"):
        assert first in " ".join(call(word, folder).stdout.split()), word
    assert "4 of 6 pairs were not tested" in first
    page = (folder / "report.html").read_text()
    assert f'<p class="headline">{first}.</p>' in page
    facts = json.loads(call("export", folder, "--format", "json").stdout)["graph"]
    exported = [facts[key] for key in ("num_pairs", "num_tested", "num_edges")]
    assert exported == [counts.possible, counts.tested, counts.found]
    pytest.importorskip("matplotlib")
    assert fg.plot.graph(result).get_title() == counts_text(counts, "at q ≤ 0.05")


def test_a_pair_that_was_not_tested_says_why_in_the_terminal(partly):
    folder, printed = partly
    for text in (printed, " ".join(call("edges", folder).stdout.split())):
        assert re.search(r"client2 client1 [\d.]+ 1 not tested", text)
        (line,) = re.findall(r"not tested: (client\d -> .*?): left out by 'couplings'", text)
        pairs = ["client1 -> client3", "client2 -> client1", "client2 -> client3"]
        assert sorted(line.split(", ")) == [*pairs, "client3 -> client1"]
    assert printed.count("fedgc") == 0


def test_the_question_and_its_reason_stand_above_every_table(partly):
    folder, printed = partly
    facts = fg.Result.load(folder).manifest["inference"]
    for text in (printed, *(call(word, folder).stdout for word in ("edges", "diagnose"))):
        said = " ".join(text.split())
        assert f"Why this test: {facts['test_reason']}." in said
        assert said.index("Tested: ") < said.index("client1")
    other = {"debiased": "readings", "readings": "debiased"}[facts["test"]]
    said = " ".join(call("edges", folder, "--estimate", other).stdout.split())
    assert "of 2 tested pairs" in said


def test_nothing_tested_is_said_first_and_leaves_with_status_3(untested):
    folder, done = untested
    assert done.exit_code == 3
    assert done.stdout.startswith("Nothing was tested: ")
    assert "rows for" in done.stdout.splitlines()[0]
    assert "could not be tested" in done.stderr
    assert "strength" not in done.stdout
    assert (folder / "manifest.json").exists()
    page = (folder / "report.html").read_text()
    assert page.index("Nothing was tested: ") < page.index("<nav")
    data = json.loads(page.partition('id="run-data">')[2].partition("</script>")[0])
    assert not any("p" in test for test in data["tests"])  # without p-values no arrow is drawn
    for word in ("diagnose", "audit"):
        refused = call(word, folder)
        assert refused.exit_code == 2
        assert "nothing was tested: " in refused.stderr
    assert "nothing was tested" in call("export", folder, "--format", "csv").stderr
    assert call("edges", folder).stdout.startswith("Nothing was tested: ")


def test_the_ranking_is_shown_only_where_it_is_asked_for(untested, partly):
    for folder in (untested[0], partly[0]):
        said = call("edges", folder, "--estimate", "fedgc").stdout
        assert said.startswith("FedGC's own ranking. It is not a test")
        rows = json.loads(call("edges", folder, "--estimate", "fedgc", "--json").stdout)
        assert max(row["strength"] for row in rows) > 0
        assert {row["p_value"] for row in rows} == {None}
    rows = json.loads(call("edges", untested[0], "--json").stdout)
    assert {row["strength"] for row in rows} == {None}


def test_help_names_the_exit_status():
    said = " ".join(call("fit", "--help").stdout.split())
    assert "3: the run is written but nothing could be tested" in said
