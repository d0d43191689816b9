"""The 45 inputs of a new user: right at once, or with exactly what the message names."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

import fedgranger as fg
from fedgranger.data.panel import Panel
from fedgranger.errors import FedGrangerError
from tests import plant_files as made
from tests.plant_files import CLIENTS, NUM_ROWS, SENSORS, TIMES, VALUES

MAP = "--map 'P1_*=P1,P2_*=P2,P3_*=P3'"


def options_of(flags: str) -> dict[str, str]:
    """Options of the command line as those of Python."""
    words = shlex.split(flags)
    return {
        name.removeprefix("--").replace("-", "_"): value
        for name, value in zip(words[::2], words[1::2], strict=True)
    }


def same(panel: Panel, *, times: object = TIMES, sensors: tuple[str, ...] = SENSORS) -> None:
    """All clients, sensors, times and values are those that were written."""
    assert panel.names == CLIENTS
    for client in panel:
        assert client.sensors == sensors
        np.testing.assert_array_equal(client.values, VALUES[client.name])
        assert client.observed.all()
    np.testing.assert_array_equal(panel.time, np.asarray(times).astype(panel.time.dtype))


def at(start: str, freq: str) -> np.ndarray:
    return pd.date_range(start, periods=NUM_ROWS, freq=freq).to_numpy()


def noted(panel: Panel, *words: str) -> None:
    text = "\n".join(panel.notes)
    for word in words:
        assert word in text, f"{word!r} is not in: {text}"


class Input(NamedTuple):
    """How an input is made, what the message tells to add, and what must then hold."""

    make: Callable[[Path], Path]
    flags: str
    holds: Callable[[Panel], object]


def renamed(panel: Panel) -> None:
    assert panel.names == ("Dampf turbine", "Kühler 1", "Pumpe ä")
    assert panel["Pumpe ä"].sensors == ("Temp °C", "Druck (bar)")
    np.testing.assert_array_equal(panel["Kühler 1"].values, VALUES["boiler"])


def column(panel: Panel, expected: Callable[[np.ndarray], np.ndarray], sensor: str = "p") -> None:
    for client in panel:
        place = client.sensors.index(sensor)
        np.testing.assert_array_equal(client.values[:, place], expected(VALUES[client.name][:, 1]))
    assert panel.num_steps == NUM_ROWS


def masked(panel: Panel, rows: np.ndarray) -> None:
    for client in panel:
        np.testing.assert_array_equal(np.flatnonzero(~client.observed[:, 1]), rows)
        np.testing.assert_array_equal(client.values[:, 0], VALUES[client.name][:, 0])


def by_tag(panel: Panel) -> None:
    assert panel.names == ("P1", "P2", "P3")
    for k, client in enumerate(panel):
        assert client.sensors == (f"P{k + 1}_T", f"P{k + 1}_p")
        np.testing.assert_array_equal(client.values, VALUES[CLIENTS[k]])
    np.testing.assert_array_equal(panel.time, TIMES)


def two(panel: Panel) -> None:
    assert panel.names == ("boiler", "condenser")
    np.testing.assert_array_equal(panel["condenser"].values, VALUES["condenser"])


def gathered(panel: Panel) -> None:
    assert panel.names == ("boiler", "condenser", "plain", "tabs", "turbine", "zipped")
    for name in ("plain", "tabs", "turbine", "zipped"):
        np.testing.assert_array_equal(panel[name].values, VALUES["turbine"])
    np.testing.assert_array_equal(panel.time, TIMES)
    noted(panel, "left out: 'old.xls', 'remarks.txt'")


def spring(panel: Panel) -> None:
    same(panel, times=made._local("2026-03-29 00:00").tz_localize(None))
    assert panel.segment_starts.sum() == 2
    noted(panel, "the time axis has 1 gap")


def shape(panel: Panel, num_steps: int, num_sensors: int) -> None:
    assert panel.names == CLIENTS
    assert panel.num_steps == num_steps
    assert {client.num_sensors for client in panel} == {num_sensors}


def counted(panel: Panel) -> None:
    assert panel["boiler"].treatment.differenced == ("energy_MWh",)
    energy = np.cumsum(np.random.default_rng(3).integers(0, 5, NUM_ROWS))
    np.testing.assert_array_equal(panel["boiler"].values[1:, 2], np.diff(energy))
    noted(panel, "'energy_MWh' counts")


def without(panel: Panel, name: str, sensor: str) -> None:
    assert sensor not in panel[name].sensors
    assert panel[name].observed.all()
    noted(panel, f"client '{name}': left out as asked for: '{sensor}'")


UNIX = TIMES.to_numpy().astype("datetime64[s]").astype(np.int64)
AUTUMN = made._local("2026-10-25 00:00").tz_convert(None)
INPUTS = {
    # worked at once
    "clean": Input(made.clean, "", same),
    "zones mixed": Input(made.zones_mixed, "", same),
    "naive + zoned": Input(made.naive_and_zoned, "--time-zone condenser=UTC,turbine=UTC", same),
    "umlauts, spaces, .CSV": Input(made.umlauts_and_spaces, "", renamed),
    "BOM": Input(made.byte_order_mark, "", same),
    "epoch time": Input(made.epoch_time, "", lambda p: same(p, times=UNIX)),
    "no time": Input(made.no_time, "", lambda p: same(p, times=np.arange(NUM_ROWS))),
    "bool": Input(made.booleans, "", lambda p: column(p, lambda x: (x > 2000).astype(float))),
    "int": Input(made.integers, "", lambda p: column(p, np.round)),
    "1e9 offset": Input(made.large_offset, "", lambda p: column(p, lambda x: x + 1e9)),
    "duplicate column": Input(made.duplicate_column, "", lambda p: column(p, np.array, "p2")),
    "two clients": Input(made.two_clients, "", two),
    "200 sensors": Input(made.many_sensors, "", lambda p: shape(p, 60, 200)),
    "spring DST": Input(made.spring_local, "", spring),
    "zoned DST": Input(made.zoned_saving_time, "", lambda p: same(p, times=AUTUMN)),
    "event stamps": Input(
        made.event_stamps, "", lambda p: column(p, np.array) or noted(p, "gaps; no pair")
    ),
    "20 rows": Input(made.twenty_rows, "", lambda p: shape(p, 20, 2)),
    "1e6 rows": Input(made.many_rows, "", lambda p: shape(p, 20_000, 2)),
    # needed a second try
    "stuck sensor": Input(
        made.stuck_sensor,
        "",
        lambda p: noted(p, "'p' stands still at 1.5 for 67 %", "--leave-out boiler.p"),
    ),
    "NaN": Input(
        made.empty_cells, "--missing mask", lambda p: masked(p, np.arange(7, NUM_ROWS, 50))
    ),
    "wide table": Input(made.wide_table, MAP, by_tag),
    "duplicate stamp": Input(made.duplicate_stamp, "--repeated first", same),
    "unsorted": Input(made.unsorted_rows, "--unordered sort", same),
    "index column": Input(made.index_column, "--leave-out 'column 1'", same),
    "trailing comma": Input(
        made.trailing_comma, "", lambda p: (same(p), noted(p, "neither a name nor a cell"))
    ),
    "thousands separator": Input(made.thousands_separator, "--thousands comma", same),
    "Bad Input": Input(
        made.bad_input_text,
        "--missing mask --missing-text 'Bad Input'",
        lambda p: masked(p, np.arange(7, NUM_ROWS, 60)),
    ),
    # had to be edited by hand
    "German CSV": Input(
        made.german, "--delimiter semicolon --decimal comma --date-format dd.mm.yyyy", same
    ),
    "dd.mm.yyyy": Input(made.german_dates, "--date-format dd.mm.yyyy", same),
    "US dates": Input(
        made.us_dates,
        "--date-format mm/dd/yyyy",
        lambda p: same(p, times=at("2026-03-20 11:00", "min")),
    ),
    "xlsx": Input(made.workbooks, "", same),
    "long format": Input(made.long_format, f"--tag-column tag {MAP}", by_tag),
    "status column": Input(
        made.status_column,
        "--leave-out status",
        lambda p: (same(p), without(p, "boiler", "status")),
    ),
    "preamble": Input(
        made.preamble, "--skip-rows 3", lambda p: (same(p), noted(p, "'Exported by DAS 4.2'"))
    ),
    "unit row": Input(
        made.unit_row,
        "--unit-rows 1",
        lambda p: (same(p), noted(p, "'-,degC,bar'"), noted(p, "with units: ")),
    ),
    "autumn DST": Input(
        made.autumn_local, "--time-zone Europe/Berlin", lambda p: same(p, times=AUTUMN)
    ),
    "3 s offset": Input(
        made.seconds_apart,
        "--align-tolerance 3s",
        lambda p: (same(p, times=at("2026-03-01", "10s")), noted(p, "were moved by up to 3 s")),
    ),
    "jitter": Input(
        made.jittered,
        "--align-tolerance 20ms",
        lambda p: (same(p, times=at("2026-03-01", "100ms")), noted(p, "moved by up to 0.019 s")),
    ),
    "different time names": Input(
        made.time_names, "--time-column 'boiler=Zeit,condenser=Time (UTC)'", same
    ),
    "counter sensor": Input(made.counter_sensor, "", counted),
    # was wrong
    "dead time": Input(made.dead_time, "", lambda p: shape(p, 700, 3)),
    "unknown time name": Input(
        made.unknown_time_name, "--time-column unix_time", lambda p: same(p, times=UNIX)
    ),
    "mixed .xlsx": Input(made.mixed_kinds, "", gathered),
    "dead sensor": Input(
        made.dead_sensor, "--leave-out boiler.p", lambda p: without(p, "boiler", "p")
    ),
    "one sensor per client": Input(made.one_sensor_each, "", lambda p: shape(p, NUM_ROWS, 1)),
}


def test_all_45_inputs_are_here():
    assert len(INPUTS) == 45
    assert len({one.make for one in INPUTS.values()}) == 45


@pytest.mark.parametrize("name", INPUTS)
def test_right_at_once_or_with_what_the_message_names(tmp_path, name):
    make, flags, holds = INPUTS[name]
    path = make(tmp_path)
    if flags:
        with pytest.raises(FedGrangerError) as caught:
            Panel.read(path)
        message = str(caught.value)
        assert "\n" not in message
        assert flags in message
    holds(Panel.read(path, **options_of(flags)))


def test_a_dead_sensor_that_is_kept_is_named(tmp_path):
    panel = Panel.read(made.dead_sensor(tmp_path), missing="mask")
    assert panel["boiler"].row_observed.sum() == 10
    noted(panel, "sensor 'p' has no sample in 92 % of the client's rows", "--leave-out boiler.p")


def test_many_sensors_with_one_percent_missing_just_work(tmp_path):
    """No pair of rows was complete often enough: the fit was refused."""
    panel = Panel.read(made.many_sensors_with_holes(tmp_path), missing="mask")
    assert max(client.row_observed.mean() for client in panel) < 0.2
    result = fg.fit(panel, solver="none", test="debiased", state_dim=2)
    edges = result.edges(sort=True)
    assert edges.loc[0, ["cause", "effect"]].tolist() == list(CLIENTS[:2])
    assert edges.loc[0, "is_edge"]
    assert result.manifest["data"]["clients"]["boiler"]["notes"][-1].startswith("in ")


def test_a_wide_table_can_have_a_partition_file(tmp_path):
    path = made.wide_table(tmp_path)
    panel = Panel.read(path, partition=tmp_path / "clients.json")
    assert panel.names == CLIENTS
    np.testing.assert_array_equal(panel["turbine"].values, VALUES["turbine"])


def test_a_dead_time_is_found(tmp_path):
    """The trial's answer was silently wrong: nothing was found with the lags of that time."""
    panel = Panel.read(made.dead_time(tmp_path))
    config = fg.RunConfig(state_dim=1, solver="none", test="readings", max_lags=8, copies=20)
    edges = fg.fit(panel, config).edges(sort=True)
    assert edges.loc[0, ["cause", "effect"]].tolist() == ["boiler", "turbine"]
    assert edges.loc[0, "is_edge"]
