"""Coordinator and parties: same numbers as in one process, refusals, policies, records."""

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.data.time_axis import LocalSeries
from fedgranger.federation.codec import Packet, decode, digest, encode
from fedgranger.federation.coordinator import LONGEST_SENTENCE
from fedgranger.federation.driving import PAUSE_SECONDS, ask_first, drive
from fedgranger.federation.policy import SitePolicy
from fedgranger.federation.protocol import RunStopped
from fedgranger.federation.requests import refuse
from fedgranger.federation.store import DiskFiles, Store
from tests.configs import formula_config
from tests.federation.loopback import LoopbackEngine
from tests.federation.loopback_run import Federation, Ticking, silent_after


@pytest.fixture(scope="module")
def panel():
    return fg.simulate(3, 301, seed=0)[0]


ROUNDS = fg.RunConfig(solver="newton", test="none")


@pytest.fixture(scope="module")
def undisturbed(panel, tmp_path_factory):
    """A run of rounds in which nothing goes wrong; to be read only."""
    federation = Federation(panel, tmp_path_factory.mktemp("undisturbed"), ROUNDS)
    return federation, federation.run()


@pytest.fixture(scope="module")
def tested(panel, tmp_path_factory):
    """The same with a test of its edges, and what every party was told of them."""
    federation = Federation(
        panel, tmp_path_factory.mktemp("tested"), formula_config(solver="newton")
    )
    told = {}
    for name, party in federation.parties.items():
        party._on_finish = lambda edges, _, name=name: told.__setitem__(name, edges)
    return federation, federation.run(), told


@pytest.mark.parametrize(
    "config",
    [
        formula_config(window=10, passes=2, tolerance=0.0),
        formula_config(solver="newton"),
        formula_config(solver="newton", couplings=(("client1", "client2"),)),
        # slow: up to 40 passes, message by message
        pytest.param(formula_config(window=40, passes=40, tolerance=0.5), marks=pytest.mark.slow),
    ],
    ids=["sgd", "newton", "couplings", "sgd until it has converged"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_parties_find_what_one_process_finds(panel, tmp_path, config):
    found = Federation(panel, tmp_path, config).run()
    alone = fg.fit(panel, config=config)
    np.testing.assert_allclose(found.training.granger, alone.granger, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        found.inference.transition, alone.inference.transition, rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(
        found.inference.edges["p_value"], alone.inference.edges["p_value"], rtol=1e-9
    )
    assert found.training.rounds == alone.manifest["training"]["rounds"]
    rows = ["pass_index", "round", "client"]
    assert found.training.trace[rows].equals(alone.trace[rows])
    np.testing.assert_allclose(
        found.training.trace["server_loss"], alone.trace["server_loss"], rtol=1e-9
    )
    assert found.training.trace["local_loss"].isna().all()  # it stays with the clients


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("test", ["readings", "auto"])
def test_shifted_clocks_give_the_same_bits_between_parties(panel, tmp_path, test):
    config = fg.RunConfig(solver="none", test=test, lags="auto", copies=20)
    found = Federation(panel, tmp_path, config).run()
    alone = fg.fit(panel, config=config)
    assert found.inference.edges.equals(alone.inference.edges)
    np.testing.assert_array_equal(
        found.inference.audit.statistics, alone.inference.audit.statistics
    )
    assert found.inference.facts["audit"]["copies"] == 20
    other = found.inference.beside
    assert (other is None) == (test == "readings")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"test": "nonlinear", "copies": 20},
        {"test": "debiased", "weighting": "ewma", "weighting_span": 100},
        {"test": "debiased", "time_windows": 2},
        {
            "test": "nonlinear",
            "copies": 20,
            "weighting": "ewma",
            "weighting_span": 100,
            "time_windows": 2,
        },
    ],
    ids=["nonlinear", "ewma", "time windows", "all of them"],
)
def test_other_tests_weights_and_stretches_give_the_same_bits(panel, tmp_path, options):
    config = fg.RunConfig(solver="none", lags=1, **options)
    found = Federation(panel, tmp_path, config).run().inference
    alone = fg.fit(panel, config=config).inference
    assert np.isfinite(alone.edges["p_value"]).all()
    for name in ("edges", "entries", "over_time"):
        one, other = getattr(found, name), getattr(alone, name)
        assert one is other is None or one.equals(other), name
    assert (found.over_time is None) == ("time_windows" not in options)
    assert found.facts["warnings"] == alone.facts["warnings"]
    assert found.facts.get("kinds") == alone.facts.get("kinds")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_default_run_finds_the_same_bits_as_one_process_and_sends_states_once(panel, tmp_path):
    config = formula_config(solver="none")
    federation = Federation(panel, tmp_path, config, policy=SitePolicy(), message_steps=37)
    found, alone = federation.run(), fg.fit(panel, config=config)
    trained = fg.fit(panel, config=formula_config(solver="newton"))
    for other in (alone, trained):
        assert found.inference.edges.equals(other.inference.edges)
        assert found.inference.entries.equals(other.inference.entries)
    assert found.training.granger is alone.granger is None
    for name in panel.names:
        answers = [decode(answer) for who, _, answer in federation.wire if who == name]
        kinds = [answer.kind for answer in answers]
        sides = kinds.count("sensors")  # of its edges: it is a cause, an effect or both
        assert kinds == ["range", "hello", "done", *["states"] * 9, *["sensors"] * sides, "done"]
        assert all(set(a.values["sensors"]) <= set("[]nul, ") for a in answers[-1 - sides : -1])
    sent = sum(len(answer) for _, _, answer in federation.wire)
    assert sent < 3 * (301 * (2 * 8 + 1) + 13 * 800)


def test_small_messages_change_nothing(panel, tmp_path, tested):
    _, whole, _ = tested
    config = formula_config(solver="newton")
    pieces = Federation(panel, tmp_path, config, message_steps=37).run()
    np.testing.assert_allclose(pieces.training.granger, whole.training.granger, rtol=0, atol=1e-12)
    p_values = [found.inference.edges["p_value"] for found in (pieces, whole)]
    np.testing.assert_allclose(*p_values, rtol=1e-9)


def test_no_raw_value_and_no_unlisted_field_crosses_the_wire(panel, tested):
    federation, _, _ = tested
    everything = b"".join(part for _, *pair in federation.wire for part in pair)
    for name, party in federation.parties.items():
        model = party._ready().model
        private = [panel[name].values, model.scaled(panel[name].values)]
        private += [model.observation_matrix, model.measurement_cov, model.predicted_observation]
        private += [party._followed.rounds[max(party._followed.rounds)].augmentation]
        for array in private:
            for value in np.unique(array[np.abs(array) > 1e-12])[:500]:
                assert np.float64(value).tobytes() not in everything
                assert repr(float(value)).encode() not in everything
        for sensor in panel[name].sensors:
            assert f'"{sensor}"'.encode() not in everything
    for _, request, answer in federation.wire:
        decode(request), decode(answer)  # only listed fields pass


def test_clients_never_see_each_others_states(panel, tested):
    federation, _, _ = tested
    sent = {name: set() for name in panel.names}
    for name, _, answer in federation.wire:
        for array in decode(answer).arrays.values():
            if array.dtype.kind == "f":
                sent[name] |= {value.tobytes() for value in array.reshape(-1)[:2000] if value}
    for name, request, _ in federation.wire:
        for array in decode(request).arrays.values():
            got = {value.tobytes() for value in array.reshape(-1)[:2000] if value}
            for other in panel.names:
                assert other == name or not got & sent[other]


def test_ledger_counts_every_byte_that_was_sent(panel, tested):
    federation, found, _ = tested
    totals = federation.server.ledger.totals()
    for name in panel.names:
        down = [len(request) for client, request, _ in federation.wire if client == name]
        up = [len(answer) for client, _, answer in federation.wire if client == name]
        assert totals[name]["messages_down"] == totals[name]["messages_up"] == len(down)
        assert totals[name]["bytes_down"] == sum(down)
        assert totals[name]["bytes_up"] == sum(up)
    table = federation.server.ledger.table()
    assert table.query("phase == 'step'")["round"].max() == found.training.rounds


def corrupt(kind):
    """Make one client's answers wrong for a while, in a way that passes the codec."""
    state = {"left": 3}

    def wrap(name, handle):
        def call(payload):
            answer = handle(payload)
            packet = decode(answer)
            if name != "client2" or packet.kind != "message" or not state["left"]:
                return answer
            state["left"] -= 1
            return kind(packet, answer)

        return call

    return wrap


def changed(**arrays):
    return lambda packet, _: encode(
        packet._replace(arrays={**packet.arrays, **{k: f(packet) for k, f in arrays.items()}})
    )


@pytest.mark.parametrize(
    "kind",
    [
        lambda packet, answer: answer[:-3],
        lambda packet, answer: b"",
        lambda packet, answer: encode(packet._replace(client="client1")),
        lambda packet, answer: encode(packet._replace(run="other")),
        lambda packet, answer: encode(packet._replace(answers="")),
        lambda packet, answer: encode(packet._replace(values={**packet.values, "round": 99})),
        lambda packet, answer: encode(packet._replace(values={**packet.values, "size": -1.0})),
        lambda packet, answer: encode(
            Packet("done", packet.run, packet.client, {}, {}, packet.answers)
        ),
        changed(augmented_states=lambda p: p.arrays["augmented_states"][1:]),
        changed(augmented_states=lambda p: np.ones((len(p.arrays["augmented_states"]), 9))),
        changed(filtered_states=lambda p: np.ones((7, 2))),
        changed(is_observed=lambda p: p.arrays["is_observed"][1:]),
        changed(is_observed=lambda p: np.zeros_like(p.arrays["is_observed"])),
    ],
    ids=[
        "cut", "empty", "other client", "other run", "no request", "other round", "negative report",
        "other kind", "too short", "too wide", "filtered", "flags", "all missing",
    ],
)  # fmt: skip
def test_a_wrong_answer_is_refused_and_asked_for_again(panel, tmp_path, undisturbed, kind):
    _, right = undisturbed
    federation = Federation(panel, tmp_path, ROUNDS, corrupt(kind))
    found = federation.run()
    np.testing.assert_array_equal(found.training.granger, right.training.granger)
    counts = federation.server.ledger.totals()["client2"]
    assert counts["refused"] + counts["repeated"] == 3


def test_mutated_answers_and_requests_never_change_the_result(panel, tmp_path, undisturbed):
    """Bit flips, cuts and swaps on both ways of the wire of a real run; 1500 of them."""
    rng = np.random.default_rng(0)
    _, right = undisturbed
    count = {"mutated": 0}
    earlier = [b""]

    def mutate(payload):
        if count["mutated"] >= 1500 or rng.random() < 0.03:
            return payload
        count["mutated"] += 1
        content = bytearray(payload)
        place = int(rng.integers(len(content)))
        choice = rng.integers(4)
        if choice == 0:
            content[place] ^= 1 << int(rng.integers(8))
        elif choice == 1:
            del content[place:]
        elif choice == 2:
            content[place:place] = rng.bytes(4)
        else:
            content = bytearray(earlier[int(rng.integers(len(earlier)))])
        earlier.append(payload)
        return bytes(content)

    def wrap(_, handle):
        return lambda payload: mutate(handle(mutate(payload)))

    federation = Federation(panel, tmp_path, ROUNDS, wrap, wait_seconds=1e9)
    found = federation.run()
    np.testing.assert_array_equal(found.training.granger, right.training.granger)
    assert count["mutated"] >= 1000


def test_a_party_refuses_what_is_not_for_it(panel, tmp_path):
    federation = Federation(panel, tmp_path, ROUNDS)
    federation.run()
    party = federation.parties["client1"]
    step = next(r for n, r, _ in federation.wire if n == "client1" and decode(r).kind == "step")

    def answer(packet):
        payload = encode(packet)
        found = decode(party.handle(payload))
        assert found.answers == digest(payload)
        return found.kind, found.values.get("code")

    packet = decode(step)
    assert answer(packet._replace(client="client2")) == ("refusal", "invalid")
    assert answer(packet._replace(run="other")) == ("refusal", "unknown")
    old = {**packet.values, "epoch": 0}
    assert answer(packet._replace(values=old)) == ("refusal", "stale")
    assert answer(packet) == ("refusal", "stale")  # round 0, long past
    last = max(party._followed.rounds)
    far = {**packet.values, "round": last + 2, "learn_piece": 0, "learn_pieces": 1}
    assert answer(packet._replace(values=far)) == ("refusal", "unavailable")
    wrong = {**packet.values, "round": last + 1, "learn_piece": 0, "learn_pieces": 1}
    gradients = {"gradients": np.ones((3, 3))}
    assert answer(packet._replace(values=wrong, arrays=gradients)) == ("refusal", "invalid")
    assert decode(party.handle(b"nonsense")).kind == "refusal"


def test_what_is_wrong_with_a_clients_data_stays_at_its_site(tmp_path):
    panel = fg.simulate(2, 60, seed=0)[0]
    federation = Federation(
        panel, tmp_path, formula_config(state_model="factor", solver="newton", state_dim=6)
    )
    with pytest.raises(RunStopped, match="client 'client1': it cannot take part; its own log says"):
        federation.run()
    assert any("factor" in line and "client1" in line for line in federation.log)


def test_server_and_clients_go_on_where_they_were(panel, tmp_path, undisturbed):
    """Kill everything in the middle; new processes on the same disks make the same result."""
    _, right = undisturbed

    class Killed(BaseException):
        pass

    count = {"calls": 0}

    def wrap(_, handle):
        def call(payload):
            count["calls"] += 1
            if count["calls"] == 23:
                raise Killed
            return handle(payload)

        return call

    with pytest.raises(Killed):
        Federation(panel, tmp_path, ROUNDS, wrap).run()
    second = Federation(panel, tmp_path, ROUNDS)
    found = second.run(second.coordinator("another"))
    np.testing.assert_array_equal(found.training.granger, right.training.granger)
    assert any(line.endswith("round 2") for line in second.log)
    assert found.training.trace.equals(right.training.trace)


def test_a_client_without_its_disk_makes_the_run_begin_again(panel, tmp_path):
    first = Federation(panel, tmp_path, ROUNDS)
    right = first.run()
    (tmp_path / "client2" / "party").unlink()
    second = Federation(panel, tmp_path, ROUNDS)
    found = second.run(second.coordinator("another"))
    np.testing.assert_array_equal(found.training.granger, right.training.granger)
    assert any(line.endswith("starting") for line in second.log)


def test_a_client_that_never_returns_stops_the_run_with_a_sentence(panel, tmp_path):
    federation = Federation(panel, tmp_path, ROUNDS, silent_after(5, "client3"), wait_seconds=60)
    with pytest.raises(RunStopped, match=r"no answer from 'client3' for 61 s; .* can be resumed"):
        drive(federation.coordinator(), Ticking(federation))
    assert any(line.startswith("waiting for 'client3' since 11 s; 49 s") for line in federation.log)


def test_or_the_run_finishes_without_it(panel, tmp_path):
    config = formula_config(solver="newton")
    federation = Federation(
        panel, tmp_path, config, silent_after(5, "client3"), wait_seconds=60, on_missing="drop"
    )
    server = federation.coordinator()
    found = drive(server, Ticking(federation))
    assert server.dropped == ("client3",)
    assert found.clients == ("client1", "client2")
    alone = Federation(panel.select(["client1", "client2"]), tmp_path / "two", config).run()
    np.testing.assert_array_equal(found.training.granger, alone.training.granger)


def test_another_refusal_does_not_end_the_pause_that_a_full_disk_needs(panel, tmp_path):
    refusals, pauses = {"client1": "disk", "client2": "invalid"}, []

    def wrap(name, handle):
        def call(payload):
            code = refusals.pop(name, "")
            return refuse(payload, "run", name, code, "not now") if code else handle(payload)

        return call

    Federation(panel, tmp_path, ROUNDS, wrap).run(pause=pauses.append)
    assert pauses == [PAUSE_SECONDS]


@pytest.mark.parametrize(
    "wrong",
    [
        *("invalid", "disk", "nonsense", "unknown", "unavailable"),
        lambda handle, _: lambda __: b"no message",
        lambda handle, earlier: lambda payload: handle(earlier.setdefault("payload", payload)),
    ],
)
def test_a_client_that_is_always_wrong_is_asked_again_only_after_a_pause(
    panel, tmp_path, wrong, monkeypatch
):
    """Else all logs fill up as fast as the network carries messages."""
    monkeypatch.setattr("fedgranger.federation.coordinator.LARGEST_RESTARTS", 9)

    def wrap(name, handle):
        if name != "client2":
            return handle
        if callable(wrong):
            return wrong(handle, {})
        return lambda payload: refuse(payload, "run", name, wrong, "not\x1b[2J that" * 1000)

    federation, pauses = Federation(panel, tmp_path, ROUNDS, wrap, wait_seconds=20), []

    def pause(seconds):
        pauses.append(seconds)
        federation.pass_time(seconds)

    with pytest.raises(RunStopped, match=r"no answer from 'client2'|keep losing"):
        federation.run(pause=pause)
    asked = sum(name == "client2" for name, *_ in federation.wire)
    assert 9 <= len(pauses) == asked - 1 <= 12 or callable(wrong)
    assert asked - 2 <= len(pauses) <= 12
    assert set(pauses) == {PAUSE_SECONDS}
    assert all(line.isprintable() and len(line) < 400 for line in federation.log)


def test_the_first_answers_are_checked_before_they_are_read(panel, tmp_path, monkeypatch):
    """`federation check`: a wrong client is named, the others are shown, nothing long is read."""
    answers = {"client1": lambda _: b"x" * 2**20, "client2": lambda _: b"no message"}
    federation = Federation(panel, tmp_path, ROUNDS, lambda name, handle: answers.get(name, handle))
    read = []
    monkeypatch.setattr(
        "fedgranger.federation.coordinator.decode",
        lambda payload: read.append(len(payload)) or decode(payload),
    )
    found = ask_first(federation.coordinator(), LoopbackEngine(federation.handlers()))
    assert found["client1"]["kind"] == found["client2"]["kind"] == "wrong"
    assert "it has 1048576 bytes, more than" in found["client1"]["sentence"]
    assert found["client2"]["sentence"].startswith("its answer is refused: ")
    assert max(read) < 2**20
    assert found["client3"]["kind"] == "range"
    assert found["client3"]["asked"] == 0.0


def test_first_answers_of_others_or_to_others_are_not_taken(panel, tmp_path):
    """Nor does a wrong one take the place of a right one, nor a refusal reach a terminal raw."""
    federation = Federation(panel, tmp_path, ROUNDS)
    handlers = federation.handlers()

    class Mixed(LoopbackEngine):
        def exchange(self, requests, timeout):
            right = dict(super().exchange(requests, timeout))
            other = encode(decode(right["client2"])._replace(answers="00"))
            said = refuse(requests["client3"], "run", "client3", "data", "\x1b[2J" + "x" * 10**4)
            yield from (("stranger", right["client1"]), ("client1", right["client1"]))
            yield from (("client1", b"no message"), ("client2", other), ("client3", said))

    found = ask_first(federation.coordinator(), Mixed(handlers))
    assert set(found) == {"client1", "client2", "client3"}
    assert found["client1"]["kind"] == "range"
    assert found["client2"]["sentence"] == "it answers something that it was not asked"
    assert found["client3"]["sentence"].isprintable()
    assert len(found["client3"]["sentence"]) <= LONGEST_SENTENCE


def test_clocks_must_agree(panel, tmp_path):
    stamps = np.datetime64("2026-01-01", "ns") + np.arange(301) * np.timedelta64(1, "s")
    federation = Federation(fg.Panel(panel.clients, stamps), tmp_path, ROUNDS)
    party = federation.parties["client2"]
    party._site = party._site._replace(clock=lambda: 100.0)
    with pytest.raises(fg.errors.DataError, match=r"client 'client2': its clock is \+100 s"):
        federation.run()
    federation = Federation(fg.Panel(panel.clients, stamps), tmp_path, ROUNDS, clock_seconds=0.0)
    party = federation.parties["client2"]
    party._site = party._site._replace(clock=lambda: 100.0)
    federation.run()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_rows_between_common_steps_are_told_to_the_server_and_at_the_site(panel, tmp_path):
    federation = Federation(panel, tmp_path, formula_config(solver="none"))
    for k, client in enumerate(panel):
        time = np.datetime64("2026-01-01", "ns") + np.arange(301) * np.timedelta64(30, "s")
        time = time[0] + (time - time[0]) // 3 if k == 0 else time
        federation.give(LocalSeries(client, time))
    told = "client 'client1': 200 of 301 time steps are not on the common time axis (2026-01-01T"
    remedy = "and are left out; 'federation start' with --resample 30s uses them all"
    note = federation.run().notes[0]
    assert note.startswith(told)
    assert note.endswith(remedy)
    assert f"run 'run': {note}" in federation.log


def test_two_servers_at_once_the_later_one_wins(panel, tmp_path):
    federation = Federation(panel, tmp_path, ROUNDS)
    older, handlers = federation.coordinator("one"), federation.handlers()
    for _ in range(4):
        for name, payload in older.requests().items():
            older.receive(name, handlers[name](payload))
    found = federation.run(federation.coordinator("two"))
    with pytest.raises(RunStopped, match="follows a newer start"):
        drive(older, LoopbackEngine(handlers))
    assert found.training.rounds > 3


def test_the_parties_are_told_the_edges(panel, tested):
    _, found, told = tested
    assert set(told) == set(panel.names)
    assert [list(row[:2]) for row in told["client1"]] == found.inference.edges[
        ["cause", "effect"]
    ].values.tolist()


def test_the_envelope_is_small(undisturbed):
    """Around 300 steps of two states it is below 10 % of the payload."""
    federation, _ = undisturbed
    sizes = [
        len(answer) for _, request, answer in federation.wire if decode(request).kind == "step"
    ]
    assert sizes[-1] < 1.1 * (300 * (2 * 8 + 1))


def test_a_record_of_an_older_version_is_not_used(panel, tmp_path):
    """Before protocol 4 the axis had a length instead of stretches: the run begins anew."""
    config = formula_config(solver="none")
    first = Federation(panel, tmp_path, config)
    right = first.run()
    for name in panel.names:
        store = Store(DiskFiles(tmp_path / name))
        values, arrays = store.load("party")
        assert arrays.pop("stretches").tolist() == [[0, 301]]
        values["grid"] = [*values["grid"], 301]
        store.save("party", values, arrays)
    found = Federation(panel, tmp_path, config).run()
    assert found.inference.edges.equals(right.inference.edges)
