"""What one column looks like: codes, clocks, counters, stuck sensors, and what is none of them."""

import numpy as np
import pytest

from fedgranger.data.columns import (
    Code,
    Counter,
    clock_step,
    find_code,
    find_counter,
    find_frozen,
    longest_stand_still,
)

RNG = np.random.default_rng(0)
NOISE = RNG.standard_normal(300)


def with_values(column, value, *rows):
    column = column.copy()
    column[list(rows)] = value
    return column


@pytest.mark.parametrize("value", [-9999.0, 999.0, -99.0, 65535.0, 1e6, -32768.0, 9999.0, 999.9])
def test_code_is_found(value):
    code = find_code(with_values(NOISE, value, 40, 41, 200))
    others = np.delete(NOISE, [40, 41, 200])
    assert code == Code(value, 3, 40, others.min(), others.max())


def test_two_codes_do_not_hide_each_other():
    both = with_values(with_values(NOISE, -9999.0, 3, 4), 9999.0, 7, 8)
    assert abs(find_code(both).value) == 9999.0


@pytest.mark.parametrize(
    "column",
    [
        NOISE,
        with_values(NOISE, -9999.0, 5),  # once: an outlier
        with_values(NOISE + 500, 0.0, *range(50, 150)),  # switched off
        np.repeat([0.0, 1.0, 9999.0], 100),  # a mode
        np.clip(NOISE, -1.5, 1.5),  # saturated
        np.exp(3 * NOISE),  # heavy tail
        with_values(NOISE, 500.0, *range(20, 220)),  # the usual value
        with_values(NOISE, np.nan, 1, 2),
        np.full(300, np.nan),
    ],
)
def test_no_code(column):
    assert find_code(column) is None


UNEVEN = np.cumsum(0.5 + RNG.random(300))
GAPS = np.delete(np.arange(300.0), [100, 101, 102, 200])


@pytest.mark.parametrize(
    ("name", "column", "time"),
    [
        ("x", np.arange(300.0), None),
        ("x", 0.1 * np.arange(300) + 17, None),
        ("x", GAPS, None),
        ("x", np.round(np.arange(300) / 30, 2), None),  # hours, rounded
        ("x", 1.7e9 + np.cumsum(1 + 0.1 * RNG.random(300)), None),  # seconds since 1970
        ("x", UNEVEN, 5 + UNEVEN / 2),  # proportional to the time column
        ("timestamp_2", UNEVEN, None),
    ],
)
def test_clock(name, column, time):
    assert clock_step(name, column, time) == pytest.approx(np.median(np.diff(column)))


@pytest.mark.parametrize(
    "column",
    [
        UNEVEN,
        np.cumsum(5 + 0.3 * RNG.random(300)),  # a meter under steady load
        np.cumsum(RNG.integers(0, 3, 300).astype(float)),
        np.cumsum(RNG.integers(3, 5, 300).astype(float)),  # pulses
        np.arange(300.0) + 0.2 * NOISE.cumsum(),
        -np.arange(300.0),
        with_values(np.arange(300.0), np.nan, 5),
        np.arange(20.0),
    ],
)
def test_no_clock(column):
    assert clock_step("energy", column, np.arange(len(column))) is None


def test_counters():
    rising = np.cumsum(RNG.integers(0, 4, 300).astype(float))
    moves = int((np.diff(rising) > 0).sum())
    assert find_counter(rising) == Counter(1, moves, 0)
    assert find_counter(-rising) == Counter(-1, moves, 0)
    twice = np.concatenate([rising, rising])
    assert find_counter(twice) == Counter(1, 2 * moves, 1)
    assert find_counter(with_values(rising, np.nan, 7, 8)).resets == 0


@pytest.mark.parametrize(
    "column",
    [
        NOISE,
        NOISE.cumsum(),
        np.repeat([1.0, 2.0, 3.0], 100),  # a set point that was raised twice
        np.arange(300.0) + 3 * NOISE,
        np.tile(np.arange(30.0), 10),  # resets all the time: a cycle
        np.concatenate([np.arange(200.0), 199 - np.arange(50.0), 149 + np.arange(50.0)]),
    ],
)
def test_no_counter(column):
    assert find_counter(column) is None


def test_stand_still():
    half = with_values(NOISE, 0.5, *range(100, 260))
    found = longest_stand_still(half)
    assert (found.value, found.rows, found.first_row) == (0.5, 160, 100)
    assert found.share == pytest.approx(160 / 300)
    assert longest_stand_still(with_values(NOISE, 0.5, *range(100, 190))).rows == 90
    assert longest_stand_still(with_values(NOISE, 0.5, *range(100, 150))) is None
    switch = np.repeat(np.tile([0.0, 1.0], 5), 30)
    assert longest_stand_still(switch) is None
    assert longest_stand_still(with_values(NOISE, np.nan, *range(100, 260))) is None


def test_frozen_for_a_while():
    """Less than a quarter of the rows, so that it does not count as standing still."""
    found = find_frozen(with_values(NOISE, 0.5, *range(100, 140)))
    assert found is not None
    assert (found.value, found.rows, found.first_row) == (0.5, 40, 100)
    assert find_frozen(with_values(NOISE, 0.5, *range(100, 129))) is None


def held(rows):
    return np.repeat(RNG.standard_normal(1 + 3000 // rows), rows)[:3000]


@pytest.mark.parametrize(
    "column",
    [
        np.clip(np.cumsum(RNG.standard_normal(3000)) / 20, 0, None),
        with_values(np.abs(NOISE), 0.0, *range(100, 160)),
        with_values(NOISE, 9.0, *range(100, 160)),
        np.round(np.sin(np.arange(3000) / 200), 1),
        np.round(np.cumsum(RNG.standard_normal(3000)) / 5),
        (RNG.random(3000) < 0.01).astype(float),
        np.repeat(RNG.standard_normal(40), RNG.geometric(0.01, 40)),
        held(2),
        held(60),
        np.cumsum(RNG.integers(0, 2, 3000)).astype(float),
        with_values(NOISE, np.nan, *range(100, 160)),
        np.zeros(300),
    ],
    ids=["clipped", "off", "at its end", "slow and rounded", "rounded walk", "switch",
         "set points", "held twice", "held long", "counter", "missing", "constant"],
)  # fmt: skip
def test_what_is_not_frozen(column):
    assert find_frozen(column) is None
