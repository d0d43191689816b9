"""Every way to write a period ends in one form."""

import datetime

import numpy as np
import pandas as pd
import pytest

from fedgranger.config import RunConfig
from fedgranger.data.reading_options import PanelOptions
from fedgranger.errors import ConfigError
from fedgranger.periods import duration_nanoseconds, duration_text, read_duration, read_period


@pytest.mark.parametrize(
    ("written", "form"),
    [
        (24, (24,)),
        ([24, 168], (24, 168)),
        ("24,168", (24, 168)),
        (" 24 , 24", (24,)),
        ("1 d,7 d", ("1 d", "7 d")),
        (["12h", 24], ("12 h", 24)),
        ("1.50 h", ("1.5 h",)),
        ("auto", "auto"),
        ("none", "none"),
        ("1D,7D", ("1 d", "7 d")),
        ("h", ("1 h",)),
        (pd.Timedelta("1D"), ("1 d",)),
        (pd.Timedelta("90min"), ("90 min",)),
        (datetime.timedelta(milliseconds=1500), ("1500 ms",)),
        (np.timedelta64(12, "h"), ("12 h",)),
        (pd.offsets.Day(), ("1 d",)),
        (pd.offsets.Minute(5), ("5 min",)),
        ((pd.Timedelta("1D"), 24), ("1 d", 24)),
        (np.array([24, 168]), (24, 168)),
        (pd.Index([24]), (24,)),
        ({24, "1 d"}, ("1 d", 24)),
        (pd.to_timedelta(["1h", "1D"]), ("1 h", "1 d")),
        (np.array([1, 7], "timedelta64[D]"), ("1 d", "7 d")),
    ],
)
def test_forms(written, form):
    assert read_period(written) == form
    assert RunConfig(period=written).period == form
    assert RunConfig.from_mapping(RunConfig(period=written).to_mapping()).period == form


@pytest.mark.parametrize(
    "wrong",
    [
        1,
        0,
        -3,
        2.5,
        True,
        None,
        "day",
        "1",
        "0 d",
        "24;168",
        "",
        [],
        [1],
        "-1 d",
        {},
        [[24]],
        10**12,
        "1 d 2 h",
        [3, 4, 5, 6, 7],
        pd.Timedelta(0),
        pd.Timedelta("-1D"),
        pd.NaT,
        np.timedelta64("NaT"),
        np.timedelta64(0, "s"),
        "MS",
        "1M",
        "1Y",
        pd.offsets.MonthEnd(),
        np.array(24.5),
        np.array([[24]]),
    ],
)
def test_refused(wrong):
    with pytest.raises(ConfigError, match="period is"):
        read_period(wrong)


def test_lengths():
    assert duration_nanoseconds("1 d") == 24 * duration_nanoseconds("1 h") == 86_400 * 10**9
    assert duration_nanoseconds("1 w") == 7 * duration_nanoseconds("1 d")
    assert duration_nanoseconds("250 ms") == 25 * 10**7


def test_season_is_one_of_two():
    with pytest.raises(ConfigError, match="choose one of harmonics, profile"):
        RunConfig(season="harmonic")


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ("5min", "5min"),
        ("30 s", "30s"),
        ("5T", "5min"),
        ("h", "1h"),
        (pd.Timedelta("5min"), "5min"),
        (datetime.timedelta(seconds=30), "30s"),
        (np.timedelta64(500, "ms"), "500ms"),
        (pd.offsets.Hour(2), "2h"),
    ],
)
def test_durations_of_reading(written, form):
    for name in ("resample", "align_tolerance"):
        assert PanelOptions.from_mapping({name: written}).to_mapping()[name] == form


@pytest.mark.parametrize("nanoseconds", [1_001_500e6, 1_234_567.8e6, 1e9 / 3, 500, 10, 86_400e9])
def test_a_duration_in_words_is_understood_as_an_option(nanoseconds):
    """Before, 1001.5 s were proposed as 1.0015e+06ms, which no option takes."""
    found = read_duration(duration_text(nanoseconds))
    assert found is not None
    assert duration_nanoseconds(" ".join(found)) == pytest.approx(nanoseconds, abs=1)


@pytest.mark.parametrize("wrong", [0, 5, "month", pd.Timedelta(0), None, ["5min"]])
def test_refused_durations_name_the_option(wrong):
    with pytest.raises(ConfigError, match=r"resample is .*; give a duration such as"):
        PanelOptions(resample=wrong)


@pytest.mark.parametrize(
    "names",
    [["a", "b.c"], ("a", "b.c"), {"b.c", "a"}, pd.Index(["a", "b.c"]), np.array(["a", "b.c"])],
)
def test_names_in_a_list(names):
    for option in ("leave_out", "drop", "difference", "missing_text"):
        found = PanelOptions.from_mapping({option: names})
        assert found == PanelOptions.from_mapping({option: "a,b.c"}) != PanelOptions()
    pairs = [("a", "b"), ["b", "a"]]
    for given in (pairs, tuple(pairs), pd.MultiIndex.from_tuples(map(tuple, pairs))):
        assert RunConfig(couplings=given).couplings == (("a", "b"), ("b", "a"))
