"""HAI under stress: the recording, the limits, the numbers and the text."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from fedgranger.config import RunConfig
from fedgranger.errors import DataError
from fedgranger.linalg.spectral import spectral_radius
from fedgranger.runtime.propagation import propagate
from fedgranger.runtime.row_inputs import single_row
from fedgranger.runtime.setup import set_up
from fedgranger.uncertainty.update_moments import split_parameters, update_moments
from fedgranger_research import datasets
from fedgranger_research.reproduction.hai_regime import CLIENTS, HaiRegime, prepare, recording
from fedgranger_research.reproduction.hai_stress import BLOCKS, draw, hai_stress_item
from fedgranger_research.reproduction.levels import ends, number, select
from fedgranger_research.reproduction.limits import row_limits
from fedgranger_research.reproduction.runner import reproduce
from tests.dataset_files import make_hai, write_hai
from tests.published_files import FAST_HAI, SLOW_HAI, development_data
from tests.published_files import write_hai as write_recording


def write_made(folder, seconds=100, stretch=1):
    """HAI-like files below `folder`/hai: 544 training rows so many seconds apart."""
    frames = make_hai("20.07", np.random.default_rng(3))
    for name, frame in frames.items():
        start = np.datetime64("2019-09-11T20:00:00", "s") + 10_000_000 * list(frames).index(name)
        longer = pd.concat([frame] * stretch, ignore_index=True)
        longer = longer.iloc[: len(longer) - 3]  # no whole number of intervals
        stamps = pd.Series(start + seconds * np.arange(len(longer)))
        longer["time"] = stamps.dt.strftime("%Y-%m-%d %H:%M:%S")
        longer["P1_T01"] = np.r_[np.zeros(len(longer) - 1), 1.0]  # constant but for its end
        frames[name] = longer
    write_hai(folder / "hai", frames, "20.07")
    return frames


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_made(folder)
    return folder


@pytest.fixture(scope="module")
def regime(made):
    return HaiRegime(made / "hai", num_rounds=201, num_checkpoints=8)


@pytest.fixture(scope="module")
def real():
    return development_data() / "hai"


def noise_of(setup, variance):
    return {s.name: np.full(s.model.num_sensors, variance) for s in setup.client_data}


def test_three_clients_two_states_and_no_constant_sensor(regime):
    setup, config = prepare(regime)
    assert setup.names == CLIENTS
    assert setup.state_dims == (2, 2, 2)
    assert setup.num_rounds == 201
    assert config.state_model == "paper"
    # P2_T00 is constant everywhere, P1_T01 in the rows that are used
    assert [s.model.num_sensors for s in setup.client_data] == [30, 11, 5]


def test_rows_every_100_s_begin_anew_with_each_recording(tmp_path):
    """Thinned files at 1/10 Hz hold the rows 0, 100 s, … of every recording."""
    frames = write_made(tmp_path, seconds=10, stretch=4)
    panel = recording(HaiRegime(tmp_path / "hai"))
    tags = list(panel["P3"].sensors)
    expected = [frames[name][tags].to_numpy()[::10] for name in ("train1", "train2")]
    np.testing.assert_allclose(panel["P3"].values, np.concatenate(expected), rtol=1e-12)
    assert list(np.flatnonzero(panel.segment_starts)) == [0, len(expected[0])]
    assert recording(HaiRegime(tmp_path / "hai", num_rounds=160)).num_steps == 161


def test_too_short_recording_is_named(tmp_path):
    write_made(tmp_path, seconds=1)
    with pytest.raises(DataError, match=r"has 6 rows 100 s apart, 150 are needed; give the"):
        prepare(HaiRegime(tmp_path / "hai"))


def test_folder_without_hai(tmp_path):
    with pytest.raises(DataError, match="has no subfolder hai; give --data"):
        hai_stress_item(tmp_path)


def without_padding(setup, config, variance):
    """Â* and 1/(1 − ρ) of every row from arrays of its own size: clients have unequal sensors."""
    found = {}
    for m, name in enumerate(setup.names):
        row = single_row(setup, config, m)
        present = row.windows.observed_weights[..., None] > 0
        noise = jnp.where(present, variance, jnp.zeros_like(row.windows.noise))
        averages = update_moments(row.params, replace(row.windows, noise=noise))
        solution = np.linalg.solve(averages.gain, averages.drift) / averages.scale
        radius = np.abs(1 - np.linalg.eigvalsh(averages.gain)).max()
        found[name] = split_parameters(solution, averages.shape)[1], 1 / (1 - radius)
    return found


def test_limits_vs_rows_without_padding(regime):
    """Padded sensors move by ridge alone and would be the slowest direction of small clients."""
    with jax.enable_x64(True):
        setup, config = prepare(regime)
        expected = without_padding(setup, config, 0.1)
        found = row_limits(setup, config, noise_of(setup, 0.1))
    for name in CLIENTS:
        np.testing.assert_allclose(found[name].granger, expected[name][0], atol=1e-10)
        assert found[name].time_constant == pytest.approx(expected[name][1], rel=1e-6)


def test_key_names_the_files_and_no_folder(regime, made, tmp_path):
    write_made(tmp_path)
    text = str(regime.key())
    assert str(made) not in text
    assert "train1.csv" in text
    before = regime.key()
    assert replace(regime, noise_var=1.0).key() != before
    file = tmp_path / "hai" / "train1.csv"
    other = replace(regime, path=tmp_path / "hai")
    stamp = other.key()["files"]
    file.write_text(file.read_text() + "\n")
    assert other.key()["files"] != stamp


def test_full_and_quick_settings(made):
    item = hai_stress_item(made)
    full, quick = item.settings(), item.settings(quick=True)
    assert [s.noise_var for s in full] == [0.01, 0.1, 1.0, 0.1, 0.1, 0.1]
    assert [s.granger_prior_var for s in full] == [0.01, 0.01, 0.01, 1e-4, 1e-2, 1.0]
    assert full[1].key() == full[4].key()  # the base regime is propagated once
    assert [(s.noise_var, s.granger_prior_var) for s in quick] == [
        (0.01, 0.01),
        (1.0, 0.01),
        (0.1, 1e-4),
        (0.1, 1.0),
    ]


def made_up(regime):
    """A table like `HaiRegime.run`'s in which everything decays to the regime's noise."""
    rng = np.random.default_rng(0)
    marks = range(0, 101, 10)
    rows = [
        (t, *block, quantity)
        for block in BLOCKS
        for quantity in ("granger_cov", "granger_error", "granger_limit_error")
        for t in marks
    ]
    rows += [(100, *block, quantity) for block in BLOCKS for quantity in ("limit_error",)]
    rows += [(t, client, "", "augmentation_cov") for client in CLIENTS for t in marks]
    facts = ("time_constant", "server_time_constant", "sensors", "self_radius")
    rows += [(100, client, "", quantity) for client in CLIENTS for quantity in facts]
    table = pd.DataFrame(rows, columns=["round", "client", "cause", "quantity"])
    total = regime.noise_var + np.exp(-table["round"] / 10) + 0.01 * rng.random(len(table))
    table = table.assign(total=total, prior=0.4 * total, data=0.6 * total)
    norms = pd.DataFrame([(100, *b, "block_norm", 2.0) for b in BLOCKS])
    norms.columns = [*table.columns[:4], "total"]
    return pd.concat([table, norms], ignore_index=True)


@pytest.fixture(scope="module")
def table(made):
    item = hai_stress_item(made)
    return item.collect([made_up(setting) for setting in item.settings()])


def test_single_run_adds_the_spread(table):
    error = select(table, "granger_error", "P1", "P2", sweep="noise_var")
    trace = select(table, "granger_cov", "P1", "P2", sweep="noise_var")
    expected = np.hypot(error["total"].to_numpy(), np.sqrt(trace["total"].to_numpy()))
    np.testing.assert_allclose(error["single_run"], expected, rtol=1e-14)
    assert table.loc[table["quantity"] == "granger_cov", "single_run"].isna().all()


def test_table_lists_the_computed_numbers(table, made):
    text = hai_stress_item(made).markdown(table)
    assert "nan" not in text
    lines = text.splitlines()
    error = select(table, "granger_error", "P2", "P3", sweep="noise_var")
    (line, _) = [line for line in lines if line.startswith("| ‖E Â23 − Â23°‖ |")]
    for value, x in ends(error).items():
        one = ends(error, "single_run")[value]
        assert f"→ {number(x)}; one run" in line
        assert f"→ {number(one)}" in line
    assert "40 % prior" in next(line for line in lines if line.startswith("| tr Σ_A12 |"))
    assert "| ‖Â12°‖ | 2 | 2 | 2 |" in lines
    assert sum(line.startswith("| ρ(A_mm) of P1 |") for line in lines) == 1


@pytest.mark.slow  # three sweeps are computed, 4 s
def test_draws_three_rows_per_sweep(table, tmp_path):
    draw(tmp_path, table)
    assert (tmp_path / "hai-stress.png").read_bytes()[:4] == b"\x89PNG"
    assert "<svg" in (tmp_path / "hai-stress.svg").read_text()


def test_real_recording_at_100_s_moves_more_per_row_than_at_1_hz(real, tmp_path):
    """Why every 100 s: see the module's text."""
    found = []
    for file in (SLOW_HAI, FAST_HAI):
        write_recording(real / file, tmp_path / file)
        panel = datasets.load("hai", tmp_path / file).train
        config = RunConfig(state_model="paper", state_dim=2)
        streams = set_up(panel, config).client_data
        found.append([spectral_radius(s.model.self_transition) for s in streams])
    slow, fast = found
    assert max(slow) < 0.992
    assert 0.9998 < max(fast) < 1


@pytest.mark.slow  # compiles and runs the recursion twice
def test_run_vs_propagate_and_limits(regime):
    table = regime.run().assign(value=regime.noise_var)
    with jax.enable_x64(True):
        setup, config = prepare(regime)
        direct = propagate(setup, config, noise_of(setup, 0.1), num_checkpoints=8)
        quiet, own = (
            row_limits(setup, config, noise_of(setup, v))["P3"].granger for v in (0.0, 0.1)
        )
    expected = direct.trace("granger_cov", "P3", "P2")
    np.testing.assert_array_equal(select(table, "granger_cov", "P3", "P2")["total"], expected.total)
    mean = direct.means["P3"][1]  # blocks of P1 and P2 side by side
    errors = {
        "granger_error": mean[:, 2:] - quiet[:, 2:],
        "granger_limit_error": mean[:, 2:] - own[:, 2:],
        "limit_error": own[:, 2:] - quiet[:, 2:],
        "block_norm": quiet[:, 2:],
    }
    for quantity, difference in errors.items():
        last = select(table, quantity, "P3", "P2")["total"].iloc[-1]
        assert last == pytest.approx(np.linalg.norm(difference), rel=1e-12)
    start = select(table, "granger_error", "P3", "P2")["total"].iloc[0]
    assert start == pytest.approx(np.linalg.norm(quiet[:, 2:]))  # the mean starts at zero
    first = table.loc[table["round"] == 0].set_index(["client", "cause", "quantity"])["total"]
    assert first["P1", "", "augmentation_cov"] == pytest.approx(2 * 30 * 1e-2)
    assert first["P1", "P2", "granger_cov"] == pytest.approx(4 * 1e-2)


@pytest.mark.slow  # a quick run of all sweeps on a recording
def test_quick_run_on_real_data_writes_and_resumes(real, tmp_path, monkeypatch):
    write_recording(real / SLOW_HAI, tmp_path / "data" / "hai")
    item = hai_stress_item(tmp_path / "data")
    table = reproduce(item, tmp_path, quick=True)
    assert "nan" not in item.markdown(table)
    curves = select(table, "granger_error", "P1", "P2", sweep="granger_prior_var")
    low, high = (curves.loc[curves["value"] == v, "total"] for v in (1e-4, 1.0))
    np.testing.assert_array_equal(low, high)  # no prior variance in the mean's equation
    page = (tmp_path / "hai-stress.md").read_text()
    assert item.markdown(table) in page

    def again(self, report):
        raise AssertionError

    monkeypatch.setattr(HaiRegime, "run", again)
    pd.testing.assert_frame_equal(reproduce(item, tmp_path, quick=True), table)
