"""What the server writes: a run folder like any other, without what it cannot know."""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.cli.tables import edge_table, headline, ledger_table
from fedgranger.report.html import write_report
from fedgranger.runtime.federated.coordinator import drive
from fedgranger.runtime.federated.outcome import to_result
from tests.federation.test_parties import Federation, Ticking, silent_after


@pytest.fixture(scope="module")
def panel():
    return fg.simulate(3, 301, seed=0)[0]


def result_of(panel, folder, config, *, silent=False, **options):
    wrap = silent_after(5, "client3") if silent else lambda name, handle: handle
    federation = Federation(panel, folder, config, wrap, **options)
    server = federation.coordinator()
    found = drive(server, Ticking(federation))
    return to_result(server, found, "loopback", 1.0, server.dropped)


def test_run_folder_can_be_read_and_reported(panel, tmp_path):
    result = result_of(panel, tmp_path / "parties", fg.RunConfig(solver="newton"))
    result.save(tmp_path / "run")
    again = fg.Result.load(tmp_path / "run")
    np.testing.assert_array_equal(again.granger, result.granger)
    assert again.augmentations == {}
    assert again.manifest["runtime"] == "loopback"
    assert again.manifest["training"]["converged"]
    write_report(tmp_path / "r.html", again.edges(), again.manifest, again.trace)
    text = (tmp_path / "r.html").read_text()
    assert "answers refused" in text
    assert "converged after" in text
    for sensor in panel["client1"].sensors:
        assert f">{sensor}<" not in text


def test_edges_of_a_client_that_stayed_away_are_marked_untested(panel, tmp_path):
    config = fg.RunConfig(
        solver="newton", couplings=(("client1", "client2"), ("client3", "client2"))
    )
    for options in (fg.RunConfig(solver="newton"), config):
        result = result_of(
            panel, tmp_path / str(options == config), options,
            silent=True, wait_seconds=60, on_missing="drop",
        )  # fmt: skip
        result.save(tmp_path / "run")
        again = fg.Result.load(tmp_path / "run")
        edges = again.edges()
        assert len(edges) == 6
        away = edges.query("cause == 'client3' or effect == 'client3'")
        assert len(away) == 4
        assert away["p_value"].isna().all()
        assert away["is_edge"].isna().all()
        assert "client 'client3' stayed away" in again.manifest["inference"]["warnings"][0]
        write_report(tmp_path / "r.html", edges, again.manifest, again.trace)
        headline(again), ledger_table(again.manifest["bytes"])
        edge_table(again.edges(sort=True), None, again.edges(estimate="fedgc"))
