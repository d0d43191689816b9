"""Edges in the sensors of the sites that they touch: who learns what, and altered parties."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedgranger as fg
from fedgranger.data.client_data import ClientData
from fedgranger.data.panel import Panel
from fedgranger.data.time_axis import LocalSeries
from fedgranger.federation.codec import MessageError, Packet, decode, encode
from fedgranger.federation.edge_fields import (
    MOST_EDGES,
    MOST_STEPS,
    SENSOR_BYTES,
    check_sensors,
    read_sensors,
    sensor_fields,
)
from fedgranger.federation.own_edges import kept_edges
from fedgranger.federation.policy import SitePolicy
from fedgranger.federation.requests import refuse
from fedgranger.federation.store import Store
from fedgranger.federation.validation import check_answer, check_length
from fedgranger.inference.edge_response import band
from fedgranger.messages import Sensor, ShownSensor
from tests.configs import formula_config
from tests.federation.attacker import Attacker, options
from tests.federation.loopback_run import OPEN, Federation

EDGE = "boiler -> turbine"
CONFIG = formula_config(solver="none")
SHARING = replace(OPEN, share_sensors=True)


@pytest.fixture(scope="module")
def panel():
    """Two companies whose sensors have units, one with a hard space before it."""
    found, _ = fg.simulate(2, 600, edges=[("client1", "client2")], sensor_dims=4, seed=5)
    clients = []
    for name, client, unit in zip(("boiler", "turbine"), found, ("bar", "rpm"), strict=True):
        sensors = tuple(f"{sensor}\u00a0[{unit}]" for sensor in client.sensors)
        values = client.values * np.array([1.0, 50.0, 0.02, 7.0])
        clients.append(ClientData(name, sensors, values, client.observed, client.treatment))
    return Panel(tuple(clients), found.time)


class Run:
    """A run between both, with a policy for each."""

    def __init__(self, panel, folder, config=CONFIG, **policies):
        self.federation, self.own = Federation(panel, folder, config), {}
        for client in panel:
            self.federation.policy = policies[client.name]
            self.federation.give(LocalSeries(client, panel.time))
        for name, party in self.federation.parties.items():
            party._on_finish = lambda _, own, name=name: self.own.__setitem__(name, own)
        self.found = self.federation.run()

    def response(self):
        return self.found.inference.responses["boiler", "turbine"]

    def model(self, name):
        return self.federation.parties[name]._ready().model

    def sensor(self, panel, name):
        """Place of the sensor that the site names."""
        side = "cause" if name == "boiler" else "effect"
        return panel[name].sensors.index(self.own[name][EDGE][f"{side}_sensor"])


@pytest.fixture(scope="module")
def silent(panel, tmp_path_factory):
    return Run(panel, tmp_path_factory.mktemp("silent"), boiler=SitePolicy(), turbine=SitePolicy())


@pytest.fixture(scope="module")
def shared(panel, tmp_path_factory):
    return Run(panel, tmp_path_factory.mktemp("shared"), boiler=SHARING, turbine=SHARING)


def test_by_default_each_site_sees_its_own_side_in_its_sensors(panel, silent):
    response, (boiler, turbine) = silent.response(), map(silent.model, ("boiler", "turbine"))
    readout, shock = response.directions()
    j, i = (silent.sensor(panel, name) for name in panel.names)
    row, S = boiler.observation_matrix[j], response.shock_cov
    raised = S @ row / (row @ S @ row) / boiler.scale[j]  # the sensor rises by one unit
    seen = turbine.scale[i] * turbine.observation_matrix[i]
    for name, along in (("boiler", (readout, raised)), ("turbine", (seen, shock))):
        own = silent.own[name][EDGE]
        expected = band(response.along(*along), 0.95)
        for part in ("value", "low", "high"):
            wanted = getattr(expected.upright(), part)
            np.testing.assert_allclose(own[part], wanted, rtol=1e-5, atol=1e-9)
    assert "effect_sensor" not in silent.own["boiler"][EDGE]
    assert "cause_sensor" not in silent.own["turbine"][EDGE]


def test_sentences_say_what_a_site_knows(silent, shared):
    said = {name: own[EDGE]["sentence"] for name, own in silent.own.items()}
    assert said["boiler"].startswith("+1 bar at boiler.s")
    assert all(own[EDGE]["value"][own[EDGE]["peak"]] > 0 for own in silent.own.values())
    assert " s.d. (" in said["boiler"].split("→")[1]
    assert said["turbine"].startswith("a usual shock at boiler (1 s.d.) → ")
    assert " rpm (" in said["turbine"]
    both = {own[EDGE]["sentence"] for own in shared.own.values()}
    assert len(both) == 1
    (sentence,) = both
    assert sentence.startswith("+1 bar at boiler.s")
    assert " rpm (" in sentence


def test_after_the_nonlinear_test_a_site_says_that_it_sees_the_linear_part(panel, tmp_path):
    config = replace(CONFIG, test="nonlinear", copies=20)
    found = Run(panel, tmp_path, config, boiler=OPEN, turbine=OPEN)
    for own in found.own.values():
        assert own[EDGE]["sentence"].startswith("linear part of the influence: ")


def test_by_default_no_sensor_and_no_row_of_c_crosses_the_wire(panel, silent):
    everything = b"".join(part for _, *pair in silent.federation.wire for part in pair)
    for name in panel.names:
        for sensor in panel[name].sensors:
            assert json.dumps(sensor).encode() not in everything
        model = silent.model(name)
        for value in (*model.observation_matrix.flat, *model.scale):
            assert np.float64(value).tobytes() not in everything
            assert repr(float(value)).encode() not in everything
    answers = [decode(answer) for _, _, answer in silent.federation.wire]
    told = [answer for answer in answers if answer.kind == "sensors"]
    assert len(told) == 2  # of one edge, its two sides
    assert all(json.loads(a.values["sensors"]) == [None] for a in told)
    assert not any(a.arrays["rows"].any() for a in told)
    assert "sensor_responses" not in silent.found.facts


def test_where_both_share_everybody_knows_what_one_process_knows(panel, shared):
    alone = fg.fit(panel, config=CONFIG).manifest["inference"]["sensor_responses"]
    found = json.loads(json.dumps(shared.found.facts["sensor_responses"]))
    assert found == json.loads(json.dumps(alone))
    for own in shared.own.values():
        for part in ("value", "low", "high"):
            np.testing.assert_allclose(own[EDGE][part], found[EDGE][part], rtol=1e-4, atol=1e-9)
        for side in ("cause_sensor", "effect_sensor", "is_change", "peak", "gone"):
            assert own[EDGE][side] == found[EDGE][side]


@pytest.mark.parametrize("sharing", ["boiler", "turbine"])
def test_where_one_shares_the_other_is_told_and_tells_nothing(panel, tmp_path, sharing):
    policies = dict.fromkeys(panel.names, OPEN) | {sharing: SHARING}
    run = Run(panel, tmp_path, **policies)
    own = {name: found[EDGE] for name, found in run.own.items()}
    assert ("cause_sensor" in own["turbine"]) == (sharing == "boiler")
    assert ("effect_sensor" in own["boiler"]) == (sharing == "turbine")
    assert "sensor_responses" not in run.found.facts
    logged = {
        name: facts["sensors"] for name, _, facts in run.federation.audit if "sensors" in facts
    }
    assert {name for name, sensors in logged.items() if sensors} == {sharing}
    assert set(logged[sharing]) <= set(panel[sharing].sensors)


def test_beside_noise_no_sensor_is_told(panel, tmp_path):
    config = formula_config(solver="none", privacy="to-server", epsilon=1e5, period="none")
    federation = Federation(panel, tmp_path, config, policy=SHARING)
    found = federation.run()
    answers = [decode(answer) for _, _, answer in federation.wire]
    told = [json.loads(a.values["sensors"]) for a in answers if a.kind == "sensors"]
    assert found.inference.responses
    assert told
    assert {one for texts in told for one in texts} == {None}


def test_a_name_that_cannot_be_printed_stays_at_home(panel, tmp_path):
    boiler = panel["boiler"]
    odd = replace(boiler, sensors=tuple(f"p{k}\x1b[2J" for k in range(4)))
    run = Run(Panel((odd, panel["turbine"]), panel.time), tmp_path, boiler=SHARING, turbine=SHARING)
    assert any("cannot be printed" in line for line in run.federation.log)
    assert "cause_sensor" not in run.own["turbine"][EDGE]
    assert run.own["boiler"][EDGE]["cause_sensor"] in odd.sensors


def test_an_altered_client_cannot_end_the_run_by_a_sensor_beyond_all_numbers(panel, tmp_path):
    """Its rows and scales are within a message's bounds, their products are not."""

    def wrap(name, handle):
        def call(payload):
            packet = decode(handle(payload))
            if name != "boiler" or packet.kind != "sensors":
                return encode(packet)
            text = json.dumps([[["P", False, 1e-29], []]])
            arrays = {"rows": np.full(packet.arrays["rows"].shape, 1e9)}
            return encode(packet._replace(values={"sensors": text}, arrays=arrays))

        return call

    federation = Federation(panel, tmp_path, CONFIG, wrap, policy=SHARING)
    own = {}
    federation.parties["turbine"]._on_finish = lambda _, found: own.update(found)
    assert federation.run().inference.responses
    assert "cause_sensor" not in own[EDGE]


def translate_fields(**changed):
    """A translate of one edge, as an honest server would send it to a client with two states."""
    values = {"epoch": 1, "side": "cause", "blocks": 20, "confidence": 0.95}
    values["edges"] = json.dumps([["turbine", 0.2, None, ["N1", False, 3.0]]])
    arrays = {
        "cov": np.eye(2),
        "directions": np.ones((1, 2)) / 2,
        "courses": np.ones((1, 5, 2)),
        "course_covs": np.tile(np.eye(2), (1, 5, 1, 1)),
    }
    return (
        values | {key: changed[key] for key in changed.keys() & values.keys()},
        arrays | {key: changed[key] for key in changed.keys() & arrays.keys()},
    )


def asked(server, **changed):
    return server.ask("translate", *translate_fields(**changed))


@pytest.fixture
def server():
    found = Attacker(replace(SHARING))
    found.offer(options())
    found.begin(1)
    return found


def edges(*rows):
    return json.dumps(rows)


def other(name="turbine", share=0.1, gained=0.1, sensor=None):
    return [name, share, gained, sensor]


@pytest.mark.parametrize(
    "changed",
    [
        {"side": "middle"}, {"blocks": 1}, {"blocks": 10**6}, {"confidence": 1.0},
        {"epoch": 9}, {"edges": "[]"}, {"edges": "{"}, {"edges": "[" * 9000},
        {"edges": edges(["turbine", 0.1])}, {"edges": edges(other("=1+1"))},
        {"edges": edges(other("a\x1b[2J"))}, {"edges": edges(other("client1"))},
        {"edges": edges(other(share="x"))}, {"edges": edges(other(share=1e306))},
        {"cov": np.diag([5e-324, 0.0])}, {"edges": edges(other(gained=True))},
        {"edges": "[[\"turbine\", NaN, null, null]]"}, {"edges": edges(other(share=10**400))},
        {"edges": edges(other(sensor=["N1", False, 0.0]))},
        {"edges": edges(other(sensor=["N\u202e1", False, 1.0]))},
        {"edges": edges(other(sensor=["N1\n", False, 1.0]))},
        {"edges": edges(other(sensor=["N" * 201, False, 1.0]))},
        {"edges": edges(other(sensor=["N1", 1, 1.0]))},
        {"edges": edges(other(sensor=["N1", False]))},
        {"cov": np.eye(3)}, {"cov": np.zeros((2, 2))}, {"cov": np.diag([1.0, -1.0])},
        {"cov": np.array([[1.0, 0.5], [0.0, 1.0]])}, {"directions": np.ones((2, 2))},
        {"courses": np.ones((1, 5, 3))}, {"courses": np.ones((1, 0, 2))},
        {"courses": np.ones((1, MOST_STEPS + 1, 2))}, {"course_covs": np.ones((1, 4, 2, 2))},
    ],
)  # fmt: skip
def test_an_altered_server_cannot_say_what_no_edge_does(server, changed):
    before = dict(server.disk.files)
    answer = asked(server, **changed)
    assert answer.values["code"] in ("invalid", "stale")
    assert server.disk.files == before


def test_two_edges_to_one_client_or_too_many_are_refused(server):
    twice = {"edges": edges(other(), other()), "directions": np.ones((2, 2))}
    assert asked(server, **twice).values["code"] == "invalid"
    many = MOST_EDGES // 2
    arrays = {
        "directions": np.ones((many, 2)),
        "courses": np.ones((many, 1, 2)),
        "course_covs": np.ones((many, 1, 2, 2)),
    }
    kinds = [
        asked(server, edges=edges(*(other(f"c{k}.{n}") for n in range(many))), **arrays).kind
        for k in range(5)
    ]
    assert kinds == ["sensors"] * 4 + ["refusal"]


def test_before_a_run_and_without_tests_nothing_is_translated(server):
    fresh = Attacker(SHARING)
    assert asked(fresh).values["code"] == "unknown"
    fresh.offer(options())
    assert asked(fresh).kind == "refusal"
    untested = Attacker(SHARING)
    untested.offer(options(solver="newton", test="none"))
    untested.begin(1)
    assert asked(untested).values["code"] == "invalid"
    assert asked(server).kind == "sensors"


@given(seed=st.integers(0, 2**32 - 1), side=st.sampled_from(["cause", "effect"]))
def test_a_site_that_does_not_share_answers_the_same_whatever_is_asked(seed, side):
    """So no sequence of questions tells anything of its sensors."""
    rng = np.random.default_rng(seed)
    server = Attacker(SitePolicy())
    server.offer(options())
    server.begin(1)
    root = rng.standard_normal((2, int(rng.integers(1, 3))))
    root *= 10.0 ** rng.integers(-29, 4) / np.abs(root).max()  # smaller ones are refused unread
    axis = np.diag(rng.permutation([1.0, 0.0])) * 10.0 ** rng.integers(-59, 4)
    sizes = 10.0 ** rng.integers(-300, 9, size=2)
    answer = asked(
        server,
        side=side,
        cov=root @ root.T if rng.random() < 0.5 else axis,
        directions=rng.standard_normal((1, 2)) * sizes[0],
        courses=rng.standard_normal((1, 5, 2)) * sizes[1] / 10,
        confidence=float(rng.choice([0.95, 1 - 1e-16, 1e-300])),
    )
    assert (answer.kind, dict(answer.values)) == ("sensors", {"sensors": "[null]"})
    assert not answer.arrays["rows"].any()


def test_numbers_that_fail_with_some_sensors_only_do_not_show_in_the_answer(monkeypatch):
    """An altered server could learn the sensors' weights by what is refused."""
    from fedgranger.federation import own_edges

    monkeypatch.setattr(own_edges, "sensors_behind", lambda *_: [1.0][7])
    server = Attacker(SitePolicy())
    server.offer(options())
    server.begin(1)
    answer = asked(server)
    assert (answer.kind, answer.values["sensors"]) == ("sensors", "[null]")
    assert "own_edges" not in server.disk.files


def test_a_late_request_takes_no_sensor_away(server):
    asked(server)
    asked(server, edges=edges(other("turbine", sensor=None)))
    kept = kept_edges(Store(server.disk), "run", 1)["client1 -> turbine"]
    assert kept["effect_sensor"] == "N1"
    asked(server, edges=edges(other("turbine", sensor=["N2", False, 1.0])))
    assert kept_edges(Store(server.disk), "run", 1)["client1 -> turbine"]["effect_sensor"] == "N2"


@pytest.mark.parametrize("code", ["data", "invalid", "policy"])
def test_a_site_that_does_not_translate_costs_nobody_the_result(panel, tmp_path, code):
    def wrap(name, handle):
        def call(payload):
            asks_for = decode(payload)
            if name == "turbine" and asks_for.kind == "translate":
                return refuse(payload, asks_for.run, name, code, "it will not")
            return handle(payload)

        return call

    federation = Federation(panel, tmp_path, CONFIG, wrap, policy=SHARING)
    assert federation.run().inference.responses
    assert any(
        "'turbine' says nothing of its sensors: it will not" in line for line in federation.log
    )


def test_numbers_too_large_for_a_message_are_no_matter_in_one_process(panel, tmp_path):
    large = Panel(tuple(replace(c, values=c.values * 1e6) for c in panel), panel.time)
    config = replace(CONFIG, standardise=False)
    alone = fg.fit(large, config=config).manifest["inference"]
    assert list(alone["sensor_responses"]) == [EDGE]
    found = Federation(large, tmp_path, config, policy=SHARING).run()
    assert "sensor_responses" not in found.facts
    assert any("too large for a message" in warning for warning in found.facts["warnings"])


def test_what_a_site_made_of_its_edges_survives_its_restart_and_no_new_start(server):
    asked(server)
    server.restart()
    finished = []
    server.party._on_finish = lambda _, own: finished.append(own)
    done = {"edges": "[]"}
    assert server.ask("finish", {"epoch": 1, **done}).kind == "done"
    server.begin(2)
    assert server.ask("finish", {"epoch": 2, **done}).kind == "done"
    assert [list(own) for own in finished] == [["client1 -> turbine"], []]


SHOWN = ShownSensor(Sensor("P03\u00a0[bar]", True, 2.5), np.array([0.5, -1.0]), (("P03", 0.9),))


def test_sensors_are_read_as_they_were_written():
    values, arrays = sensor_fields([SHOWN, None], 2)
    packet = decode(encode(Packet("sensors", "r", "a", values, arrays)))
    check_sensors(packet, 2, 2)
    first, second = read_sensors(packet)
    assert second is None
    assert (first.sensor, first.behind) == (SHOWN.sensor, SHOWN.behind)
    np.testing.assert_array_equal(first.row, SHOWN.row)


def sensors_text(name="N1", is_change=False, scale=1.0, behind=(("N1", 0.5),)):
    return json.dumps([[[name, is_change, scale], behind]])


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("[]", np.zeros((1, 2))), ("null", np.zeros((1, 2))), ("[[]]", np.zeros((1, 2))),
        ("[null]", np.ones((1, 2))), ("[null]", np.zeros((1, 3))), ("[null]", np.zeros((2, 2))),
        (sensors_text("N1\x07"), np.ones((1, 2))), (sensors_text(""), np.ones((1, 2))),
        (sensors_text(5), np.ones((1, 2))), (sensors_text(scale=-1.0), np.ones((1, 2))),
        (sensors_text(scale=1e300), np.ones((1, 2))),
        (sensors_text(is_change=None), np.ones((1, 2))),
        (sensors_text(behind=[["N1", 2.0]]), np.ones((1, 2))),
        (sensors_text(behind=[["N\u202e", 0.5]]), np.ones((1, 2))),
        (sensors_text(behind=[["N1", 0.5]] * 4), np.ones((1, 2))),
        (sensors_text(behind={"N1": 0.5}), np.ones((1, 2))),
    ],
)  # fmt: skip
def test_an_altered_client_cannot_name_what_no_sensor_is(text, rows):
    packet = Packet("sensors", "r", "a", {"sensors": text}, {"rows": rows})
    with pytest.raises(MessageError):
        check_answer("translate", {}, (1, 2), packet)


def test_the_longest_answer_fits_and_a_longer_one_is_not_decoded():
    letter = "\U0001f600"  # fourteen bytes as JSON inside JSON has it
    sensor = Sensor(letter * 200, False, 1.2345678901234567)
    shown = ShownSensor(sensor, np.full(3, 1 / 3), ((letter * 200, -0.123),) * 3)
    values, arrays = sensor_fields([shown] * 7, 3)
    check_length("translate", (7, 3), encode(Packet("sensors", "r", "a", values, arrays)))
    long = {"sensors": letter * (7 * SENSOR_BYTES)}
    with pytest.raises(MessageError, match="more than"):
        check_length("translate", (7, 3), encode(Packet("sensors", "r", "a", long, arrays)))
