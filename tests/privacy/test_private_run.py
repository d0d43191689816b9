"""Private runs: the same bits everywhere, noise on everything that depends on data, its cost."""

import math
import zlib
from dataclasses import replace

import numpy as np
import pytest

import fedgranger as fg
from fedgranger.config import RunConfig
from fedgranger.errors import ConfigError, InferenceWarning
from fedgranger.federation.codec import decode
from fedgranger.federation.outcome import to_result
from fedgranger.messages import CONTENTS
from fedgranger.privacy.accounting import epsilon_of
from fedgranger.privacy.release import SecretNoise
from fedgranger.rca.alarms import knowledge_of
from tests.federation.loopback_run import OPEN
from tests.federation.watched import give
from tests.privacy.private_parties import (
    MODELS,
    PANEL,
    answers,
    federation,
    private_config,
    with_event,
)

TIMES = {"time_kind", "first", "last", "interval", "clock", "version", "epoch", "stretches"}
"""Of the neighbouring relation: when a client measured is known."""
COUNTS = {"piece", "round", "rounds", "has_report"}
HASHED = {"data"}
"""Keyed with the site's secret."""
WITH_NOISE = {"states", "filtered_states", "augmented_states", "surprise", "clipped_share"}
FROM_NOISE = {"own_lags", "state_gain"}
"""Computed from what is sent with noise."""
DECLARED = {"error_cov", "added_cov", "self_transition", "is_declared", "noise_share", "periods"}
LEARNED = {"threshold"}
"""What is normal, which is listed as not covered; in this test the new data alone differ."""
PRESENCE = {"is_observed"}
UNUSED = {"change", "size"}
"""Of step-wise training, which a private run does not have: zero."""
NEVER = {"sensors", "rows"}
"""Which sensors show an edge; a private run answers with none, whatever the policy shares."""
UP = ("range", "hello", "model", "message", "states", "sensors", "news", "monitor", "done")


def test_every_field_that_leaves_a_client_is_accounted_for():
    """A new field must be a decision here: noise, computed from noise, declared, or known."""
    groups = (TIMES, COUNTS, HASHED, WITH_NOISE, FROM_NOISE, DECLARED, LEARNED, PRESENCE, UNUSED)
    known = NEVER.union(*groups)
    for kind in UP:
        assert {*CONTENTS[kind].values, *CONTENTS[kind].arrays} <= known, kind


def constant_noise(self, message, clean, _scale, of=None):
    """Instead of noise that hides the content: numbers that have nothing to do with it."""
    place = [zlib.crc32(message.partition(" ")[0].encode()), *clean.shape]
    return np.random.default_rng(place).standard_normal(clean.shape), "the same name"


@pytest.mark.parametrize("solver", ["none", "newton"])
def test_no_path_leads_around_the_noise(tmp_path, monkeypatch, solver):
    """With all noisy parts replaced by constants, nothing that leaves depends on the data."""
    monkeypatch.setattr(SecretNoise, "add", constant_noise)
    config = private_config(solver=solver, private_rounds=3)
    other = with_event(PANEL, "client1", slice(0, 300), 3 * PANEL["client2"].values)
    left = []
    for k, panel in enumerate((PANEL, other)):
        policy = replace(OPEN, share_sensors=True)
        found = federation(tmp_path / str(k), config, panel, policy=policy)
        found.run()
        left.append(answers(found))
    assert len(left[0]) == len(left[1]) > 8
    seen = set()
    for (name, kind, values, arrays), (_, _, values2, arrays2) in zip(*left, strict=True):
        for field, value in {**values, **arrays}.items():
            if field in HASHED:
                continue
            seen.add(field)
            np.testing.assert_array_equal(value, {**values2, **arrays2}[field], f"{kind} {name}")
    assert {"states", "error_cov", "own_lags"} <= seen
    assert solver == "none" or {"filtered_states", "augmented_states", "state_gain"} <= seen


def test_no_path_leads_around_the_noise_of_reports(tmp_path, monkeypatch):
    """Of a watch: new data that differ leave in the same numbers."""
    monkeypatch.setattr(SecretNoise, "add", constant_noise)
    new, _ = fg.simulate(3, 60, sensor_dims=5, state_dims=2, seed=12)
    new = replace(new, time=np.arange(300, 360))
    left = []
    for k, scale in enumerate((1.0, 7.0)):
        found = federation(tmp_path / str(k), private_config())
        outcome = found.run()
        result = to_result(found.server, outcome, "loopback", 0.0, ())
        give(found, with_event(new, "client2", slice(0, 60), scale * new["client2"].values))
        found.wire.clear()
        found.watch(knowledge_of(result))
        left.append([part for part in answers(found) if part[1] == "monitor"])
    assert len(left[0]) == len(left[1]) > 0
    for (*_, arrays), (*_, others) in zip(*left, strict=True):
        for field in arrays:
            np.testing.assert_array_equal(arrays[field], others[field], field)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("solver", ["none", "newton"])
def test_one_process_and_separate_parties_find_the_same_bits(tmp_path, solver):
    config = private_config(solver=solver, private_rounds=3, epsilon=2000.0)
    alone = fg.fit(PANEL, config, models=MODELS)
    found = federation(tmp_path, config).run()
    assert found.inference.edges.equals(alone.inference.edges)
    assert found.privacy == alone.manifest["privacy"]
    if solver == "newton":
        np.testing.assert_array_equal(found.training.granger, alone.granger)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 3.0},
        {"epsilon": 3.0, "neighbours": "window", "neighbour_steps": 7},
        {"epsilon": 0.5, "neighbours": "record", "delta": 1e-7},
        {"epsilon": 30.0, "solver": "newton", "private_rounds": 4},
    ],
    ids=str,
)
def test_the_cost_is_what_was_asked_for(options):
    facts = fg.fit(PANEL, private_config(**options), models=MODELS).manifest["privacy"]
    assert facts["delta"] == options.get("delta", 1e-5)
    for client in facts["clients"].values():
        # gradients are used one time less than there are rounds, so a little may be left
        assert 0.9 * options["epsilon"] < client["epsilon"] <= options["epsilon"] * (1 + 1e-6)
        total = sum(part["times"] * part["size"] ** 2 for part in client["messages"])
        assert client["epsilon"] == pytest.approx(epsilon_of(math.sqrt(total), facts["delta"]))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_noise_of_a_given_size_has_its_price():
    """ε from σ: twice the noise is half the size μ."""
    once, twice = (
        fg.fit(PANEL, private_config(added_noise=x), models=MODELS).manifest["privacy"]
        for x in (0.5, 1.0)
    )
    for name in PANEL.names:
        sizes = [facts["clients"][name]["messages"][0]["size"] for facts in (once, twice)]
        assert sizes[0] == pytest.approx(2 * sizes[1])
        assert once["clients"][name]["added_noise"] == pytest.approx(0.5)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_noise_is_what_the_server_is_told(tmp_path):
    """Covariance of (sent − clean) against N, which the server takes out: within 5 s.e."""
    config = private_config(added_noise=0.7, clip=50.0)
    noisy, clean = (
        federation(tmp_path / "a", config),
        federation(tmp_path / "b", replace(config, privacy="none")),
    )
    noisy.run()
    clean.run()
    states = {}
    for found in (noisy, clean):
        for name, kind, _, arrays in answers(found):
            states.setdefault((name, kind), []).append(arrays)
    for name in PANEL.names:
        with_noise, without = (part["states"] for part in states[name, "states"])
        N = states[name, "hello"][0]["added_cov"]
        root = np.linalg.cholesky(np.linalg.inv(N))
        z = (with_noise - without) @ root
        np.testing.assert_allclose(z.T @ z / len(z), np.eye(2), atol=5 * math.sqrt(2 / len(z)))
        lagged = z[1:].T @ z[:-1] / len(z)
        assert np.abs(lagged).max() < 5 / math.sqrt(len(z))


def test_many_clipped_states_are_a_warning():
    with pytest.warns(InferenceWarning) as caught:
        result = fg.fit(PANEL, private_config(clip=0.5, epsilon=5e3), models=MODELS)
    assert any("longer than the clipping bound" in str(one.message) for one in caught)
    share = result.manifest["privacy"]["clients"]["client1"]["clipped_share"]
    assert 0.5 < share <= 1


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_is_not_covered_is_listed():
    covered = fg.fit(PANEL, private_config(), models=MODELS).manifest["privacy"]["clients"]
    default = fg.fit(PANEL, private_config(period="auto")).manifest["privacy"]["clients"]
    for name in PANEL.names:
        lines = default[name]["not_covered"]
        assert any("identified from the same data" in line for line in lines)
        assert any("repeats" in line for line in lines)
        assert set(covered[name]["not_covered"]) < set(lines)
        assert not any("identified" in line for line in covered[name]["not_covered"])


@pytest.mark.parametrize(
    "options",
    [
        {"privacy": "to-server", "solver": "sgd"},
        {"privacy": "to-clients", "window": 5},
        {"privacy": "to-server", "solver": "newton", "uncertainty": "joint"},
        {"privacy": "to-server", "test": "asymptotic"},
        {"privacy": "to-server", "epsilon": 0.0},
        {"privacy": "to-server", "delta": 1.0},
        {"privacy": "to-servers"},
    ],
    ids=str,
)
def test_options_that_cannot_be_private_are_refused(options):
    with pytest.raises(ConfigError):
        RunConfig(**options)


def test_a_trusted_server_keeps_the_edges_to_itself(tmp_path):
    """To clients: gradients carry noise, and no edge is sent."""
    config = private_config(privacy="to-clients", solver="newton", private_rounds=3, epsilon=50.0)
    found = federation(tmp_path, config)
    outcome = found.run()
    assert outcome.inference is not None
    sent = [payload for _, payload, _ in found.wire]
    finished = [p for p in map(decode, sent) if p.kind == "finish"]
    assert {p.values["edges"] for p in finished} == {"[]"}
    facts = outcome.privacy["clients"]["client1"]
    assert [part["message"] for part in facts["messages"]] == ["gradients"]
    assert any("alarms" in line for line in facts["not_covered"])
    steps = [p for p in map(decode, sent) if p.kind == "step" and len(p.arrays["gradients"])]
    plain = federation(tmp_path / "plain", replace(config, privacy="none"))
    plain.run()
    exact = [p for p in map(decode, (w[1] for w in plain.wire)) if p.kind == "step"]
    exact = [p for p in exact if len(p.arrays["gradients"])]
    first = next(p for p in exact if p.client == steps[0].client)
    difference = steps[0].arrays["gradients"] - first.arrays["gradients"]
    assert np.abs(difference).max() > 1.0
