"""One innovation s.d. in the units of a sensor, against the sensor's own one-step changes."""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.client.params import LocalModel
from fedgranger.federation.client_facts import add_sensor_units, sensor_innovation
from fedgranger.manifest_types import ClientFacts
from fedgranger.tested_facts import InferenceFacts


def model_of(C, scale):
    d, p = C.shape
    return LocalModel(0.5 * np.eye(p), C, np.eye(p), np.eye(d), np.zeros(d), np.array(scale))


def test_a_sensors_innovation_is_the_spread_of_what_the_states_move_it_by():
    rng = np.random.default_rng(0)
    C, scale = rng.normal(size=(3, 2)), [1.0, 20.0, 0.01]
    root = rng.normal(size=(2, 2))
    moves = (rng.normal(size=(200_000, 2)) @ root.T) @ C.T * scale
    for sensor in range(3):
        found = sensor_innovation(model_of(C, scale), root @ root.T, sensor)
        assert found == pytest.approx(moves[:, sensor].std(), rel=0.01)


def test_the_best_explained_sensor_stands_for_its_client_in_both_tests():
    C = np.array([[1.0, 0.0], [0.0, 2.0]])
    rows = [{"name": "s1", "explained": None}, {"name": "s2", "explained": 0.4}]
    client = ClientFacts.of(
        {"local_fit": {"sensors": rows}, "treatment": {"differenced": {"s2": 0}}}
    )
    covs = {"a": [[4.0, 0.0], [0.0, 9.0]]}
    facts = InferenceFacts(innovation_cov=covs, beside=InferenceFacts(innovation_cov=covs))
    add_sensor_units(facts, {"a": model_of(C, [1.0, 10.0])}, {"a": client})
    expected = {"a": {"sensor": "s2", "innovation": 60.0, "is_change": True}}
    assert facts["innovation_sensor"] == facts["beside"]["innovation_sensor"] == expected
    nothing = InferenceFacts(test="none")
    add_sensor_units(nothing, {}, {})
    assert nothing == {"test": "none"}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_units_of_the_data_are_the_units_of_the_answer():
    """The same run with one client's sensors in units a thousand times smaller."""
    panel, _ = fg.simulate(2, 500, seed=2)
    small = fg.Panel.from_arrays(
        {name: panel[name].values * (1000 if name == "client2" else 1) for name in panel.names}
    )
    one, other = (
        fg.fit(each, fg.RunConfig(solver="none", test="debiased", state_dim=2)).manifest[
            "inference"
        ]
        for each in (panel, small)
    )
    assert other["positive_control"] == pytest.approx(one["positive_control"], rel=1e-6)
    for name, factor in (("client1", 1), ("client2", 1000)):
        units = [facts["innovation_sensor"][name]["innovation"] for facts in (one, other)]
        assert units[1] == pytest.approx(factor * units[0], rel=1e-4)
