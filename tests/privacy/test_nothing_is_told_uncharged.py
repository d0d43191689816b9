"""A server that asks in an unusual order, or again in other pieces, gets nothing for nothing."""

from dataclasses import replace

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.data.time_axis import LocalSeries
from fedgranger.federation.agreed_options import FederationOptions
from fedgranger.federation.codec import Packet, decode, encode
from fedgranger.federation.outcome import to_result
from fedgranger.federation.release_ledger import ReleaseLedger
from fedgranger.federation.store import DiskFiles, Store
from fedgranger.privacy.accounting import epsilon_of
from fedgranger.rca.alarms import knowledge_of
from tests.federation.loopback_run import OPEN
from tests.federation.watched import give
from tests.privacy.private_parties import MODELS, PANEL, answers, federation, private_config

STEPS = PANEL.num_steps
ROUNDS = private_config(solver="newton", epsilon=3000.0, private_rounds=4)


class Asking:
    """A server that speaks to one party of a federation."""

    def __init__(self, folder, config=ROUNDS, policy=OPEN):
        self.folder, self.config = folder, config
        self.party = federation(folder, config, policy=policy).parties["client1"]
        text = FederationOptions(config).for_client("client1").to_text()
        self.ask("offer", {"nonce": "n", "options": text})
        values = {"epoch": 1, "round": 0, "time_kind": "numbers", "first": "0", "interval": "1"}
        self.ask("begin", values, {"stretches": np.array([[0, STEPS]])})

    def ask(self, kind, values, arrays=None):
        return decode(
            self.party.handle(encode(Packet(kind, "run", "client1", values, arrays or {})))
        )

    def step(self, round_index, gradients=None, want=0):
        values = {
            "epoch": 1,
            "round": round_index,
            "learn_piece": -1 if gradients is None else 0,
            "learn_pieces": 0 if gradients is None else 1,
            "want_piece": want,
            "want_filtered": True,
        }
        gradients = np.zeros((0, 0)) if gradients is None else gradients
        return self.ask("step", values, {"gradients": gradients})

    def charged(self):
        entries = ReleaseLedger(Store(DiskFiles(self.folder / "client1")), OPEN).entries()
        return [entry.message for entry in entries]


def test_gradients_count_also_in_rounds_whose_states_nobody_asks_for(tmp_path):
    """θ of round 3 has seen the gradients of three rounds, each with noise of its own."""
    server, rng = Asking(tmp_path), np.random.default_rng(0)
    for round_index in (1, 2, 3):
        sent = server.step(round_index, rng.normal(size=(STEPS - 1, 2)), want=-1)
        assert sent.kind == "done"
    assert server.step(3).kind == "message"
    assert server.charged().count("feedback") == 3
    assert server.charged().count("augmented") == 1
    again = server.step(3, rng.normal(size=(STEPS - 1, 2)))  # θ of a round is a fact
    assert again.kind == "message"
    assert server.charged().count("feedback") == 3
    beyond = server.step(4, rng.normal(size=(STEPS - 1, 2)), want=-1)
    assert beyond.values["code"] == "budget"


def test_the_size_of_filtered_states_is_told_after_they_were_charged(tmp_path):
    server = Asking(tmp_path)
    assert server.charged() == ["states", "clipped"]
    assert server.ask("train", {"epoch": 1}).kind == "model"  # state_gain is computed from them
    assert "filtered" in server.charged()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_budget_for_states_alone_still_gives_edges(tmp_path):
    sizes = ROUNDS.client_terms.sizes(2, STEPS, has_tests=True, has_rounds=True)
    once = epsilon_of(float(np.hypot(sizes.states, sizes.clipped)) * 1.001, 1e-5)
    found = federation(tmp_path, ROUNDS, policy=replace(OPEN, epsilon=once))
    outcome = found.run()
    assert outcome.inference is not None
    assert outcome.training.granger is None
    assert "privacy budget" in outcome.training.failure
    assert not any(kind in ("model", "message") for _, kind, *_ in answers(found))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_rounds_that_fail_are_reported_with_their_whole_price(tmp_path):
    """One client may have sent its round before another one refused."""
    sizes = ROUNDS.client_terms.sizes(2, STEPS, has_tests=True, has_rounds=True)
    once = epsilon_of(float(np.hypot(sizes.states, sizes.clipped)) * 1.05, 1e-5)
    found = federation(tmp_path, ROUNDS)
    found.policy = replace(OPEN, epsilon=once)
    found.give(LocalSeries(PANEL["client3"], PANEL.time, model=MODELS["client3"]))
    outcome = found.run()
    assert outcome.training.failure
    for name in PANEL.names:
        told = ReleaseLedger(Store(DiskFiles(tmp_path / name)), OPEN).entries()
        cost = epsilon_of(float(np.sqrt(sum(entry.size**2 for entry in told))), 1e-5)
        assert outcome.privacy["clients"][name]["epsilon"] >= cost * (1 - 1e-9), name


WIDE, WIDE_TRUTH = fg.simulate(2, 200, sensor_dims=40, state_dims=4, seed=5)
NEW = replace(fg.simulate(2, 30, sensor_dims=40, state_dims=4, seed=6)[0], time=np.arange(200, 230))


def watched(folder):
    """A federation whose clients watch new data, and what a server can ask."""
    models = fg.client.params.known_models(WIDE_TRUTH)
    found = federation(folder, private_config(), WIDE, models)
    outcome = found.run()
    give(found, NEW)
    found.watch(knowledge_of(to_result(found.server, outcome, "loopback", 0.0, ())))
    return found


def reports(found, steps, start, epoch):
    """All reports on the new data from a step on, in pieces of so many steps."""
    party = found.parties["client1"]

    def ask(kind, values, arrays=None):
        return decode(party.handle(encode(Packet(kind, "run", "client1", values, arrays or {}))))

    ask("watch", {"nonce": "n"})
    grid = {"time_kind": "numbers", "first": str(start), "interval": "1"}
    values = {"epoch": epoch, "steps": steps, **grid}
    arrays = {"stretches": np.array([[0, 230 - start]])}
    assert ask("follow", values, arrays).kind == "done"
    pieces = range(-(-(230 - start) // steps))
    got = [ask("report", {"epoch": epoch, "piece": piece}) for piece in pieces]
    return np.concatenate([part.arrays["states"] for part in got])


def test_a_step_is_reported_with_one_noise_in_whatever_pieces(tmp_path):
    """The last bit of a state may depend on a message's size; its noise must not.

    Otherwise every further size would be a new draw for the same states, and their mean is what
    the noise should have hidden.
    """
    found = watched(tmp_path)
    whole = reports(found, 30, 200, 10)
    for k, (steps, start) in enumerate([(1, 200), (3, 200), (7, 200), (30, 210), (30, 229 - 9)]):
        again = reports(found, steps, start, 11 + k)
        np.testing.assert_allclose(again, whole[start - 200 :], rtol=0, atol=1e-9)


def test_only_what_is_covered_leaves_so_nothing_is_watched(tmp_path):
    """What is normal was learned from the training data without noise."""
    found = federation(tmp_path, private_config(), policy=replace(OPEN, covered_only=True))
    found.run()
    packet = Packet("watch", "run", "client1", {"nonce": "n"}, {})
    found.news["client1"] = None
    answer = decode(found.parties["client1"].handle(encode(packet)))
    assert answer.values["code"] == "policy"
    assert "privacy budget covers" in answer.values["sentence"]


def test_other_contents_have_other_names():
    """Also where only the shape differs: the noise differs, so it is a release of its own."""
    noise = fg.privacy.release.SecretNoise(b"s" * 32)
    rows = np.arange(6.0)
    names = {noise.add("states", rows.reshape(shape), 1.0)[1] for shape in ((2, 3), (3, 2), (6,))}
    assert len(names) == 3
