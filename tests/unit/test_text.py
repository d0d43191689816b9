"""Names and numbers as people read them."""

import numpy as np
import pytest

from fedgranger.text import (
    counted,
    did_you_mean,
    format_bytes,
    format_digits,
    format_number,
    format_probability,
    format_share,
    kind_of,
    shorten,
    wrap,
)


def test_one_of_anything_is_singular():
    assert [counted(k, "row") for k in range(3)] == ["0 rows", "1 row", "2 rows"]
    assert counted(1, "line holds", "lines hold") == "1 line holds"
    assert counted(2, "line holds", "lines hold") == "2 lines hold"


def test_dashes_make_no_option_nearer_to_another():
    assert did_you_mean("--force", ["--open", "--top"]) == ""
    assert did_you_mean("--overwite", ["--overwrite"]) == " (did you mean '--overwrite'?)"
    assert did_you_mean("alhpa", ["--alpha"]) == " (did you mean '--alpha'?)"


def test_the_kind_of_a_value_has_its_article():
    values = (3, [], np.ones(1), None, 0.5, "x", object())
    words = "an int, a list, an ndarray, None, a float, a str, an object"
    assert ", ".join(map(kind_of, values)) == words


def test_long_names_keep_start_and_end():
    name = "north_wing_pump_house_pressure_sensor_07"
    assert len(shorten(name)) == 28
    assert shorten(name).startswith("north_wing")
    assert shorten(name).endswith("sensor_07")
    assert shorten("a\nb\x00") == "a b\ufffd"


@pytest.mark.parametrize(
    "name", ["server 00 rack 17 row", "north_wing_pump_ho…sensor_07", "x" * 28]
)
def test_wrapped_lines_together_are_the_name(name):
    lines = wrap(name)
    assert "".join(lines) == name
    assert len(lines) == 2
    assert max(map(len, lines)) <= 19
    assert wrap(name[:16]) == (name[:16],)


def test_numbers_and_bytes_in_words():
    assert [format_number(x) for x in (0.42, 2e-5, 0.0, 123456.0, float("nan"))] == [
        "0.420",
        "2.00e-05",
        "0",
        "1.23e+05",
        "–",
    ]
    sizes = [0, 999, 1000, 1_234_567, 5e12]
    assert [format_bytes(x) for x in sizes] == ["0 B", "999 B", "1 kB", "1.23 MB", "5 TB"]
    small = [0.0, 1e-200, 0.02, None]
    assert [format_probability(p) for p in small] == ["<1e-99", "<1e-99", "0.020", "–"]
    assert [format_digits(p, 2, "?") for p in small] == ["0", "<1e-99", "0.02", "?"]
    assert [format_share(p) for p in (0.123, None)] == ["12.3 %", "–"]
