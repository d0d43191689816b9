"""What the server writes: a run folder like any other, without what it cannot know."""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.cli.tables import edge_table, headline, ledger_table, untested_lines
from fedgranger.federation.driving import drive
from fedgranger.federation.outcome import to_result
from fedgranger.federation.run_record import _status
from fedgranger.inference.audit_words import control_sentences
from fedgranger.report.html import write_report, write_run_report
from tests.configs import formula_config
from tests.federation.loopback_run import Federation, Ticking, silent_after


@pytest.fixture(scope="module")
def panel():
    return fg.simulate(3, 301, seed=0)[0]


def result_of(panel, folder, config, *, silent=None, **options):
    wrap = silent_after(3, silent) if silent else lambda name, handle: handle
    federation = Federation(panel, folder, config, wrap, **options)
    server = federation.coordinator()
    found = drive(server, Ticking(federation))
    return to_result(server, found, "loopback", 1.0, server.dropped)


@pytest.mark.parametrize(("exact", "remedy"), [(True, "fixed"), (False, "or 'tolerance'")])
def test_the_remedy_of_unfinished_training_is_one_that_helps(exact, remedy):
    sentence = _status(3, 0.5, 1e-10, exact=exact)
    assert "raise 'passes'" in sentence
    assert remedy in sentence


def test_run_folder_can_be_read_and_reported(panel, tmp_path):
    result = result_of(panel, tmp_path / "parties", formula_config(solver="newton"))
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


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_run_without_rounds_says_so_and_shows_no_estimate_of_fedgc(panel, tmp_path):
    trained = result_of(panel, tmp_path / "trained", formula_config(solver="newton"))
    trained.save(tmp_path / "run")  # whose tables must not stay behind
    result = result_of(panel, tmp_path / "parties", formula_config(solver="none"))
    alone = fg.fit(panel, config=formula_config(solver="none"))
    for found in (result, alone):
        found.save(tmp_path / "run", overwrite=True)
        again = fg.Result.load(tmp_path / "run")
        names = {path.name for path in (tmp_path / "run").iterdir()}
        assert not {"edges_fedgc.csv", "entries_fedgc.csv"} & names
        assert again.granger is None
        assert again.fedgc_edges() is None
        assert again.manifest["training"]["status"].startswith("FedGC was not run")
        for ask in (
            lambda run: run.edges(estimate="fedgc"),
            lambda run: run.block(*run.clients[:2], "fedgc"),
        ):
            with pytest.raises(fg.errors.RunError, match="FedGC was not run"):
                ask(again)
        write_run_report(tmp_path / "r.html", again)
        text = (tmp_path / "r.html").read_text()
        assert "FedGC was not run" in text
        assert "FedGC's ranking, not tested" not in text
        assert "tested pairs" in headline(again)
        edge_table(again.edges(sort=True), None)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_server_gives_a_positive_control_without_knowing_a_sensor(panel, tmp_path):
    """The same numbers as a run in one process, except what only a client knows."""
    config = fg.RunConfig(solver="none", copies=20)
    found = result_of(panel, tmp_path / "parties", config).manifest["inference"]
    alone = fg.fit(panel, config=config).manifest["inference"]
    assert len(found["positive_control"]) == 6
    assert found["positive_control"] == pytest.approx(alone["positive_control"], rel=1e-6)
    assert "innovation_sensor" not in found
    assert set(alone["innovation_sensor"]) == set(panel.names)
    assert any("knows no sensor" in line for line in control_sentences(found))
    assert not any("knows no sensor" in line for line in control_sentences(alone))
    assert set(found["audit"]["clients"]) == set(panel.names)


def test_the_manifest_names_every_clients_data_by_a_hash(panel, tmp_path):
    data = result_of(panel, tmp_path, formula_config(solver="none")).manifest["data"]
    hashes = {name: facts["hash"] for name, facts in data["clients"].items()}
    assert len(set(hashes.values())) == len(hashes) == 3
    assert len(data["hash"]) == 64


def test_edges_without_an_absent_client_are_called_conditional(tmp_path):
    """client2 -> client1 -> client3 seen without client1: client2 -> client3 looks direct."""
    rng = np.random.default_rng(0)
    T, state, arrays = 1500, np.zeros(3), {name: [] for name in ("client1", "client2", "client3")}
    loadings = [rng.standard_normal(6) for _ in range(3)]
    for _ in range(T):
        driver, middle, last = state
        new = np.array([0.7 * driver, 0.2 * middle + driver, 0.2 * last + middle])
        state = new + rng.standard_normal(3) * [1.0, 0.2, 0.2]
        for value, name, C in zip(state, ("client2", "client1", "client3"), loadings, strict=True):
            arrays[name].append(C * value + 0.1 * rng.standard_normal(6))
    panel = fg.Panel.from_arrays({name: np.array(rows) for name, rows in arrays.items()})
    config = formula_config(solver="none", state_dim=1, lags=2)

    def indirect(result):
        return result.edges().query("cause == 'client2' and effect == 'client3'").iloc[0]

    whole = result_of(panel, tmp_path / "whole", config)
    assert not indirect(whole)["is_edge"]
    assert whole.manifest["left_out"] == []
    result = result_of(
        panel, tmp_path / "cut", config, silent="client1", wait_seconds=60, on_missing="drop"
    )
    assert indirect(result)["is_edge"]
    first = result.manifest["inference"]["warnings"][0]
    assert "client 'client1' stayed away: every edge below was tested without it" in first
    assert "can look like a direct edge" in first
    assert "Tested without 'client1'" in headline(result)
    write_run_report(tmp_path / "r.html", result)
    text = (tmp_path / "r.html").read_text()
    assert "Tested without &#39;client1&#39;" in text
    assert text.index("every edge below was tested without it") < text.index("<table")


def test_edges_of_a_client_that_stayed_away_are_marked_untested(panel, tmp_path):
    config = formula_config(
        solver="newton", couplings=(("client1", "client2"), ("client3", "client2"))
    )
    for options in (formula_config(solver="newton"), config):
        result = result_of(
            panel, tmp_path / str(options == config), options,
            silent="client3", wait_seconds=60, on_missing="drop",
        )  # fmt: skip
        result.save(tmp_path / "run", overwrite=True)
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
        edge_table(again.edges(sort=True), None)
        lines = untested_lines(edges, again.test_facts())
        assert any("'client3' stayed away" in line for line in lines)
