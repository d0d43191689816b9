"""The table of root-cause accuracy: from scores to figures, and on public data where present."""

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from fedgranger.cli.app import app
from fedgranger.errors import DataError
from fedgranger_research.reproduction.root_cause_methods import NAMES
from fedgranger_research.reproduction.root_cause_table import root_cause_item
from fedgranger_research.reproduction.runner import reproduce
from tests.published_files import development_data, write_tep


def made_scores(part, rows):
    """Rows (roots, scores of ours, scores of the deviation) of three clients."""
    out = []
    for number, (roots, ours, plain) in enumerate(rows):
        for method, scores in (
            ("unexplained", ours),
            ("surprise", ours),
            ("deviation", plain),
            ("paper: FedGC", [0.0, 0.0, 0.0]),
        ):
            out.append(
                {
                    "dataset": "made",
                    "part": part,
                    "split": "test",
                    "run": "r",
                    "instance": str(number),
                    "roots": roots,
                    "method": method,
                    "clients": "a;b;c",
                    "scores": json.dumps(scores),
                }
            )
    return pd.DataFrame(out)


@pytest.fixture
def item(tmp_path):
    (tmp_path / "batadal").mkdir()
    return root_cause_item(tmp_path)


def test_figures_by_hand(item):
    test = made_scores(
        "test",
        [("a", [3, 2, 1], [1, 3, 2]), ("b", [3, 2, 1], [1, 3, 2]), ("b;c", [1, 2, 3], [3, 2, 1])],
    )
    development = made_scores("development", [("a", [3, 2, 1], [3, 2, 1])])
    table = item.collect([test, development], quick=False)
    at = table.set_index(["part", "roots", "method"])
    assert at.loc[("test", "single", "unexplained"), "ac1"] == 0.5
    assert at.loc[("test", "all", "unexplained"), "ac1"] == pytest.approx(2 / 3)
    assert at.loc[("test", "single", "deviation"), "ac1"] == 0.5
    assert at.loc[("test", "single", "paper: FedGC"), "undefined"] == 1.0
    assert at.loc[("test", "single", "paper: FedGC"), "ac1"] == pytest.approx(1 / 3)
    assert at.loc[("test", "single", "chance"), "ac2"] == pytest.approx(2 / 3)
    assert at.loc[("both", "single", "unexplained"), "count"] == 3
    assert at.loc[("both", "single", "constant"), "ac1"] == pytest.approx(2 / 3)
    assert at.loc[("both", "single", "unexplained"), "by_root"] == "a 2/2, b 0/1"
    text = item.markdown(table)
    assert "MADE, test, single roots, 2 anomalies" in text
    assert "per root: a 2/2, b 0/1." in text
    assert "| surprise, no graph | 0.500 (" in text


def test_a_folder_without_data_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds none of hai, tep, smd, batadal"):
        root_cause_item(tmp_path)
    outcome = CliRunner().invoke(app, ["reproduce", "table", "root-cause"])
    assert outcome.exit_code == 2
    assert "root-cause needs --data" in outcome.output


@pytest.mark.slow  # every method learns TEP and ranks its test runs
def test_tep_test_runs_reach_the_targets(tmp_path):
    write_tep(development_data() / "tep", tmp_path / "tep")
    table = reproduce(root_cause_item(tmp_path), tmp_path / "out")
    at = table.set_index(["part", "roots", "method"]).loc["test"].loc["single"]
    assert at.loc["unexplained", "count"] == 19
    assert at.loc["unexplained", "ac1"] >= 0.42
    assert at.loc["unexplained", "ac2"] >= 0.52
    assert at.loc["unexplained", "ac1"] > at.loc["deviation", "ac1"]
    for name in ("fedpc", "feddag", "notears-admm", "fdbnl"):  # no edge between clients
        assert at.loc[f"{name}, our score", "ac1"] == at.loc["surprise", "ac1"]
        assert at.loc[f"{name}, paper's score", "ac1"] == pytest.approx(1 / 9)
        assert at.loc[f"{name}, paper's score", "undefined"] == 1.0
    compared = at.loc[at["graph"].notna()]
    assert len(compared) == 2 * len(NAMES)
    assert (compared["refused"] == 0).all()
