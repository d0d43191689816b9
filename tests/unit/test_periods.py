"""Every way to write a period ends in one form."""

import pytest

from fedgranger.config import RunConfig
from fedgranger.errors import ConfigError
from fedgranger.periods import duration_nanoseconds, read_period


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
