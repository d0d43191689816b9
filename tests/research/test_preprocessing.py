"""Preprocessing by name: the paper's recipe against numpy, new data, storage."""

import json

import numpy as np
import pytest

from fedgranger.client.params import read_models
from fedgranger.client.state_noise import state_message
from fedgranger.data.client_data import ClientData
from fedgranger.data.panel import Panel
from fedgranger.errors import ConfigError, DataError, ModelError
from fedgranger_research.datasets.preprocessing import (
    Preprocessing,
    read_preprocessing,
    write_preprocessing,
)


def make_client(num_steps=400, seed=0, sensors=("a", "b", "c", "d", "e", "f")):
    rng = np.random.default_rng(seed)
    state = np.zeros((num_steps, 2))
    for t in range(1, num_steps):
        state[t] = [0.9, 0.5] * state[t - 1] + rng.standard_normal(2)
    loadings = np.random.default_rng(1).standard_normal((2, len(sensors)))
    noise = 0.3 * rng.standard_normal((num_steps, len(sensors)))
    values = 5 + 3 * (state @ loadings + noise)
    return Panel.from_arrays({"pump": values}, sensors={"pump": sensors})["pump"]


def starts(client):
    first = np.zeros(len(client.values), dtype=np.bool_)
    first[0] = True
    return first


def paper_by_hand(train, new, signs=(1, 1)):
    """The appendix line by line, with the signs of the singular vectors fixed."""
    mean, spread = train.mean(axis=0), train.std(axis=0)
    standardised = (train - mean) / spread
    _, _, Vt = np.linalg.svd(standardised, full_matrices=False)
    B = Vt[:2].T
    B = B * np.sign(B[np.abs(B).argmax(axis=0), [0, 1]]) * signs
    M = np.array([[1.0, 1.0], [0.0, 1.0]])
    mixed = standardised @ B @ M
    return ((new - mean) / spread @ B @ M - mixed.mean(axis=0)) / mixed.std(axis=0)


def test_paper_recipe_vs_numpy():
    train, new = make_client(), make_client(seed=3)
    made = Preprocessing.fit(train, starts(train), recipe="paper")
    for data in (train, new):
        expected = paper_by_hand(train.values, data.values)
        np.testing.assert_allclose(made.apply(data), expected, atol=1e-10)
    states = made.apply(train)
    np.testing.assert_allclose(states.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(states.std(axis=0), 1, atol=1e-10)


def test_paper_recipe_with_two_sensors_keeps_everything():
    """Two standardised sensors have the vectors (1, ±1)/√2: the second's sign is nobody's."""
    train = make_client(sensors=("a", "b"))
    states = Preprocessing.fit(train, starts(train), recipe="paper").apply(train)
    either = [paper_by_hand(train.values, train.values, signs) for signs in ((1, 1), (1, -1))]
    assert any(np.allclose(states, expected, atol=1e-10) for expected in either)


def test_our_recipe_gives_the_states_of_a_fit():
    train = make_client()
    made = Preprocessing.fit(train, starts(train), recipe="ours")
    sent = state_message(train, made.model, 0, len(train.values))
    np.testing.assert_allclose(made.apply(train), np.asarray(sent.states), atol=1e-12)
    assert made.model.measurement_cov.any()
    np.testing.assert_allclose(made.model.centre, train.values.mean(axis=0))
    np.testing.assert_allclose(made.model.scale, train.values.std(axis=0))


@pytest.mark.parametrize("recipe", ["paper", "ours"])
def test_new_data_do_not_change_the_statistics(recipe):
    train, new = make_client(), make_client(seed=7)
    made = Preprocessing.fit(train, starts(train), recipe=recipe)
    far = ClientData(new.name, new.sensors, new.values + 100.0, new.observed)
    shift = made.apply(far) - made.apply(new)
    assert np.abs(shift).max() > 1  # a new mean is seen, not removed
    np.testing.assert_allclose(made.apply(new)[50:60], made.apply(_rows(new, 50, 60)))


def _rows(client, start, stop):
    return ClientData(
        client.name, client.sensors, client.values[start:stop], client.observed[start:stop]
    )


def test_sensors_are_found_by_name():
    train = make_client()
    made = Preprocessing.fit(train, starts(train))
    order = [5, 3, 0, 1, 2, 4]
    extra = np.column_stack([train.values[:, order], np.zeros(len(train.values))])
    names = (*(train.sensors[k] for k in order), "constant")
    moved = ClientData("pump", names, extra, np.ones(extra.shape, np.bool_))
    np.testing.assert_array_equal(made.apply(moved), made.apply(train))


def test_missing_sensor_is_refused():
    train = make_client()
    made = Preprocessing.fit(train, starts(train))
    less = ClientData("pump", train.sensors[1:], train.values[:, 1:], train.observed[:, 1:])
    with pytest.raises(DataError, match="client 'pump': the new data lack sensor 'a'"):
        made.apply(less)


def test_unobserved_rows_are_nan():
    train = make_client()
    made = Preprocessing.fit(train, starts(train))
    observed = train.observed.copy()
    observed[4, 2] = False
    states = made.apply(ClientData("pump", train.sensors, train.values, observed))
    assert np.isnan(states[4]).all()
    assert np.isfinite(np.delete(states, 4, axis=0)).all()


@pytest.mark.parametrize("recipe", ["paper", "ours"])
def test_stored_and_read_again(tmp_path, recipe):
    train, new = make_client(), make_client(seed=5)
    made = Preprocessing.fit(train, starts(train), recipe=recipe)
    path = tmp_path / "models.json"
    write_preprocessing(path, {"pump": made})
    again = read_preprocessing(path)["pump"]
    assert (again.recipe, again.sensors) == (recipe, train.sensors)
    assert (again.model.method, again.model.notes) == (made.model.method, made.model.notes)
    np.testing.assert_array_equal(again.apply(new), made.apply(new))
    plain = read_models(path)["pump"]  # the same file serves fit --models
    np.testing.assert_array_equal(plain.observation_matrix, made.model.observation_matrix)


def test_wrong_recipes_and_files_are_refused(tmp_path):
    train = make_client()
    with pytest.raises(ConfigError, match="recipe"):
        Preprocessing.fit(train, starts(train), recipe="papper")
    table = {"pump": Preprocessing.fit(train, starts(train)).to_mapping()}
    path = tmp_path / "models.json"
    for key, value, needed in (
        ("recipe", "other", "recipe"),
        ("sensors", ["a"], "1 sensor names for a model of 6"),
        ("scale", [0.0] * 6, "scale must be positive"),
    ):
        path.write_text(json.dumps({"pump": {**table["pump"], key: value}}))
        with pytest.raises(ModelError, match=needed) as caught:
            read_preprocessing(path)
        assert "client 'pump'" in str(caught.value)
    del table["pump"]["sensors"]
    path.write_text(json.dumps(table))
    with pytest.raises(ModelError, match="'sensors' is missing"):
        read_preprocessing(path)
