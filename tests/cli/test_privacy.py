"""`fedgranger privacy`: what a run or a site has released, and what a run would cost and find."""

import json
import math
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app
from fedgranger.client.identify import identify
from fedgranger.config import PrivacyOptions
from fedgranger.federation.policy import SitePolicy, policy_text
from fedgranger.federation.release_ledger import ReleaseLedger
from fedgranger.federation.store import DiskFiles, Store
from fedgranger.flare.settings import state_folder
from fedgranger.privacy.accounting import epsilon_of
from fedgranger.runtime.privacy_plan import make_plan, read_system
from tests.configs import formula_config
from tests.privacy.charging import DAY, release


def run(*words):
    return CliRunner().invoke(app, ["privacy", *map(str, words)])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A private run, and one without noise."""
    base = tmp_path_factory.mktemp("runs")
    panel, _ = fg.simulate(3, 400, sensor_dims=5, state_dims=2, seed=3)
    for name, options in (("private", {"privacy": "to-server", "epsilon": 200.0}), ("plain", {})):
        config = formula_config(solver="none", state_dim=2, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            fg.fit(panel, config).save(base / name)
    return base


def test_a_private_run_says_what_it_cost(folders):
    shown = run(folders / "private")
    assert shown.exit_code == 0
    assert "ε = 200 at δ = 1e-05: two records that differ" in shown.output
    assert "not covered by ε:" in shown.output
    assert "identified from the same data" in shown.output
    facts = json.loads(run(folders / "private", "--json").output)
    assert facts["epsilon"] == pytest.approx(200.0)
    for name in facts["clients"]:
        assert f"{name}  states" in shown.output


def test_a_plain_run_says_that_it_has_no_noise(folders):
    assert "no noise was added" in run(folders / "plain").output
    assert json.loads(run(folders / "plain", "--json").output) is None


def test_the_page_of_a_private_run_has_it_too(folders):
    assert CliRunner().invoke(app, ["report", str(folders / "private")]).exit_code == 0
    page = (folders / "private" / "report.html").read_text()
    assert "Noise was added against the server" in page
    assert "No noise was added" not in page


def test_a_site_sees_its_own_ledger(tmp_path):
    (tmp_path / "policy.toml").write_text(policy_text().replace("epsilon = inf", "epsilon = 20"))
    ledger = ReleaseLedger(Store(DiskFiles(state_folder(tmp_path))), SitePolicy(epsilon=20.0))
    ledger.charge("week", [release(size=1.0)], DAY, 1.7e9)
    ledger.charge("month", [release("b", size=0.5)], DAY, 1.8e9)
    shown = run(tmp_path)
    assert shown.exit_code == 0, shown.output
    cost = epsilon_of(math.sqrt(1.25), 1e-5)
    assert f"ε = {cost:.3g} (of at most 20)" in shown.output
    assert "week" in shown.output
    assert "2023-11-14 22:13" in shown.output
    facts = json.loads(run(tmp_path, "--json").output)
    assert [entry["size"] for entry in facts["releases"]] == [1.0, 0.5]


def test_a_site_without_limit_or_noise_is_json_too(tmp_path):
    (tmp_path / "policy.toml").write_text(policy_text())
    ledger = ReleaseLedger(Store(DiskFiles(state_folder(tmp_path))), SitePolicy())
    ledger.charge("week", [release(size=float("inf"))], DAY, 0.0)
    facts = json.loads(run(tmp_path, "--json").output)
    assert facts["epsilon"] is None
    assert facts["budget"] is None
    assert "no limit" in run(tmp_path).output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "no such run folder"),
        (["plan", "--epsilons", "1,x"], "give numbers above 0"),
        (["plan", "--epsilons", "0"], "give numbers above 0"),
        (["plan", "--privacy", "to-clients"], "a plan is for privacy='to-server'"),
        (["plan", "--delta", "2"], "delta is 2"),
    ],
)
def test_wrong_words_are_one_sentence(words, sentence):
    done = run(*words)
    assert done.exit_code == 2
    assert sentence in done.stderr


@pytest.fixture(scope="module")
def system():
    return read_system(None, 2, 3, 4000)


@pytest.mark.slow  # many runs, 8 s; the plan's formula has tests of its own
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_plan_vs_a_run(system):
    """The strength that is found with 80 %, against what the run itself says at that noise."""
    panel, _ = fg.simulate(3, 20_000, state_dims=2, seed=0)
    models = {one.name: identify(one, panel.segment_starts, state_dim=2) for one in panel}
    for noise, seeds in ((0.3, 1), (1.0, 3)):  # at 1.0 one run by itself is up to 15 % off
        options = PrivacyOptions(privacy="to-server", added_noise=noise)
        planned = make_plan(system._replace(num_steps=20_000), options, [1.0], 0.5)[0]
        assert planned.noise == pytest.approx(noise)
        medians = []
        for seed in range(seeds):
            config = formula_config(
                solver="none",
                state_dim=2,
                privacy="to-server",
                added_noise=noise,
                correction="none",
                seed=seed,
            )
            facts = fg.fit(panel, config, models=models).manifest["inference"]
            medians.append(np.median(list(facts["detectable_strength"].values())))
        assert planned.detectable == pytest.approx(np.mean(medians), rel=0.12)


def test_a_plan_has_its_limits(system):
    """Less noise finds more, four times the steps half the strength, no noise the most."""
    options = PrivacyOptions(privacy="to-server")
    rows = make_plan(system, options, [2.0, 8.0, 32.0], 0.5)
    assert [row.epsilon for row in rows] == [2.0, 8.0, 32.0, None]
    sizes = [row.detectable for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert rows[-1].noise == 0.0
    longer = make_plan(system._replace(num_steps=16_000), options, [8.0], 0.5)[0]
    assert longer.detectable == pytest.approx(rows[1].detectable / 2, rel=0.01)
    assert longer.steps_needed == pytest.approx(rows[1].steps_needed, rel=0.02)
    assert all(0 <= row.power <= 1 for row in rows)


def test_the_plan_is_shown():
    shown = run("plan", "--clients", "2", "--states", "1", "--steps", "1000", "--epsilons", "4,64")
    assert shown.exit_code == 0
    assert "2 simulated clients with 1 state, 1000 time steps" in shown.output
    assert "chance to find 0.5" in shown.output
    rows = json.loads(
        run("plan", "--clients", "2", "--states", "1", "--epsilons", "4", "--json").output
    )
    assert [row["epsilon"] for row in rows] == [4.0, None]
