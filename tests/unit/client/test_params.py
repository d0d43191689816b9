"""LocalModel: what it refuses, and its file."""

import json
import subprocess
import sys

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.client.params import LocalModel, known_models, read_models, write_models
from fedgranger.data.truth import Truth
from fedgranger.errors import ModelError


def fields(**changes):
    base = {
        "self_transition": np.array([[0.5, 0.1], [0.0, 0.4]]),
        "observation_matrix": np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
        "process_cov": np.array([[1.0, 0.2], [0.2, 2.0]]),
        "measurement_cov": np.diag([1.0, 2.0, 3.0]),
        "centre": np.array([1.0, 2.0, 3.0]),
        "scale": np.array([1.0, 10.0, 0.1]),
    }
    return base | changes


def test_valid_model_and_its_properties():
    model = LocalModel(**fields())
    assert (model.state_dim, model.num_sensors) == (2, 3)
    np.testing.assert_allclose(model.predicted_observation, [[0.5, 0.1], [0.0, 0.4], [0.5, 0.5]])
    np.testing.assert_allclose(model.scaled(np.array([[2.0, 12.0, 4.0]])), [[1.0, 1.0, 10.0]])


def test_noiseless_sensors_are_allowed():
    LocalModel(**fields(measurement_cov=np.zeros((3, 3))))


def test_sensors_in_very_different_units_are_allowed():
    LocalModel(**fields(measurement_cov=np.diag([1e-12, 1.0, 1e12])))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation_matrix": np.ones((3, 2))}, "observation_matrix has rank below 2"),
        ({"process_cov": np.array([[1.0, 0.2], [0.1, 2.0]])}, "process_cov is not symmetric"),
        ({"process_cov": np.diag([1.0, 0.0])}, "process_cov is not symmetric positive definite"),
        ({"process_cov": np.ones((2, 2))}, "process_cov is not symmetric positive definite"),
        ({"process_cov": np.zeros((2, 2))}, "process_cov is not symmetric positive definite"),
        ({"measurement_cov": np.diag([1.0, -1.0, 1.0])}, "measurement_cov is not symmetric"),
        ({"measurement_cov": np.diag([1.0, 0.0, 1.0])}, "measurement_cov is not symmetric"),
        ({"scale": np.array([1.0, 0.0, 1.0])}, "scale must be positive for every sensor"),
        ({"self_transition": np.full((2, 2), np.nan)}, "self_transition has entries.*not finite"),
        ({"centre": np.array([0.0, np.inf, 0.0])}, "centre has entries that are not finite"),
    ],
)
def test_bad_values_are_named(change, message):
    with pytest.raises(ModelError, match=message):
        LocalModel(**fields(**change))


SHAPE_SCRIPT = """
import json
import numpy as np
from fedgranger.client.params import LocalModel
good = {"self_transition": (2, 2), "observation_matrix": (3, 2), "process_cov": (2, 2),
        "measurement_cov": (3, 3), "centre": (3,), "scale": (3,)}
said = {}
for name, shape in good.items():
    if name == "observation_matrix":
        continue
    arrays = {key: np.ones(value) for key, value in good.items()}
    arrays[name] = np.ones((*shape[:-1], 5))
    try:
        LocalModel(**arrays)
    except ValueError as error:
        said[name] = [type(error).__name__, str(error)]
print(json.dumps(said))
"""


def test_shapes_are_named_without_the_type_checker():
    """The test run's shape checker would answer first, so this runs as a user would."""
    run = subprocess.run(
        [sys.executable, "-c", SHAPE_SCRIPT], capture_output=True, text=True, check=True
    )
    assert json.loads(run.stdout) == {
        "self_transition": ["ModelError", "self_transition has shape (2, 5), (2, 2) is needed"],
        "process_cov": ["ModelError", "process_cov has shape (2, 5), (2, 2) is needed"],
        "measurement_cov": ["ModelError", "measurement_cov has shape (3, 5), (3, 3) is needed"],
        "centre": ["ModelError", "centre has shape (5,), (3,) is needed"],
        "scale": ["ModelError", "scale has shape (5,), (3,) is needed"],
    }


# the file


def test_models_round_trip_exactly(tmp_path):
    models = {"a": LocalModel(**fields()), "b": LocalModel(**fields(scale=np.full(3, 1 / 3)))}
    path = tmp_path / "models.json"
    write_models(path, models)
    back = read_models(path)
    assert list(back) == ["a", "b"]
    for name, model in models.items():
        for key in fields():
            np.testing.assert_array_equal(getattr(back[name], key), getattr(model, key))
        assert back[name].method == "given"


def test_centre_and_scale_may_be_left_out(tmp_path):
    entry = {
        key: value.tolist() for key, value in fields().items() if key not in ("centre", "scale")
    }
    path = tmp_path / "models.json"
    path.write_text(json.dumps({"a": entry}))
    model = read_models(path)["a"]
    np.testing.assert_array_equal(model.centre, np.zeros(3))
    np.testing.assert_array_equal(model.scale, np.ones(3))


def test_scalars_stand_for_one_by_one_matrices(tmp_path):
    path = tmp_path / "models.json"
    names = ("self_transition", "observation_matrix", "process_cov", "measurement_cov")
    path.write_text(json.dumps({"a": dict.fromkeys(names, 0.5)}))
    assert read_models(path)["a"].self_transition.tolist() == [[0.5]]


def entry_with(**changes):
    return {key: value.tolist() for key, value in fields().items()} | changes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "models.json: cannot be read as JSON"),
        ("[1, 2]", "models.json: must map each client to its matrices"),
        ('{"a": 3}', "models.json, client 'a': must be a table with self_transition"),
        ('{"a": {"self_transition": 1}}', "client 'a': 'observation_matrix' is missing; give"),
        (
            json.dumps({"b": entry_with(process_cov="high")}),
            "client 'b': not a numeric matrix",
        ),
        (
            json.dumps({"b": entry_with(self_transition=[[1, 2], [3]])}),
            "client 'b': not a numeric matrix",
        ),
        (
            json.dumps({"b": entry_with(scale=[1, 1, -1])}),
            "client 'b': scale must be positive for every sensor",
        ),
    ],
)
def test_bad_files_are_one_sentence(tmp_path, content, message):
    path = tmp_path / "models.json"
    path.write_text(content)
    with pytest.raises(ModelError, match=message) as caught:
        read_models(path)
    assert "\n" not in str(caught.value)


def test_absent_file(tmp_path):
    with pytest.raises(ModelError, match=r"none.json: cannot be read as JSON"):
        read_models(tmp_path / "none.json")


# known models


def test_known_models_are_blocks_of_the_truth():
    _, truth = fg.simulate(
        2, 20, state_dims=[1, 2], sensor_dims=[3, 4], process_correlation=0.3, seed=1
    )
    models = known_models(truth)
    assert list(models) == ["client1", "client2"]
    model = models["client2"]
    np.testing.assert_array_equal(model.self_transition, truth.transition[1:, 1:])
    np.testing.assert_array_equal(model.process_cov, truth.process_cov[1:, 1:])
    np.testing.assert_array_equal(model.observation_matrix, truth.observation_matrices["client2"])
    np.testing.assert_array_equal(model.measurement_cov, truth.measurement_covs["client2"])
    assert model.method == "known"
    assert not model.centre.any()
    assert (model.scale == 1).all()


def test_truth_without_noise_has_no_known_models():
    with pytest.raises(ModelError, match="no noise covariances; use the one simulate"):
        known_models(Truth(("a",), (), np.eye(1), {"a": 1}))
