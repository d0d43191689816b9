"""Whatever a server asks, in any order, it gets the p states of one question and nothing more.

The server here is the attacker: it speaks to the party's state machine with valid messages only
and keeps everything. With seeds in the server's hands (as until protocol 1) twelve such requests
gave it the measurements of eight sensors to 1e-13; `test_an_open_site_is_reconstructed` shows that
the same questions still do so at a site that allows everything.
"""

import json
from fractions import Fraction

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.federation.agreed_options import ClientOptions
from fedgranger.federation.policy import UNLIMITED, SitePolicy
from tests.federation.attacker import CLIENT, NUM_STEPS, Attacker, options, prepare


def explained(held, where):
    """R² of all sensors together on what is held."""
    y = CLIENT.values[where]
    y = (y - y.mean(axis=0)) / y.std(axis=0)
    X = held - held.mean(axis=0)
    left = y - X @ np.linalg.lstsq(X, y, rcond=1e-12)[0]
    return 1 - (left**2).sum() / (y**2).sum()


def honest():
    """What an honest server holds after the default run."""
    server = Attacker(SitePolicy())
    server.offer(options())
    assert server.begin(1).kind == "hello"
    assert server.upload(1).kind == "states"
    return server.columns()


def check_no_more_than_honest(server):
    """One row of p numbers per time step, ever; no more of y in it than in the states."""
    for found in server.seen:
        assert len(found) <= 1
    held, where = server.columns()
    if not held.size:
        return 0
    p = held.shape[1]
    assert np.linalg.matrix_rank(held) <= p <= 4
    return len(where)


FIRST_QUESTIONS = [
    {},
    {"state_dim": 3},
    {"state_model": "ppca", "max_state_dim": 2},
    {"state_model": "svd", "state_dim": 1},
]


def draw_request(server, rng, epochs):
    """One random request, mostly such that an honest server could have sent it."""

    def pick(*values):
        return values[rng.integers(len(values))]

    run = pick(*[epochs["run"]] * 8, "run", "other", "third.1")
    epoch = epochs["now"] + pick(1, 1, 1, 1, 0, -1, 3)
    size = pick(50_000, 50_000, 17, 60)
    kind = pick("start", "start", "upload", "upload", "begin", "step", "train", "join", "restart")
    kind = pick(kind, kind, kind, "finish") if epochs["now"] else pick("start", "start", kind)
    if kind == "start":  # a whole new offer
        server.offer(
            options(
                size,
                state_model=pick("auto", "auto", "factor", "ppca", "svd", "paper"),
                state_dim=pick("auto", "auto", 1, 2, 3, 4, 8),
                max_state_dim=pick(1, 2, 4, 4, 9),
                standardise=bool(pick(True, True, True, False)),
                period=pick("auto", "auto", "auto", "none", "12", "5,9"),
                season=pick("harmonics", "harmonics", "profile"),
                solver=pick("none", "none", "none", "newton", "sgd"),
                augmentation_ridge=pick(1e-3, 1e-1),
                window=pick(1, 30),
            ),
            run,
        )
        kind = "begin"
    if kind == "begin":
        first = pick(0, 0, 0, 1, 7, "1/20")
        steps = NUM_STEPS - int(float(Fraction(str(first)))) - pick(0, 0, 0, 1, 30)
        answer = server.begin(epoch, first, steps, pick(0, 0, 0, 1), run)
        if answer.kind == "hello":
            epochs.update(now=epoch, run=run)
        kind = pick("upload", "upload", "nothing")
    if kind == "upload":
        for piece in range(pick(1, 3)):
            server.upload(epochs["now"], piece, run)
    elif kind == "step":
        gradients = rng.standard_normal((NUM_STEPS - 1, pick(1, 2, 3)))
        server.step(epochs["now"], pick(0, 1, 2), pick(None, gradients), pick(0, 0, 1), run)
    elif kind == "train":
        server.ask("train", {"epoch": epochs["now"]}, run=run)
    elif kind == "join":
        server.ask("join", {"epoch": epochs["now"], "total_dim": pick(2, 5, 200)}, run=run)
    elif kind == "finish":
        server.ask("finish", {"epoch": epochs["now"], "edges": "[]"}, run=run)
    elif kind == "restart":
        server.restart()


@pytest.mark.parametrize(
    "seeds", [range(50), pytest.param(range(50, 1000), marks=pytest.mark.slow)],  # 950 sequences
    ids=["first 50", "950 more"],
)  # fmt: skip
def test_random_sequences_give_one_row_of_states_per_time_step(seeds):
    answered = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        server, epochs = Attacker(SitePolicy()), {"now": 0, "run": "run"}
        for _ in range(12):
            draw_request(server, rng, epochs)
        answered += check_no_more_than_honest(server) > 0
    assert answered > 0.7 * len(seeds)  # the sequences do obtain something


@pytest.mark.parametrize("first", FIRST_QUESTIONS, ids=str)
def test_a_directed_search_obtains_nothing_beside_the_first_question(first):
    server, epoch = Attacker(SitePolicy()), 1
    server.offer(options(**first))
    assert server.begin(epoch).kind == "hello"
    assert server.upload(epoch).kind == "states"
    held, where = server.columns()
    before = explained(held, where)
    changes = [
        {**first, **more}
        for more in (
            *({"state_dim": p} for p in range(1, 9)),
            *({"state_model": name} for name in ("auto", "factor", "ppca", "svd", "paper")),
            *({"max_state_dim": p} for p in range(1, 10)),
            {"standardise": False},
            *({"period": steps} for steps in ("none", 2, 12, (5, 9))),
            {"period": 12, "season": "profile"},
            {"season": "profile"},
            {"solver": "newton"},
            {"solver": "sgd", "window": 10},
            {"message_steps": 7},
            {"period": 7},
            {"period": "none"},
            {"period": 7, "season": "profile"},
            {},
        )
    ]
    grids = [
        (0, NUM_STEPS),
        (0, NUM_STEPS - 1),
        (1, NUM_STEPS - 1),
        (0, 60),
        (60, 60),
        ("1/20", 100),
    ]
    for change in changes:
        for k, (start, steps) in enumerate(grids):
            epoch += 1
            run = ("run", f"run-{epoch}")[k % 2]
            server.offer(options(**change), run)
            server.begin(epoch, start, steps, run=run)
            for piece in range(3):
                server.upload(epoch, piece, run)
            server.step(epoch, 0, run=run)
            if k == 2:
                server.restart()
    assert {"policy", "stale", "unknown", "invalid"} <= set(server.codes)
    assert check_no_more_than_honest(server) == NUM_STEPS
    held, where = server.columns()
    assert np.linalg.matrix_rank(held) == held.shape[1]
    assert abs(explained(held, where) - before) < 1e-9
    assert before < 0.999


def test_parties_that_prepare_at_once_answer_one_question():
    """Two processes of one site: whoever is written down first has the question."""
    servers = [Attacker(SitePolicy()) for _ in range(3)]
    for server in servers[1:]:
        server.disk = servers[0].disk
        server.restart()

    def prepare_late(series, grid, told, *drawn):
        for k, other in enumerate(servers[1:], 1):  # the others begin and end meanwhile
            other.offer(options(state_dim=k))
            other.begin(1, num_steps=NUM_STEPS - k)
            other.upload(1)
        return prepare(series, grid, told, *drawn)

    servers[0].party._client.prepare = prepare_late
    servers[0].offer(options())
    assert servers[0].begin(1).values["code"] == "policy"
    servers[0].upload(1)
    got = [server.kinds.count("states") for server in servers]
    assert got == [0, 1, 0]


def test_without_rounds_a_server_cannot_find_the_number_of_sensors():
    """By what fails: the check of enough rows counts sensors, and is made only with rounds."""
    server = Attacker(SitePolicy())
    server.offer(options())
    server.begin(1)
    for total in (1, 50, NUM_STEPS - 8, NUM_STEPS, 10**6):
        assert server.ask("join", {"epoch": 1, "total_dim": total}).kind == "done"


def test_an_open_site_is_reconstructed():
    """The attack itself works: with other questions allowed, the same requests give all of y."""
    server = Attacker(SitePolicy(**{**UNLIMITED, "rounds": 0}))
    for epoch, p in enumerate((1, 2, 3, 4, 6, 8), 1):
        server.offer(options(state_dim=p))
        assert server.begin(epoch).kind == "hello"
        assert server.upload(epoch).kind == "states"
    held, where = server.columns()
    assert np.linalg.matrix_rank(held) == 8
    assert explained(held, where) > 1 - 1e-9
    assert explained(*honest()) < 0.999


def test_rounds_are_a_budget_over_restarts_and_other_gradients():
    """Two rounds are two θ, whatever the server does to begin again."""
    policy = SitePolicy(rounds=2)
    server = Attacker(policy)
    rng = np.random.default_rng(0)
    for epoch in range(1, 6):
        server.offer(options(solver="newton"))
        assert server.begin(epoch).kind == "hello"
        first = server.step(epoch, 0)
        assert first.kind == "message"  # θ⁰ was shown before: the same bits again
        p = first.arrays["augmented_states"].shape[1]
        for round_index in (1, 2):
            server.step(epoch, round_index, rng.standard_normal((NUM_STEPS - 1, p)))
        server.restart()
    assert len(server.thetas) == 2
    assert server.codes.count("policy") >= 8


def test_the_start_is_the_sites_own_and_the_same_after_a_restart():
    shown = []
    for secret in (b"a" * 32, b"a" * 32, b"b" * 32):
        server = Attacker(SitePolicy(rounds=1), secret)
        server.offer(options(solver="newton"))
        server.begin(1)
        shown.append(server.step(1, 0).arrays["augmented_states"].tobytes())
    assert shown[0] == shown[1] != shown[2]
    text = json.loads(options(solver="newton").to_text())
    assert not {"seed", "prior", "augmentation_prior_scale"} & set(text)
    for name, value in (("seed", 1), ("prior", "normal"), ("augmentation_prior_scale", 9.0)):
        with pytest.raises(fg.errors.ConfigError, match="not those that this client expects"):
            ClientOptions.from_text(json.dumps({**text, name: value}))
        answer = server.offer(json.dumps({**text, name: value}))
        assert (answer.kind, answer.values["code"]) == ("refusal", "invalid")
