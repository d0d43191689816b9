"""Numbers of the reproduced figures: equal to direct calls, kept, and listed in the tables."""

import jax
import numpy as np
import pandas as pd
import pytest

import fedgranger as fg
from fedgranger.client.params import known_models
from fedgranger.runtime.inprocess import train
from fedgranger.runtime.propagation import propagate
from fedgranger.runtime.setup import set_up
from fedgranger_research.reproduction import quantiles, scalability
from fedgranger_research.reproduction.catalogue import FIGURES, TABLES
from fedgranger_research.reproduction.levels import ends, firsts, number, select, settling, share
from fedgranger_research.reproduction.limits import row_limits
from fedgranger_research.reproduction.regimes import SWEEPS, Regime, prepare_regime, sweep
from fedgranger_research.reproduction.resampling import block_resample
from fedgranger_research.reproduction.runner import reproduce
from fedgranger_research.reproduction.system import mean_panel, paired_system
from tests.configs import formula_config


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduced")


@pytest.fixture(scope="module")
def figure(folder):
    return reproduce(FIGURES["aleatoric"], folder, quick=True)


def curve(table, quantity="granger_cov", client="client2", cause="client1", value=1e-3):
    return select(table, quantity, client, cause, value=value).reset_index(drop=True)


def test_system_is_the_paper_s():
    truth = paired_system(2, 8, 0.1)
    assert not truth.block("client1", "client2").any()
    assert truth.block("client2", "client1").any()
    assert paired_system(5, 3, 0.1).edges == (("client1", "client2"), ("client3", "client4"))


def test_mean_panel_is_what_the_states_would_show():
    """Silent sensors: the measurements lie in the range of C."""
    truth = paired_system(2, 8, 0.1)
    panel, _ = mean_panel(truth, 50)
    C = truth.observation_matrices["client1"]
    y = panel["client1"].values
    outside = y - y @ np.linalg.pinv(C).T @ C.T
    assert np.abs(outside).max() < 1e-8


@pytest.mark.slow  # compiles for shapes of its own
def test_aleatoric_figure_vs_propagate(figure):
    regime = sweep("noise_var", quick=True)[0]
    setup, config, noise, truth = prepare_regime(regime)
    direct = propagate(setup, config, noise, num_checkpoints=regime.num_checkpoints)
    for quantity, cause in (("granger_cov", "client1"), ("augmentation_cov", "")):
        expected = direct.trace(quantity, "client2", cause)
        found = curve(figure, quantity, cause=cause)
        for column in ("round", "total", "prior", "data"):
            np.testing.assert_array_equal(found[column], expected[column])
    mean = direct.means["client2"][1]
    error = np.linalg.norm(mean - truth.block("client2", "client1"))
    assert curve(figure, "granger_error")["total"].iloc[-1] == error
    np.testing.assert_array_equal(direct.granger_paths["client2"][-1], mean)


def test_csv_is_the_table(figure, folder):
    kept = pd.read_csv(folder / "aleatoric.csv", keep_default_na=False, dtype=str)
    assert list(kept.columns) == list(figure.columns)
    np.testing.assert_array_equal(kept["total"].astype(float), figure["total"])


def test_prior_share_falls_with_training(figure):
    for value in (1e-3, 1.0):
        table = curve(figure, value=value)
        assert (np.diff(table["prior"]) < 0).all()
        assert table["prior"].iloc[0] == pytest.approx(4e-2)
        assert table["prior"].iloc[-1] < 0.5 * table["prior"].iloc[0]


def test_starting_traces_are_the_priors():
    regime = Regime(num_rounds=201, num_checkpoints=8, granger_prior_var=1.0)
    table = regime.run()
    first = table[(table["round"] == 0) & (table["client"] == "client2")]
    traces = dict(zip(first["quantity"], first["total"], strict=True))
    assert traces["granger_cov"] == pytest.approx(4 * 1.0)
    assert traces["augmentation_cov"] == pytest.approx(16 * 1e-2)


def test_limit_vs_training_to_convergence():
    truth = paired_system(2, 3, 0.5)
    panel, _ = fg.simulate(num_steps=200, seed=3, system=truth)
    config = formula_config(window="full", tolerance=1e-9, passes=20_000, augmentation_ridge=1.0)
    with jax.enable_x64(True):
        setup = set_up(panel, config, known_models(truth))
        *_, (last, _) = train(setup, config)
        limits = row_limits(setup, config, {name: np.zeros(3) for name in setup.names})
    found = np.asarray(last.state.server.granger_row)
    np.testing.assert_allclose(limits["client2"].granger, found[1][:, :2], atol=1e-7)
    np.testing.assert_allclose(limits["client1"].granger, found[0][:, 2:], atol=1e-7)


def test_block_resample_keeps_clients_together():
    panel, _ = fg.simulate(2, 100, seed=1)
    resampled = block_resample(panel, 20, np.random.default_rng(0))
    where = [
        int(np.flatnonzero((panel["client1"].values == row).all(axis=1))[0])
        for row in resampled["client1"].values
    ]
    np.testing.assert_array_equal(resampled["client2"].values, panel["client2"].values[where])
    jumps = np.flatnonzero(np.diff(where) != 1) + 1
    assert set(jumps) <= {20, 40, 60, 80}
    assert list(np.flatnonzero(resampled.segment_starts)) == [0, 20, 40, 60, 80]


def cells(text, label):
    """The cells of a row of a markdown table."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {label} |")]
    return line.split(" | ")[1:]


def test_table_lists_the_computed_numbers(figure):
    curves = select(figure, "granger_cov", "client2", "client1")
    first, last, prior = firsts(curves), ends(curves), ends(curves, "prior")
    found = cells(FIGURES["aleatoric"].markdown(figure), "tr Σ_A21")
    for value, cell in zip(last, found, strict=True):
        left = share(prior[value] / last[value])
        assert cell.startswith(f"{number(first[value])} → {number(last[value])}, {left} prior")
    doubled = FIGURES["aleatoric"].markdown(figure.assign(total=2 * figure["total"]))
    assert f" → {number(2 * last[1.0])}, " in cells(doubled, "tr Σ_A21")[1]


SWEPT = ["epistemic", "cross-covariances", "communicated", "l2-error"]


@pytest.mark.parametrize("name", SWEPT)
def test_tables_follow_the_numbers(name):
    """Made-up curves: other numbers change the table, and every regime has a column."""
    item = FIGURES[name]
    tables = [made_up(regime) for regime in item.settings()]
    text = item.markdown(item.collect(tables))
    assert "nan" not in text
    heads = [line for line in text.splitlines() if line.startswith("| 100 rounds |")]
    assert sum(line.count(" = ") for line in heads) == len(tables)
    other = [table.assign(total=3.3 * table["total"]) for table in tables]
    assert item.markdown(item.collect(other)) != text


def made_up(regime):
    """A table like `Regime.run`'s in which everything decays to the regime's noise."""
    rng = np.random.default_rng(0)
    rows = []
    for client, cause in (("client1", "client2"), ("client2", "client1")):
        for quantity in (
            "granger_cov",
            "granger_augmentation_cov",
            "granger_state_cov",
            "granger_error",
            "granger_limit_error",
            "limit_error",
            "block_norm",
        ):
            rows += [(t, client, cause, quantity) for t in range(0, 101, 10)]
        for quantity in (
            "augmentation_cov",
            "augmentation_state_cov",
            "state_cov",
            "gradient_cov",
            "time_constant",
            "server_time_constant",
        ):
            rows += [(t, client, "", quantity) for t in range(0, 101, 10)]
    table = pd.DataFrame(rows, columns=["round", "client", "cause", "quantity"])
    total = regime.noise_var + np.exp(-table["round"] / 10) + 0.01 * rng.random(len(table))
    return table.assign(total=total, prior=0.4 * total, data=0.6 * total)


def test_a_level_that_depends_on_the_prior_is_seen():
    item = FIGURES["epistemic"]
    tables = [
        made_up(regime).assign(total=1.0, prior=regime.augmentation_prior_var)
        for regime in item.settings()
    ]
    tables[-1] = tables[-1].assign(total=2.0)
    text = item.markdown(item.collect(tables)).rpartition("rounds | Σ_θ⁰")[2]
    assert [cell.split(",")[0] for cell in cells(text, "tr Σ_A21")] == [
        "1 → 1", "1 → 1", "1 → 1", "2 → 2",
    ]  # fmt: skip
    assert "50 % prior" in cells(text, "tr Σ_A21")[-1]


def test_scalability_table():
    tables = [made_up_sizes(regime) for regime in scalability.settings()]
    table = scalability.collect(tables)
    assert len(table) == 32
    assert (table["prior_share"] == 0.25).all()
    assert (table["server_time_constants"] == 2000 / 50).all()
    row = table[(table["size"] == 16) & (table["granger_prior_var"] == 1.0)]
    printed = dict(zip(row["axis"], row["paper_trace"], strict=True))
    assert printed == {"sensor_dim": 1.6722, "num_clients": 4.7}
    decay = dict(zip(row["axis"], row["paper_decay"], strict=True))
    assert decay["sensor_dim"] == pytest.approx(0.5 * np.log(4 / 1.6722))
    assert np.isnan(decay["num_clients"])
    text = scalability.markdown(table)
    assert "0.0625, 25 % prior [1.67]" in text
    assert "40 / 4" in text


def made_up_sizes(regime):
    names = fg.data.linear_system.client_names(regime.num_clients)
    effect, cause = names[1], names[0]
    rows = [
        (0, effect, cause, "granger_cov", 4 * regime.granger_prior_var, 4.0),
        (2000, effect, cause, "granger_cov", 0.0625, 0.015625),
        (2000, effect, "", "server_time_constant", 50.0, np.nan),
        (2000, effect, "", "time_constant", 500.0, np.nan),
    ]
    columns = ["round", "client", "cause", "quantity", "total", "prior"]
    return pd.DataFrame(rows, columns=columns)


def test_qq_quantiles_and_power():
    rng = np.random.default_rng(2)
    tables = []
    for index in range(30):
        rows = [
            (index, f"client{m}", f"client{n}", i, j, m == 1, rng.standard_normal())
            for m in range(1, 7)
            for n in range(1, 7)
            if n != m
            for i, j in np.ndindex(2, 2)
        ]
        columns = ["resample", "effect", "cause", "row", "col", "is_present", "estimate"]
        tables.append(pd.DataFrame(rows, columns=columns))
    table = quantiles.collect(tables)
    assert table["is_shown"].sum() == 4 * 4 * 30
    entry = table.iloc[:30]
    assert entry["standardised"].is_monotonic_increasing
    assert entry["standardised"].std() == pytest.approx(1)
    power = quantiles.shapiro_power(30)
    assert 0.9 < power["an exponential"] <= 1
    assert power["a Student t with 5 degrees of freedom"] < 0.5
    text = quantiles.markdown(table)
    assert f"| an exponential | {share(power['an exponential'])} |" in text
    assert "the 100 entries of absent blocks" in text


@pytest.mark.slow  # the quick figure is made twice
def test_resumes_to_identical_files(tmp_path, monkeypatch):
    """An interrupted run keeps its finished settings; files are those of an undisturbed run."""
    item = FIGURES["qq"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    reproduce(item, whole, quick=True)
    run, calls = quantiles.Resample.run, []

    def interrupted(self, report=lambda *_: None):
        calls.append(self.index)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return run(self, report)

    monkeypatch.setattr(quantiles.Resample, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(item, broken, quick=True)
    assert not (broken / "qq.csv").exists()
    reproduce(item, broken, quick=True)
    assert calls == [0, 1, 2, 3, 3]
    for name in ("qq.csv", "qq.md"):
        assert (whole / name).read_bytes() == (broken / name).read_bytes()


def test_progress_reaches_the_end(folder, figure):
    seen = []
    reproduce(FIGURES["aleatoric"], folder, quick=True, report=lambda *x: seen.append(x))
    assert seen[-1][0] == "aleatoric"
    assert seen[-1][1] == seen[-1][2]


def test_full_size_of_the_study():
    """What the paper shows: the sweeps and sizes are all there."""
    assert list(SWEEPS["granger_prior_var"]) == [1e-6, 1e-4, 1e-2, 1.0]
    assert len(FIGURES["communicated"].settings()) == 13
    assert len(FIGURES["qq"].settings()) == 30
    sizes = {(regime.num_clients, regime.sensor_dim) for regime in TABLES["scalability"].settings()}
    assert sizes == {(2, 16), (2, 32), (2, 64), (2, 128), (2, 8), (4, 8), (8, 8), (16, 8)}


def test_settling_and_shares_in_words():
    rounds = np.arange(100)
    curves = pd.DataFrame({"value": 1.0, "round": rounds, "total": 1.0 + (rounds < 80)})
    assert settling(curves) == {1.0: 1.0}
    assert [share(x) for x in (0.0, 0.05, 0.42, 0.993, 0.9999)] == [
        "below 0.1 %",
        "5.0 %",
        "42 %",
        "99.3 %",
        "over 99.9 %",
    ]
    assert [number(x) for x in (0.0, 1.5e-7, 0.0123, 13673.2)] == [
        "0",
        "1.50e-7",
        "0.0123",
        "13673",
    ]
