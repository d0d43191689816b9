"""The site's policy decides: read with care, closed when in doubt, the same after a restart."""

import tomllib

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.client.params import known_models
from fedgranger.data.client_data import ClientData
from fedgranger.data.time_axis import LocalSeries
from fedgranger.errors import ConfigError, DataError, RunError
from fedgranger.federation.agreed_options import FederationOptions, Plan
from fedgranger.federation.policy import (
    UNLIMITED,
    PolicyError,
    SitePolicy,
    policy_text,
    read_policy,
)
from fedgranger.federation.protocol import RunStopped
from fedgranger.federation.questions import ALLOWED, WAITING, Questions, WaitingError
from fedgranger.federation.requests import read_edges
from fedgranger.federation.secret import draw_start, keyed_hash, read_secret
from fedgranger.federation.store import DiskFiles, Store
from tests.configs import formula_config
from tests.federation.attacker import NUM_STEPS, TRUTH, Attacker, options
from tests.federation.loopback_run import Federation

OPEN = SitePolicy(**UNLIMITED)


def write(path, text):
    path.write_text(text)
    return path


def test_the_default_text_is_the_default_policy(tmp_path):
    assert read_policy(write(tmp_path / "policy.toml", policy_text())) == SitePolicy()
    assert set(tomllib.loads(policy_text())) | {"first_time", "last_time"} == set(
        SitePolicy.__dataclass_fields__
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("round = 3", "unknown option 'round' (did you mean 'rounds'"),
        ("rounds = -1", "rounds is -1; it must be a whole number >= 0"),
        ("questions = 0", "questions is 0"),
        ('tests = ["asymptotic"]', "an entry of tests is 'asymptotic'"),
        ("smallest_sensors_per_state = 0.5", "smallest_sensors_per_state is 0.5"),
        ('first_time = "yesterday"', "first_time is 'yesterday'; write it like 2026-01-31"),
        ("first_time = 0001-01-01T00:00:00+01:00", "first_time is '0001-01-01T00:00:00+01:00'"),
        ("last_time = 2300-01-01", "the year must be within 1678 and 2261"),
        ("rounds = ", "not valid TOML"),
    ],
)
def test_a_policy_that_cannot_be_read_is_refused_in_a_sentence(tmp_path, text, sentence):
    with pytest.raises(ConfigError, match=r"policy\.toml: ") as error:
        read_policy(write(tmp_path / "policy.toml", text))
    assert sentence in str(error.value)


def test_no_policy_is_no_part(tmp_path):
    with pytest.raises(ConfigError, match="no policy; without it the client takes no part"):
        read_policy(tmp_path / "policy.toml")


@pytest.mark.parametrize(
    ("policy", "asked", "sentence"),
    [
        ({}, {"state_dim": 5}, "fewer than the 5 states"),
        ({"smallest_sensors_per_state": 4}, {"state_dim": 3}, "fewer than the 3 states"),
        ({"largest_state_dim": 1}, {"state_model": "paper"}, "fewer than the 2 states"),
        ({"smallest_sensors_per_state": 9}, {}, "lets no state out"),
        ({}, {"standardise": False}, "standardised states only"),
        ({"tests": ()}, {}, "does not allow the test 'debiased'"),
        ({}, {"solver": "newton"}, "allows no rounds of FedGC"),
        ({"largest_message_steps": 10}, {}, "10 time steps per message, not 50000"),
    ],
)
def test_what_asks_for_too_much_is_refused_before_anything_is_computed(policy, asked, sentence):
    server = Attacker(SitePolicy(**policy))
    server.party._client.prepare = None  # would fail
    answer = server.offer(options(**asked))
    assert answer.values["code"] == "policy"
    assert sentence in answer.values["sentence"]


def test_auto_stays_within_the_policy():
    server = Attacker(SitePolicy(largest_state_dim=1))
    server.offer(options())
    assert server.begin(1).arrays["error_cov"].shape == (1, 1)
    assert Attacker(SitePolicy()).policy.largest_for(8) == 4
    assert Attacker(SitePolicy()).policy.largest_for(5) == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"num_steps": 10**7},
        {"num_steps": NUM_STEPS + 2},
        {"num_steps": 1},
        {"cut": ((0, 10), (20, NUM_STEPS))},
        {"cut": ((0, NUM_STEPS), (10, 20))},
        {"cut": ((-5, NUM_STEPS),)},
        {"cut": ((0, 2**62), (-(2**62), NUM_STEPS))},
        {"cut": np.zeros((0, 2))},
        {"cut": ((0, 10, NUM_STEPS),)},
        {"first": "-1"},
        {"first": "1000"},
        {"interval": "1/1000"},
        {"interval": "2"},
        {"interval": "61"},
        {"interval": "3/2"},
        {"time_kind": "stamps"},
        {"epoch": 10**15},
        {"epoch": 20_000},
        {"epoch": -1},
        {"round": -1},
    ],
    ids=str,
)
def test_a_time_axis_that_is_not_the_clients_is_refused_before_memory_is_taken(changed):
    server = Attacker(OPEN)
    server.offer(options())
    server.party._client.prepare = None
    values = {"epoch": 1, **changed}
    assert server.begin(**values).values["code"] == "invalid"


@pytest.mark.parametrize("run", ["../x", "a/b", "", ".hidden", "a..b", "x" * 64, "a b", "ä"])
def test_run_names_that_could_leave_their_folder_are_refused_on_both_sides(run):
    with pytest.raises(ConfigError, match="run is"):
        Plan(run, ("a", "b"), FederationOptions(formula_config(solver="none")), "n")
    server = Attacker(OPEN)
    assert server.offer(options(), run).values["code"] == "invalid"


def test_pieces_that_do_not_exist_take_no_memory():
    server = Attacker(OPEN)
    server.offer(options(solver="newton", state_dim=2))
    server.begin(1)
    server.step(1, 0)
    values = {"epoch": 1, "round": 1, "want_piece": -1, "want_filtered": False}
    for piece, pieces in ((0, 2), (5, 10), (10**9, 10**10), (0, 0)):
        told = {"learn_piece": piece, "learn_pieces": pieces}
        for rows in (0, NUM_STEPS - 1):
            answer = server.ask("step", {**values, **told}, {"gradients": np.ones((rows, 2))})
            assert answer.values["code"] == "invalid"
    assert not server.party._rounds._pieces
    assert server.ask("upload", {"epoch": 1, "piece": -1}).values["code"] == "invalid"


@pytest.mark.parametrize(
    "text",
    ["{}x", '[["a"]]', '[["a", "b", "c", 1, true]]', '[["=1+1", "b", 0, 0, true]]',
     '[["a", "b", 1e999, 0, true]]', '[["a\\n", "b", 0, 0, true]]', "[" * 5000,
     '[[1, 2, 3, 4, true]]', '[["a", "b", true, 0, true]]', '[["a", "b", 0, 0, "yes"]]',
     '[["a", "b", 0, 0, []]]', '[["a", "b", 0, 0]]'],
)  # fmt: skip
def test_edges_are_checked_before_they_are_written(text):
    server = Attacker(OPEN)
    server.party._on_finish = None
    server.offer(options())
    server.begin(1)
    answer = server.ask("finish", {"epoch": 1, "edges": text})
    assert answer.values["code"] == "invalid"
    assert read_edges('[["a", "b.1", null, 2, null]]')[0][:2] == ("a", "b.1")


def questions(folder, policy, data="d"):
    return Questions(Store(DiskFiles(folder)), policy, data)


def test_questions_survive_restarts_and_count_per_data_set(tmp_path):
    policy = SitePolicy(questions=2)
    for name in ("a", "b", "a"):
        questions(tmp_path, policy).check("run", name, {}, 0.0)
        questions(tmp_path, policy).take("run", name, 0.0)
    with pytest.raises(PolicyError, match="answers 2 questions about the same data"):
        questions(tmp_path, policy).check("run", "c", {}, 0.0)
    questions(tmp_path, policy, "other data").check("run", "c", {}, 0.0)


@pytest.mark.parametrize("allowed", [1, 2])
def test_another_model_is_another_question_about_the_same_data(allowed):
    """Its states are other combinations of the same sensors, whoever chose them."""
    server = Attacker(SitePolicy(questions=allowed))
    server.offer(options())
    assert server.begin(1).kind == "hello"
    server.restart(known_models(TRUTH)["client1"])
    server.offer(options())
    answer = server.begin(2)
    if allowed == 2:
        assert answer.kind == "hello"
        assert answer.values["is_declared"]
    else:
        assert answer.kind == "refusal"
        assert "answers 1 question about the same data" in answer.values["sentence"]
    server.restart()
    server.offer(options())
    assert server.begin(3).kind == "hello", "the first question again"


def test_a_damaged_record_answers_nothing(tmp_path):
    questions(tmp_path, SitePolicy()).take("run", "a", 0.0)
    path = tmp_path / "questions"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    for act in (
        lambda record: record.check("run", "a", {}, 0.0),
        lambda record: record.take("run", "b", 0.0),
        lambda record: record.show(np.ones((1, 2))),
    ):
        with pytest.raises(PolicyError, match="is damaged, so it answers none"):
            act(questions(tmp_path, SitePolicy()))


def test_runs_per_day_are_counted_by_name(tmp_path):
    record = questions(tmp_path, SitePolicy(runs_per_day=2))
    for run, now in (("a", 0.0), ("b", 10.0), ("a", 20.0)):
        record.check(run, "q", {}, now)
        record.take(run, "q", now)
    with pytest.raises(PolicyError, match="2 runs within 24 hours"):
        record.check("c", "q", {}, 30.0)
    record.check("c", "q", {}, 86_401.0)


def test_nobody_learns_much_from_questions_that_fail():
    server = Attacker(SitePolicy(runs_per_day=3))

    def fail(*_):
        raise DataError("sensor 's1' is constant")

    server.party._client.prepare = fail
    codes = []
    for epoch in range(1, 8):
        server.offer(options())
        codes.append(server.begin(epoch, num_steps=NUM_STEPS - epoch).values["code"])
        server.restart()
        server.party._client.prepare = fail
    assert codes == ["data"] * 3 + ["policy"] * 4


def test_a_run_waits_for_the_sites_word_and_only_for_that_question(tmp_path):
    store = Store(DiskFiles(tmp_path))
    record = Questions(store, SitePolicy(ask=True), "d")
    told = {"options": "{}", "period": "0 to 9"}
    with pytest.raises(WaitingError):
        record.check("run", "q", told, 0.0)
    assert store.load(WAITING)[0]["runs"] == {"run": {"question": "q", **told}}
    store.save(ALLOWED, {"runs": {"run": "q"}}, {})
    record.check("run", "q", told, 0.0)
    for run, question in (("run", "other"), ("other", "q")):
        with pytest.raises(WaitingError):
            record.check(run, question, told, 0.0)


@pytest.fixture(scope="module")
def panel():
    return fg.simulate(3, 301, seed=0)[0]


def test_the_coordinator_waits_for_a_site_that_asks(panel, tmp_path):
    config = formula_config(solver="none")
    federation = Federation(panel, tmp_path, config, policy=SitePolicy(ask=True), wait_seconds=20)
    with pytest.raises(RunStopped, match=r"'client1' \(its site has not allowed the run yet\)"):
        federation.run(pause=federation.pass_time)
    for name in panel.names:
        store = Store(DiskFiles(tmp_path / name))
        asked = store.load(WAITING)[0]["runs"]["run"]["question"]
        store.save(ALLOWED, {"runs": {"run": asked}}, {})
    assert federation.run(federation.coordinator("again")).inference is not None


def test_a_limit_that_may_have_cut_the_states_is_said_at_the_site(panel, tmp_path):
    config = formula_config(solver="none")
    federation = Federation(panel, tmp_path, config, policy=SitePolicy(largest_state_dim=1))
    federation.run()
    assert any("allows 1 state for 8 sensors; without that limit" in s for s in federation.log)
    free = Federation(panel, tmp_path / "free", config, policy=SitePolicy())
    free.run()
    assert not any("without that limit" in sentence for sentence in free.log)


def test_a_policy_stops_the_run_with_the_clients_name(panel, tmp_path):
    federation = Federation(panel, tmp_path, formula_config(solver="newton"), policy=SitePolicy())
    with pytest.raises(
        RunStopped, match=r"client 'client\d': its policy allows no rounds of FedGC"
    ):
        federation.run()
    refused = [facts for _, event, facts in federation.audit if event == "refused"]
    assert refused[0]["code"] == "policy"
    assert refused[0]["request"] == "offer"


def test_rows_outside_the_policys_period_are_not_there(tmp_path):
    stamps = np.datetime64("2026-01-01", "ns") + np.arange(50) * np.timedelta64(1, "s")
    values = np.arange(100.0).reshape(50, 2)
    client = ClientData("a", ("x", "y"), values, np.ones(values.shape, bool))
    text = "first_time = 2026-01-01T00:00:10\nlast_time = 2026-01-01T00:00:19Z"
    cut = read_policy(write(tmp_path / "p", text)).within(LocalSeries(client, stamps))
    np.testing.assert_array_equal(cut.client.values, values[10:20])
    assert len(cut.time) == 10
    by_number = SitePolicy(first_time=45).within(LocalSeries(client, np.arange(50)))
    np.testing.assert_array_equal(by_number.client.values, values[45:])
    with pytest.raises(DataError, match="leave 0 of 50 rows"):
        SitePolicy(last_time=-1).within(LocalSeries(client, np.arange(50)))
    with pytest.raises(DataError, match="the time column holds time stamps"):
        SitePolicy(first_time=45).within(LocalSeries(client, stamps))


def test_the_secret_is_made_once_and_is_private(tmp_path):
    path = tmp_path / "secret"
    first = read_secret(path)
    assert len(first) == 32
    assert read_secret(path) == first != read_secret(tmp_path / "other")
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other", "secret"]
    path.write_bytes(b"short")
    with pytest.raises(RunError, match="is not 32 bytes long"):
        read_secret(path)


def test_hash_and_start_depend_on_secret_data_and_shape():
    arrays = np.arange(4.0), np.arange(4.0) + 1
    one = keyed_hash(b"a" * 32, *arrays)
    assert one == keyed_hash(b"a" * 32, *arrays)
    assert len({one, keyed_hash(b"b" * 32, *arrays), keyed_hash(b"a" * 32, *arrays[::-1])}) == 3
    starts = [
        draw_start(secret, data, shape)
        for secret, data, shape in (
            (b"a" * 32, "d", (2, 500)),
            (b"a" * 32, "e", (2, 500)),
            (b"b" * 32, "d", (2, 500)),
            (b"a" * 32, "d", (500, 2)),
        )
    ]
    np.testing.assert_array_equal(starts[0], draw_start(b"a" * 32, "d", (2, 500)))
    for other in starts[1:]:
        assert abs(np.corrcoef(starts[0].ravel(), other.ravel())[0, 1]) < 0.2
    assert starts[0].std() == pytest.approx(0.1, rel=0.1)


def test_the_audit_log_says_what_was_asked_for_whatever_the_server_wrote():
    lines = []
    server = Attacker(SitePolicy())
    server.party._audit = lambda event, **facts: lines.append((event, facts))
    padded = options(state_dim=2).to_text().replace("{", '{"state_dim": 1, ' + " " * 1000, 1)
    server.offer(padded)
    assert server.begin(1, first=20, num_steps=100).kind == "hello"
    assert server.begin(2, first=0).values["code"] == "policy"
    begun = [facts for _, facts in lines if facts["request"] == "begin"]
    assert [facts["period"] for facts in begun] == [
        "20 to 119, 100 steps of 1", "0 to 119, 120 steps of 1",
    ]  # fmt: skip
    assert {facts["options"] for facts in begun} == {options(state_dim=2).to_text()}


def test_a_record_may_be_longer_than_a_message(tmp_path):
    """FedGC's trace of many rounds; read as damaged it would forget the run."""
    store = Store(DiskFiles(tmp_path))
    trace = [[float(k), 1 / 3, 1 / 7] for k in range(60_000)]
    store.save("server", {"trace": trace}, {})
    assert len((tmp_path / "server").read_bytes()) > 2**20
    assert store.load("server")[0]["trace"] == trace


def test_every_answer_is_in_the_audit_log_before_it_leaves(panel, tmp_path):
    federation = Federation(panel, tmp_path, formula_config(solver="none"))
    federation.run()
    for name in panel.names:
        lines = [facts for who, _, facts in federation.audit if who == name]
        sent = [answer for who, _, answer in federation.wire if who == name]
        assert [facts["bytes"] for facts in lines] == [len(answer) for answer in sent]
        *before, last = [facts["request"] for facts in lines]
        assert "noise_share" in lines[1]["fields"], "those of 'hello'"
        kinds = [kind for kind in before if kind != "translate"]
        assert (kinds, last) == (["offer", "begin", "join", "upload"], "finish")

    def fail(*_, **__):
        raise OSError("full")

    server = Attacker(OPEN)
    server.offer(options())
    server.begin(1)
    server.party._audit = fail
    assert server.upload(1).values["code"] == "disk"


def test_data_that_changed_make_a_new_run_and_the_manifest_says_so(panel, tmp_path):
    config = formula_config(solver="none")
    first = Federation(panel, tmp_path, config).run()
    assert first.notes == []
    same = Federation(panel, tmp_path, config)
    assert same.run(same.coordinator("again")).data_hashes == first.data_hashes
    changed = fg.Panel(
        tuple(
            ClientData(c.name, c.sensors, c.values + (c.name == "client2"), c.observed)
            for c in panel
        ),
        panel.time,
    )
    second = Federation(changed, tmp_path, config)
    found = second.run(second.coordinator("third"))
    sentence = "client 'client2' has other data than when this run began; this is a new run"
    assert found.notes == [sentence]
    assert sentence in second.log
    assert found.data_hashes["client1"] == first.data_hashes["client1"]
    assert found.data_hashes["client2"] != first.data_hashes["client2"]


def test_versions_may_differ_and_the_result_says_so(panel, tmp_path, monkeypatch):
    monkeypatch.setattr("fedgranger.federation.answers.__version__", "9.9")
    found = Federation(panel, tmp_path, formula_config(solver="none")).run()
    assert "client 'client1' runs fedgranger 9.9, the server" in found.notes[0]


def test_an_answer_that_is_too_long_is_not_looked_into(panel, tmp_path):
    federation = Federation(panel, tmp_path, formula_config(solver="none"))
    server = federation.coordinator()
    server.receive("client1", b"FGM1" + bytes(10**6))
    assert server.ledger.refused["client1"] == 1
    assert "it has 1000004 bytes, more than 164096" in federation.log[-1]
