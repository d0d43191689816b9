"""`Panel` and `ClientData` themselves: checks, views, segments and the data hash."""

from dataclasses import replace

import numpy as np
import pytest

from fedgranger.data.client_data import ClientData
from fedgranger.data.panel import Panel
from fedgranger.errors import DataError


def make_panel(**kwargs) -> Panel:
    rng = np.random.default_rng(0)
    return Panel.from_arrays(
        {"a": rng.standard_normal((5, 2)), "b": rng.standard_normal((5, 1))}, **kwargs
    )


def test_from_arrays_masks_nan_and_copies():
    array = np.array([[1.0, np.nan], [2.0, 3.0]])
    panel = Panel.from_arrays({"a": array, "b": np.array([[1], [2]])})
    np.testing.assert_array_equal(panel["a"].values, [[1.0, 0.0], [2.0, 3.0]])
    np.testing.assert_array_equal(panel["a"].observed, [[True, False], [True, True]])
    np.testing.assert_array_equal(panel["a"].row_observed, [False, True])
    assert np.isnan(array[0, 1])
    assert panel["b"].values.dtype == np.float64
    assert panel["a"].sensors == ("s1", "s2")
    assert panel.notes == ()


def test_names_length_and_lookup():
    panel = make_panel()
    assert panel.names == ("a", "b")
    assert (len(panel), panel.num_steps, panel["a"].num_sensors) == (2, 5, 2)
    assert [client.name for client in panel] == ["a", "b"]
    with pytest.raises(DataError, match="no client 'c'; the panel has a, b"):
        panel["c"]


def test_select_and_slice():
    panel = make_panel()
    assert panel.select(["b", "a"]).names == ("b", "a")
    part = panel.slice(1, 3)
    np.testing.assert_array_equal(part.time, [1, 2])
    np.testing.assert_array_equal(part["a"].values, panel["a"].values[1:3])


@pytest.mark.parametrize(
    ("arrays", "kwargs", "match"),
    [
        ({}, {}, "no clients"),
        ({"a": np.ones(3)}, {}, "client 'a'.*1 axes"),
        ({"a": np.ones((3, 1), np.float32)}, {}, "client 'a'.*float32.*astype"),
        ({"a": np.array([["x"], ["y"]])}, {}, "client 'a'.*float64 is needed"),
        ({"a": np.array([[1.0], [np.inf]])}, {}, "client 'a'.*row 2, column 1 is infinite"),
        ({"a": np.ones((2, 2))}, {"sensors": {"a": ["x"]}}, "client 'a'.*1 sensor names"),
        ({"a": np.ones((2, 2))}, {"sensors": {"a": ["x", "x"]}}, "client 'a'.*not unique: x, x"),
        ({"a": np.ones((2, 1)), "b": np.ones((3, 1))}, {}, "client 'b': 3 rows for 2 time steps"),
        ({"a": np.ones((2, 1))}, {"time": np.array([1, 1])}, "not strictly increasing"),
        ({"a": np.ones((2, 1))}, {"time": np.array(["u", "v"])}, "one number or numpy datetime64"),
    ],
)
def test_bad_arrays_are_refused(arrays, kwargs, match):
    with pytest.raises(DataError, match=match):
        Panel.from_arrays(arrays, **kwargs)


def test_bad_mask_and_repeated_clients_are_refused():
    with pytest.raises(DataError, match="client 'a': the mask"):
        ClientData("a", ("x",), np.ones((2, 1)), np.ones((2, 1)))
    client = ClientData("a", ("x",), np.ones((2, 1)), np.ones((2, 1), bool))
    with pytest.raises(DataError, match="not unique: a, a"):
        Panel((client, client), np.arange(2))
    with pytest.raises(DataError, match="client 'a -> b': ' -> ' stands between"):
        Panel((replace(client, name="a -> b"),), np.arange(2))


@pytest.mark.parametrize(
    ("time", "starts"),
    [
        (np.arange(5), [0]),
        (np.array([0.0, 1.0, 2.0, 5.0, 6.0]), [0, 3]),
        (np.array([0, 10, 11, 12, 20]), [0, 1, 4]),
        (np.datetime64("2026-01-01") + np.array([0, 1, 2, 4, 5]), [0, 3]),
    ],
)
def test_segment_starts(time, starts):
    np.testing.assert_array_equal(np.flatnonzero(make_panel(time=time).segment_starts), starts)


def test_data_hash_ignores_client_order_only():
    panel = make_panel()
    reference = panel.data_hash()
    assert panel.select(["b", "a"]).data_hash() == reference
    assert make_panel().data_hash() == reference
    assert panel.select(["a"]).data_hash() != reference
    assert panel.slice(0, 4).data_hash() != reference
    assert make_panel(time=np.arange(1, 6)).data_hash() != reference
    assert make_panel(sensors={"a": ["x", "y"]}).data_hash() != reference
    values = panel["a"].values.copy()
    values[3, 1] = np.nextafter(values[3, 1], np.inf)
    assert Panel.from_arrays({"a": values, "b": panel["b"].values}).data_hash() != reference
    zero = Panel.from_arrays({"a": np.array([[0.0], [1.0]])})
    masked = Panel.from_arrays({"a": np.array([[np.nan], [1.0]])})
    assert zero.data_hash() != masked.data_hash()


def test_data_hash_ignores_memory_layout_and_time_unit():
    panel = make_panel()
    arrays = {client.name: np.asfortranarray(client.values) for client in panel}
    assert Panel.from_arrays(arrays).data_hash() == panel.data_hash()
    days = np.datetime64("2026-01-01") + np.arange(5)
    assert (
        make_panel(time=days).data_hash()
        == make_panel(time=days.astype("datetime64[s]")).data_hash()
    )
