"""The file with the answer."""

import json

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.data.truth import Truth
from fedgranger.errors import DataError

TRUTH = Truth(
    ("a", "b"),
    (("b", "a"),),
    np.array([[0.5, 0.1, 1 / 3], [0.0, 0.4, 0.0], [0.0, 0.2, 0.3]]),
    {"a": 1, "b": 2},
)


def test_json_has_exactly_four_keys(tmp_path):
    path = tmp_path / "truth.json"
    _, truth = fg.simulate(2, 10, state_dims=1, sensor_dims=2, edges=1, seed=1)
    assert truth.process_cov is not None
    truth.write(path)
    table = json.loads(path.read_text())
    assert set(table) == {"clients", "edges", "transition", "state_dims"}
    assert table["clients"] == ["client1", "client2"]
    assert table["edges"] == [list(truth.edges[0])]
    assert table["state_dims"] == {"client1": 1, "client2": 1}
    assert table["transition"] == truth.transition.tolist()


def test_round_trip_is_exact(tmp_path):
    path = tmp_path / "truth.json"
    TRUTH.write(path)
    back = Truth.read(path)
    assert back.clients == TRUTH.clients
    assert back.edges == TRUTH.edges
    assert back.state_dims == TRUTH.state_dims
    np.testing.assert_array_equal(back.transition, TRUTH.transition)
    assert back.process_cov is None
    assert back.observation_matrices == {}
    assert back.measurement_covs == {}


def test_block_is_effect_then_cause():
    """The edge b → a is rows of a, columns of b."""
    np.testing.assert_array_equal(TRUTH.block("a", "b"), [[0.1, 1 / 3]])
    np.testing.assert_array_equal(TRUTH.block("b", "a"), [[0.0], [0.0]])
    np.testing.assert_array_equal(TRUTH.block("b", "b"), [[0.4, 0.0], [0.2, 0.3]])
    np.testing.assert_array_equal(TRUTH.block(effect="a", cause="a"), [[0.5]])
    assert TRUTH.rows("b") == slice(1, 3)


def test_unknown_client():
    with pytest.raises(DataError, match="no client 'c' in the truth; it has a, b"):
        TRUTH.rows("c")


def written(tmp_path, **changes):
    TRUTH.write(tmp_path / "truth.json")
    table = json.loads((tmp_path / "truth.json").read_text()) | changes
    (tmp_path / "truth.json").write_text(json.dumps(table))
    return tmp_path / "truth.json"


@pytest.mark.parametrize("key", ["clients", "edges", "transition", "state_dims"])
def test_missing_key_is_named(tmp_path, key):
    path = written(tmp_path)
    table = json.loads(path.read_text())
    del table[key]
    path.write_text(json.dumps(table))
    with pytest.raises(DataError, match=f"'{key}' is missing; is this a truth.json"):
        Truth.read(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"edges": [["a", "b", "c"]]},
        {"edges": 3},
        {"state_dims": [1, 2]},
        {"state_dims": {"a": 1}},
        {"transition": [[1.0], [1.0, 2.0]]},
        {"transition": "none"},
        {"clients": 2},
    ],
)
def test_wrong_content_is_one_sentence(tmp_path, changes):
    with pytest.raises(DataError, match=r"truth.json: not the content of a truth.json"):
        Truth.read(written(tmp_path, **changes))


def test_shape_that_does_not_fit(tmp_path):
    with pytest.raises(DataError, match=r"shape \(3, 3\) but state_dims add up to 4"):
        Truth.read(written(tmp_path, state_dims={"a": 2, "b": 2}))


@pytest.mark.parametrize("content", ["{", "\x00"])
def test_not_json(tmp_path, content):
    (tmp_path / "truth.json").write_text(content)
    with pytest.raises(DataError, match="cannot be read as JSON"):
        Truth.read(tmp_path / "truth.json")


def test_list_instead_of_table(tmp_path):
    (tmp_path / "truth.json").write_text("[]")
    with pytest.raises(DataError, match="'clients' is missing"):
        Truth.read(tmp_path / "truth.json")


def test_absent_file(tmp_path):
    with pytest.raises(DataError, match=r"none.json: cannot be read as JSON"):
        Truth.read(tmp_path / "none.json")
