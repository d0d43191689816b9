"""A site's ledger and budget: charged before anything leaves, once, and never beyond the policy."""

import math
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from fedgranger.data.time_axis import LocalSeries
from fedgranger.errors import ConfigError
from fedgranger.federation.codec import Packet, decode, encode
from fedgranger.federation.party import Party
from fedgranger.federation.policy import PolicyError, SitePolicy, read_policy
from fedgranger.federation.preparation import prepare_party
from fedgranger.federation.protocol import RunStopped
from fedgranger.federation.questions import Site
from fedgranger.federation.release_ledger import BudgetError, Period, ReleaseLedger, spent
from fedgranger.federation.store import DiskFiles, Store
from fedgranger.privacy.accounting import epsilon_of, mu_of
from fedgranger.privacy.release import Release
from tests.federation.attacker import Memory
from tests.federation.loopback_run import OPEN
from tests.privacy.charging import DAY, release
from tests.privacy.private_parties import MODELS, PANEL, answers, federation, private_config


def ledger(disk=None, **policy):
    return ReleaseLedger(Store(disk or Memory()), replace(OPEN, **policy))


def test_the_same_content_is_charged_once():
    found = ledger(epsilon=epsilon_of(1.0, 1e-5) + 1e-9)
    for _ in range(3):
        found.charge("run", [release()], DAY, 0.0)
    assert len(found.entries()) == 1
    with pytest.raises(BudgetError, match="privacy budget"):
        found.charge("run", [release("b", 0.1)], DAY, 0.0)
    assert len(found.entries()) == 1


def test_releases_about_other_time_do_not_add_up():
    found = ledger(epsilon=epsilon_of(1.5, 1e-5))
    found.charge("run", [release()], DAY, 0.0)
    later = Period(Fraction(100), Fraction(199), Fraction(1))
    found.charge("run", [release("b")], later, 0.0)
    touching = Period(Fraction(199), Fraction(250), Fraction(1))
    found.charge("run", [release("c")], touching, 0.0)
    assert spent(found.entries(), 1e-5) == pytest.approx(epsilon_of(math.sqrt(2), 1e-5))
    with pytest.raises(BudgetError):
        found.charge("run", [release("d", 1.2)], DAY, 0.0)


@pytest.mark.parametrize(("gap", "touches"), [(1, True), (4, True), (5, False)])
def test_windows_of_neighbours_may_reach_over_a_gap(gap, touches):
    """Five consecutive steps: with less than five steps' distance both releases may move."""
    policy = {"neighbours": "window", "neighbour_steps": 5}
    found = ledger(**policy)
    found.charge("run", [release()], DAY, 0.0)
    later = Period(Fraction(99 + gap), Fraction(150), Fraction(1))
    found.charge("run", [release("b")], later, 0.0)
    size = math.sqrt(5) * (math.sqrt(2) if touches else 1.0)
    assert spent(found.entries(), 1e-5) == pytest.approx(epsilon_of(size, 1e-5))


def test_of_whole_records_every_release_counts():
    found = ledger(neighbours="record")
    found.charge("run", [Release("states", "a", lambda _: 1.0)], DAY, 0.0)
    later = Period(Fraction(10**6), Fraction(10**7), Fraction(1))
    found.charge("run", [Release("states", "b", lambda _: 1.0)], later, 0.0)
    assert spent(found.entries(), 1e-5) == pytest.approx(epsilon_of(math.sqrt(2), 1e-5))


def test_a_damaged_ledger_allows_nothing():
    disk = Memory()
    found = ledger(disk)
    found.charge("run", [release()], DAY, 0.0)
    disk.files["releases"] = disk.files["releases"][:-3]
    with pytest.raises(PolicyError, match="damaged"):
        found.charge("run", [release("b")], DAY, 0.0)


def test_a_changed_relation_is_refused_while_a_budget_holds():
    disk = Memory()
    ledger(disk).charge("run", [release()], DAY, 0.0)
    other = ledger(disk, neighbours="window", neighbour_steps=3, epsilon=100.0)
    with pytest.raises(PolicyError, match="neighbours have changed"):
        other.charge("run", [release("b")], DAY, 0.0)
    ledger(disk, neighbours="window", neighbour_steps=3).charge("run", [release("b")], DAY, 0.0)


def test_processes_at_the_same_site_cannot_spend_the_same_budget(tmp_path):
    """A server that starts three runs at once: two of them are refused."""
    limit = str(epsilon_of(1.2, 1e-5))
    command = [sys.executable, "-m", "tests.privacy.charging", str(tmp_path), limit]
    done = subprocess.run([*command, *"012"], stdout=subprocess.PIPE, text=True, check=True)
    assert sorted(done.stdout.split()) == ["charged", "refused", "refused"]


def test_a_run_that_asks_for_more_than_the_budget_is_refused(tmp_path):
    policy = replace(OPEN, epsilon=5.0)
    greedy = federation(tmp_path / "a", private_config(epsilon=8.0), policy=policy)
    with pytest.raises(RunStopped, match=r"privacy budget \(epsilon = 5 at delta = 1e-05\) would"):
        greedy.run()
    assert not any(kind in ("hello", "states") for _, kind, *_ in answers(greedy))
    plain = private_config(privacy="none")
    with pytest.raises(RunStopped, match="with noise only"):
        federation(tmp_path / "b", plain, policy=policy).run()
    modest = federation(tmp_path / "c", private_config(epsilon=4.0), policy=policy)
    modest.run()
    again = federation(tmp_path / "c", private_config(epsilon=4.0), policy=policy)
    again.run()  # the same bits, no further cost
    with pytest.raises(RunStopped, match="privacy budget"):
        federation(tmp_path / "c", private_config(epsilon=3.9), policy=policy).run()


def test_the_sites_own_relation_decides(tmp_path):
    """A run that hides single events spends more of a budget for windows."""
    policy = replace(OPEN, epsilon=5.0, neighbours="window", neighbour_steps=9)
    with pytest.raises(RunStopped, match="privacy budget"):
        federation(tmp_path / "a", private_config(epsilon=4.9), policy=policy).run()
    nine = math.sqrt(0.99 * 9 + 0.01 * 81)  # states move by √9, the count of clipped ones by 9
    small = epsilon_of(mu_of(4.9, 1e-5) / nine, 1e-5)
    federation(tmp_path / "b", private_config(epsilon=small), policy=policy).run()


def test_a_site_may_let_out_only_what_is_covered(tmp_path):
    policy = replace(OPEN, covered_only=True)
    federation(tmp_path / "a", private_config(), policy=policy).run()
    for k, (options, models) in enumerate((({}, {}), ({"period": 24}, MODELS))):
        found = federation(
            tmp_path / str(k), private_config(**options), models=models, policy=policy
        )
        with pytest.raises(RunStopped, match="only what its privacy budget covers"):
            found.run()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_budget_that_ends_in_training_keeps_what_there_is(tmp_path):
    """Edges are still tested, and the estimate of the rounds before stays."""
    config = private_config(solver="newton", epsilon=3000.0, private_rounds=6)
    terms = config.client_terms
    sizes = terms.sizes(2, PANEL.num_steps, has_tests=True, has_rounds=True)
    limit = epsilon_of(sizes.total(3), terms.delta)
    found = federation(tmp_path, config, policy=replace(OPEN, epsilon=limit))
    outcome = found.run()
    assert outcome.inference is not None
    assert outcome.training.granger is not None
    assert "privacy budget" in outcome.training.note
    rounds = {values["round"] for _, kind, values, _ in answers(found) if kind == "message"}
    assert rounds == {0, 1, 2}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_client_refuses_more_rounds_than_were_agreed(tmp_path):
    """An altered server that goes on asking gets nothing more, whatever the policy."""
    config = private_config(solver="newton", epsilon=3000.0, private_rounds=2)
    found = federation(tmp_path, config)
    found.run()
    party = found.parties["client1"]
    values = {"epoch": 1, "round": 2, "learn_piece": 0, "learn_pieces": 1, "want_piece": 0}
    gradients = {"gradients": np.ones((PANEL.num_steps - 1, 2))}
    asked = Packet("step", "run", "client1", {**values, "want_filtered": False}, gradients)
    answer = decode(party.handle(encode(asked)))
    assert (answer.kind, answer.values["code"]) == ("refusal", "budget")
    assert "shared among 2 rounds" in answer.values["sentence"]


def test_what_leaves_without_noise_is_in_the_ledger_too(tmp_path):
    """So that a budget set later knows of it."""
    plain = private_config(privacy="none")
    federation(tmp_path, plain).run()
    entries = ReleaseLedger(Store(DiskFiles(tmp_path / "client1")), OPEN).entries()
    assert [entry.size for entry in entries] == [math.inf]
    later = federation(tmp_path, private_config(), policy=replace(OPEN, epsilon=1e6))
    with pytest.raises(RunStopped, match="privacy budget"):
        later.run()


def test_noise_is_drawn_from_the_sites_own_secret(tmp_path):
    """In a deployment the seed of the run, which the server knows, says nothing of the noise."""
    left = []
    for k, secret in enumerate((b"a" * 32, b"a" * 32, b"b" * 32)):
        found = federation(tmp_path / str(k), private_config())
        for client in PANEL:
            name = client.name
            store = Store(DiskFiles(tmp_path / str(k) / name))
            site = Site(store, OPEN, secret, lambda: 0.0)
            series = LocalSeries(client, PANEL.time, model=MODELS[name])
            found.parties[name] = Party(series, site, prepare_party)
        found.run()
        left.append([arrays["states"] for _, kind, _, arrays in answers(found) if kind == "states"])
    for one, two, three in zip(*left, strict=True):
        np.testing.assert_array_equal(one, two)
        assert (one != three).all()


@pytest.mark.parametrize(
    "line",
    ["epsilon = 0", "epsilon = -1", "delta = 2.0", 'neighbours = "week"', "neighbour_steps = 0"],
)  # fmt: skip
def test_a_wrong_policy_is_one_sentence(tmp_path, line):
    (tmp_path / "policy.toml").write_text(line)
    with pytest.raises(ConfigError, match=line.split()[0]):
        read_policy(tmp_path / "policy.toml")


def test_the_default_policy_has_no_budget():
    assert SitePolicy().epsilon == math.inf
    assert SitePolicy().near.kind == "event"
