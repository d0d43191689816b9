"""Units between header and data: which cells are units, and where they are said."""

import numpy as np
import pandas as pd
import pytest

import fedgranger as fg
from fedgranger.client.edge_sensors import shown_sensors
from fedgranger.client.params import LocalModel
from fedgranger.data.panel_files import read_client
from fedgranger.data.reading_options import ReadingOptions
from fedgranger.data.text_structure import units_in
from fedgranger.messages import EdgeMessage
from fedgranger.text import unit_of, with_unit, without_unit

NAMES = ["time", "P", "T", "valve"]


@pytest.mark.parametrize(
    ("rows", "units"),
    [
        ([["", "bar", "°C", "%"]], {"P": "bar", "T": "°C", "valve": "%"}),
        ([["s", "[bar]", "(K)", ""]], {"time": "s", "P": "bar", "T": "K"}),
        ([["-", "m3/h", "-", "-"]], {}),  # one of four
        ([["", "bar(g)", "[K]", "[mbar(a)]"]], {"P": "bar(g)", "T": "K", "valve": "mbar(a)"}),
        ([["TS", "mbar", "-", "rpm"]], {"time": "TS", "P": "mbar", "valve": "rpm"}),
        ([["", "Druck vor Ventil", "Temperatur am Austritt", ""]], {}),
        ([["", "Druck vor Ventil", "warm", ""], ["", "bar", "°C", ""]], {"P": "bar", "T": "°C"}),
        ([["", "REAL", "Float", "bool"]], {}),
        ([["", "bar", "K", "%"], ["", "Avg", "Smp", "Avg"]], {"P": "bar", "T": "K", "valve": "%"}),
        ([["", "1", "2.5", "3"]], {}),
        ([["", "bar"]], {"P": "bar"}),  # a short line
        ([[]], {}),
        ([], {}),
    ],
)
def test_units_are_short_words_that_fill_most_of_a_line(rows, units):
    assert units_in(NAMES, rows) == units


def test_a_unit_may_hold_brackets():
    names = ("PI-101 Dampfdruck [bar(g)]", "P (bar(a))", "P (old) [bar]", "P [more than a unit(g)]")
    assert [unit_of(name) for name in names] == ["bar(g)", "bar(a)", "bar", ""]
    assert [without_unit(name) for name in names[:3]] == ["PI-101 Dampfdruck", "P", "P (old)"]


def test_a_name_has_its_unit_once():
    units = {"P": "bar", "P [mbar]": "bar"}
    assert [with_unit(name, units) for name in ("P", "P [mbar]", "T")] == [
        "P [bar]",
        "P [mbar]",
        "T",
    ]


@pytest.fixture
def folder(tmp_path):
    """A unit row in CSV (in Latin letters only there) and in Excel."""
    panel, _ = fg.simulate(2, 300, edges=[("client1", "client2")], sensor_dims=3, seed=2)
    first, second = (pd.DataFrame(c.values, columns=["P", "T", "Q"]) for c in panel)
    text = first.rename_axis("time").to_csv().split("\n", 1)
    (tmp_path / "boiler.csv").write_bytes(
        f"{text[0]}\n;bar,°C,t/h\n{text[1]}".replace(";", ",", 1).encode("cp1252")
    )
    second = second.rename_axis("time").reset_index().astype(object)
    units = pd.DataFrame([["", "m", "-", "kV"]], columns=second.columns)
    pd.concat([units, second]).to_excel(tmp_path / "turbine.xlsx", index=False)
    return tmp_path


@pytest.mark.filterwarnings("ignore::fedgranger.errors.InferenceWarning")
def test_units_of_files_reach_the_sentences(folder):
    pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    result = fg.fit(folder, unit_rows=1, test="debiased", lags=1, solver="none", period="none")
    notes = " ".join(result.manifest["data"]["notes"])
    assert "client 'boiler': with units: P [bar], T [°C], Q [t/h]" in notes
    assert "client 'turbine': with units: P [m], Q [kV]" in notes
    (found,) = result.manifest["inference"]["sensor_responses"].values()
    assert found["cause_sensor"] in ("P [bar]", "T [°C]", "Q [t/h]")
    assert result.responses()["cause_sensor"].str.endswith("]").all()
    assert set(result.loadings("boiler").index) == {"P", "T", "Q"}, "names stay"


def test_a_site_knows_its_units(folder):
    data, _, notes = read_client("boiler", folder / "boiler.csv", ReadingOptions(unit_rows="1"))
    assert data.units == {"P": "bar", "T": "°C", "Q": "t/h"}
    assert any("bar,°C,t/h" in note for note in notes), "quoted as it was written"
    model = LocalModel(
        np.eye(1), np.array([[1.0], [2.0], [0.5]]), np.eye(1), np.eye(3), np.zeros(3), np.ones(3)
    )
    message = EdgeMessage(np.eye(1), np.ones((1, 1)), np.ones((1, 2, 1)), np.zeros((1, 2, 1, 1)))
    (shown,) = shown_sensors(data, model, message, is_cause=False)
    assert shown.sensor.name == "T [°C]"
