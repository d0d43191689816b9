"""The command line as a user meets it."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app
from tests.configs import formula_config

runner = CliRunner()


def call(*args):
    return runner.invoke(app, [str(arg) for arg in args])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sim") / "data"
    result = call("simulate", folder, "--clients", 3, "--steps", 600, "--seed", 1)
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit") / "run"
    options = ["--state-dim", 2, "--solver", "sgd", "--copies", 20]
    result = call("fit", data, "--out", folder, *options)
    assert result.exit_code == 0, result.output + result.stderr
    return folder, result


SHORT = ["--state-dim", 2, "--passes", 1, "--tolerance", 0, "--test", "debiased", "--lags", 1]
"""Options for tests that are about the command and its files."""


def test_version():
    assert call("--version").output.strip() == f"fedgranger {fg.__version__}"


def test_simulate_writes_data_and_truth(data):
    names = sorted(path.name for path in data.iterdir())
    assert names == ["client1.csv", "client2.csv", "client3.csv", "models.json", "truth.json"]
    truth = json.loads((data / "truth.json").read_text())
    assert set(truth) == {"clients", "edges", "transition", "state_dims"}
    panel, direct = fg.simulate(3, 600, seed=1)
    assert fg.Panel.read(data).data_hash() == panel.data_hash()
    assert [tuple(edge) for edge in truth["edges"]] == list(direct.edges)


def test_fit_writes_the_run_folder(run):
    folder, result = run
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.toml",
        "edges.csv",
        "edges_fedgc.csv",
        "edges_readings.csv",
        "entries.csv",
        "entries_fedgc.csv",
        "entries_readings.csv",
        "estimate.npz",
        "manifest.json",
        "normal.npz",
        "report.html",
        "trace.parquet",
    ]
    edges = pd.read_csv(folder / "edges.csv")
    assert list(edges.columns) == [
        "cause", "effect", "strength", "ci_low", "ci_high", "statistic", "df", "p_value",
        "delay",
        "q_value", "is_edge",
    ]  # fmt: skip
    assert len(edges) == 6
    entries = pd.read_csv(folder / "entries.csv")
    assert list(entries.columns) == [
        "cause", "effect", "row", "col", "estimate", "std_error", "ci_low", "ci_high", "p_value",
    ]  # fmt: skip
    squares = entries.groupby(["cause", "effect"])["estimate"].apply(lambda x: (x**2).sum())
    strengths = edges.set_index(["cause", "effect"])["strength"]
    np.testing.assert_allclose(np.sqrt(squares.loc[strengths.index]), strengths)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert {"versions", "seed", "data", "timings", "bytes", "training", "command"} <= set(manifest)
    steps = manifest["training"]["passes"] * 599
    tests = 8 * 11 + 1 + 17 * 600  # two covariances, own lags and shares once; states and flags
    passes = 16 * manifest["training"]["passes"]
    assert manifest["bytes"]["client1"]["bytes_up"] == 8 * 5 + tests + passes + 33 * steps
    assert manifest["bytes"]["client1"]["bytes_down"] == 16 * steps
    assert "what each client would send, FedGC's rounds included:" in result.output
    assert re.search(r"converged after \d+ passes", result.output)


def test_fit_equals_the_python_interface(run, data):
    folder, _ = run
    loaded = fg.Result.load(folder)
    direct = fg.fit(fg.Panel.read(data), fg.RunConfig(state_dim=2, solver="sgd", copies=20))
    np.testing.assert_array_equal(loaded.granger, direct.granger)
    assert loaded.config == direct.config
    assert loaded.trace.equals(direct.trace)
    assert loaded.edges().equals(direct.edges())
    assert loaded.entries().equals(direct.entries())
    np.testing.assert_array_equal(loaded.inference.transition, direct.inference.transition)


def test_fit_never_reads_the_truth(data, tmp_path):
    """The same run without truth.json and models.json gives the same estimate."""
    for path in data.glob("*.csv"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert call("fit", tmp_path, "--out", tmp_path / "r1", *SHORT).exit_code == 0
    assert call("fit", data, "--out", tmp_path / "r2", *SHORT).exit_code == 0
    a, b = (fg.Result.load(tmp_path / name) for name in ("r1", "r2"))
    np.testing.assert_array_equal(a.granger, b.granger)
    assert a.edges().equals(b.edges())


def test_config_file_and_precedence(data, tmp_path):
    config = tmp_path / "options.toml"
    config.write_text(
        "state_dim = {client1 = 1, client2 = 2, client3 = 2}\npasses = 9\nwindow = 4\n"
        'tolerance = 0.0\nmissing = "mask"\ntest = "none"\n'
    )
    result = call("fit", data, "--out", tmp_path / "run", "--config", config, "--passes", 2)
    assert result.exit_code == 0, result.stderr
    loaded = fg.Result.load(tmp_path / "run")
    assert loaded.state_dims == (1, 2, 2)
    assert (loaded.config.passes, loaded.config.window) == (2, 4)
    saved = tmp_path / "run" / "config.toml"
    again = call("fit", data, "--out", tmp_path / "again", "--config", saved)
    assert again.exit_code == 0, again.stderr
    np.testing.assert_array_equal(fg.Result.load(tmp_path / "again").granger, loaded.granger)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("state-model", "svd"),
        ("standardise", "false"),
        ("period", "24,48"),
        ("window", "7"),
        ("local-step-size", "1e-3"),
        ("feedback-step-size", "1e-4"),
        ("server-step-size", "1e-3"),
        ("step-safety", "0.2"),
        ("augmentation-ridge", "0.1"),
        ("granger-ridge", "0.1"),
        ("couplings", "client1->client2,client3->client1"),
        ("prior", "laplace"),
        ("augmentation-prior-location", "0.1"),
        ("augmentation-prior-scale", "1"),
        ("granger-prior-location", "0.1"),
        ("granger-prior-scale", "1"),
        ("seed", "5"),
        ("models", "models.json"),
    ],
)
def test_every_option_changes_something(data, short_run, tmp_path, option, value):
    value = str(data / value) if option == "models" else value
    result = call(
        "fit", data, "--out", tmp_path / "run", "--state-dim", 2, "--passes", 1, "--tolerance", 0,
        "--test", "none", f"--{option}", value,
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert not np.array_equal(fg.Result.load(tmp_path / "run").granger, short_run.granger)


@pytest.fixture(scope="module")
def short_run(data):
    return fg.fit(fg.Panel.read(data), formula_config(state_dim=2, passes=1, tolerance=0.0))


def test_edges(run):
    folder, _ = run
    table = call("edges", folder, "--top", 2, "--bound").output
    header = "cause effect strength ci_low ci_high p_value delay q_value is_edge"
    assert "of 6 tested pairs" in table.splitlines()[0]
    assert table.splitlines()[1].split() == header.split()
    assert "pass Holm's test" in table
    for options in (["--bound", "--json"], ["--estimate", "fedgc", "--alpha", 0.01]):
        assert call("edges", folder, *options).exit_code == 2
    rows = json.loads(call("edges", folder, "--json").output)
    assert [row["p_value"] for row in rows] == sorted(row["p_value"] for row in rows)
    strict = json.loads(
        call("edges", folder, "--json", "--alpha", 1e-12, "--correction", "holm").output
    )
    assert sum(r["is_edge"] for r in strict) <= sum(r["is_edge"] for r in rows)
    assert all(s["q_value"] >= r["p_value"] for s, r in zip(strict, rows, strict=True))
    fedgc = json.loads(call("edges", folder, "--json", "--estimate", "fedgc").output)
    assert all(row["p_value"] is None for row in fedgc)


def test_evaluate_prints_and_writes(run, data):
    folder, _ = run
    scores = json.loads(call("evaluate", folder, "--truth", data / "truth.json", "--json").output)
    assert scores == json.loads((folder / "evaluation.json").read_text())
    (folder / "evaluation.json").unlink()
    assert scores["debiased"]["edges"]["f1"] > 0.5
    assert scores["debiased"]["edges"]["num_possible"] == 6
    assert scores["debiased"]["entries_all"]["num_possible"] == 36
    printed = call("evaluate", folder, "--truth", data / "truth.json").output
    (folder / "evaluation.json").unlink()
    assert f"{scores['fedgc']['edges']['auc_roc']:.3g}" in printed


def test_diagnose(run, data, tmp_path):
    folder, _ = run
    printed = call("diagnose", folder, "--strength", 0.1).output
    assert "power for strength 0.1, client1 -> client2" in printed
    assert "largest root" in printed
    assert "80 % power" in printed
    assert re.search(r"0\.05 +\d", printed)
    in_python = fg.Result.load(folder).diagnose(strength=0.1)
    told = json.loads(call("diagnose", folder, "--strength", 0.1, "--json").output)
    assert told == {"headline": told["headline"]} | json.loads(json.dumps(in_python))
    assert all(" ".join(s.split()) in " ".join(printed.split()) for s in in_python["sentences"])
    for wrong in ("big", float("inf")):
        with pytest.raises(fg.errors.ConfigError, match=r"strength is .*; it must be a finite"):
            fg.Result.load(folder).diagnose(wrong)
    untested = call(
        "fit", data, "--out", tmp_path / "r", "--test", "none", "--passes", 1, "--tolerance", 0
    )
    with pytest.raises(fg.errors.RunError, match="nothing was tested: no test was asked for"):
        fg.Result.load(tmp_path / "r").diagnose()
    assert "Nothing was tested: no test was asked for" in untested.output
    assert untested.exit_code == 0
    refused = call("diagnose", tmp_path / "r")
    assert refused.exit_code == 2
    assert "nothing was tested" in refused.stderr


def test_untestable_data_say_why_and_leave_with_status_3(data, tmp_path):
    """A copy of a client is collinear with it: the run is written, all columns stay empty."""
    for path in data.glob("*.csv"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "copy.csv").write_bytes((data / "client1.csv").read_bytes())
    result = call(
        "fit", tmp_path, "--out", tmp_path / "r", "--state-dim", 2, "--passes", 1, "--tolerance", 0,
        "--test", "debiased",
    )  # fmt: skip
    assert result.exit_code == 3, result.stderr
    assert result.stdout.startswith("Nothing was tested: ")
    assert "could not be tested" in result.stderr
    assert "'client1' and 'copy'" in result.stderr or "'copy' and 'client1'" in result.stderr
    edges = pd.read_csv(tmp_path / "r" / "edges.csv")
    assert edges["p_value"].isna().all()
    assert edges["is_edge"].isna().all()
    assert edges["strength"].isna().all()
    assert (pd.read_csv(tmp_path / "r" / "edges_fedgc.csv")["strength"] > 0).all()
    assert "Nothing was tested: " in (tmp_path / "r" / "report.html").read_text()


@pytest.mark.slow  # a study twice; other journals are resumed in fast tests
def test_study_is_resumable(tmp_path):
    options = ["--out", tmp_path, "--steps", 300, "--data-sets", 3, "--jobs", 1]
    first = call("study", "calibration", *options)
    assert first.exit_code == 0, first.stderr
    assert "base-T300-identified" in first.output
    assert (tmp_path / "calibration.svg").exists()
    files = sorted((tmp_path / "base-T300-identified").iterdir())
    stamps = [path.stat().st_mtime_ns for path in files]
    files[1].unlink()
    again = call("study", "calibration", *options)
    assert again.output == first.output
    new = [path.stat().st_mtime_ns for path in files]
    assert (new[0], new[2]) == (stamps[0], stamps[2])
    assert call("study", "calibration", *options, "--scenario", "odd").exit_code == 2


BAD_INPUT = {
    "no data": (["fit", "nowhere", "--out", "r"], "nowhere"),
    "unknown key": (["fit", "DATA", "--out", "r", "--config", "typo.toml"], "mean 'passes'"),
    "bad toml": (["fit", "DATA", "--out", "r", "--config", "bad.toml"], "not valid TOML"),
    "bad value": (["fit", "DATA", "--out", "r", "--passes", "many"], "passes is 'many'"),
    "huge seed": (["fit", "DATA", "--out", "r", "--seed", str(2**63)], "seed is"),
    "bad prior": (["fit", "DATA", "--out", "r", "--prior", "cauchy"], "prior is 'cauchy'"),
    "large window": (["fit", "DATA", "--out", "r", "--window", "600"], "use a smaller one"),
    "many lags": (["fit", "DATA", "--out", "r", "--max-lags", "900"], "it can be"),
    "many states": (["fit", "DATA", "--out", "r", "--state-dim", "9"], "client 'client1'"),
    "unknown client": (["fit", "DATA", "--out", "r", "--state-dim", "x=1"], "client 'x'"),
    "diverging": (["fit", "DATA", "--out", "r", "--local-step-size", "9"], "diverge"),
    "no models": (["fit", "DATA", "--out", "r", "--models", "none.json"], "none.json"),
    "one client": (["fit", "one", "--out", "r"], "two"),
    "few rows": (["fit", "short", "--out", "r", "--state-dim", "1"], "rows"),
    "text cell": (["fit", "text", "--out", "r"], "broken"),
    "no run": (["edges", "nowhere"], "no such run folder"),
    "no truth": (["evaluate", "RUN", "--truth", "none.json"], "none.json"),
    "other truth": (["evaluate", "RUN", "--truth", "other.json"], "different clients"),
    "bad edges": (["simulate", "s", "--edges", "a>b"], "edges has the entry ('a>b',)"),
    "bad dims": (["simulate", "s", "--state-dims", "two"], "state_dims is 'two'; give one number"),
    "unstable": (["simulate", "s", "--spectral-radius", "1.2"], "spectral_radius is 1.2"),
    "full folder": (["simulate", "DATA"], "is not empty"),
    "foreign folder": (["fit", "DATA", "--out", "one"], "not empty"),
    "both flags": (["fit", "DATA", "--out", "r", "--resume", "--overwrite"], "contradict"),
    "flare models": (
        ["fit", "DATA", "--out", "r", "--models", "m.json", "--runtime", "flare"],
        "m.json: cannot be read as JSON",
    ),
    "flare checkpoints": (
        ["fit", "DATA", "--out", "r", "--checkpoint-every", "5", "--runtime", "flare"],
        "leave --checkpoint-every out",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_sentence_and_exit_code_2(case, data, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "typo.toml").write_text("pases = 3\n")
    (tmp_path / "bad.toml").write_text("passes = \n")
    frame = pd.read_csv(data / "client1.csv")
    for name in ("one", "short", "text"):
        (tmp_path / name).mkdir()
    frame.to_csv(tmp_path / "one" / "a.csv", index=False)
    for name in ("a", "b"):
        frame.head(10).to_csv(tmp_path / "short" / f"{name}.csv", index=False)
        frame.astype({"s3": object}).to_csv(tmp_path / "text" / f"{name}.csv", index=False)
    text = (tmp_path / "text" / "a.csv").read_text().splitlines()
    text[5] = ",".join(["4", "1", "1", "broken", *["1"] * 5])
    (tmp_path / "text" / "a.csv").write_text("\n".join(text))
    other = json.loads((data / "truth.json").read_text())
    other = json.dumps(other).replace("client1", "zebra")
    (tmp_path / "other.json").write_text(other)
    before = sorted(tmp_path.rglob("*"))

    args, expected = BAD_INPUT[case]
    places = {"DATA": data, "RUN": run[0]}
    result = call(*(places.get(arg, arg) for arg in args))
    assert result.exit_code == 2, result.output
    assert expected in result.stderr
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.strip().splitlines()) == 1
    assert "Traceback" not in result.stderr
    assert sorted(tmp_path.rglob("*")) == before  # nothing half-written


def test_overwrite(data, tmp_path):
    assert call("fit", data, "--out", tmp_path / "r", *SHORT).exit_code == 0
    again = call("fit", data, "--out", tmp_path / "r", *SHORT)
    assert again.exit_code == 2
    assert "--overwrite" in again.stderr
    spoilt = call("fit", data, "--out", tmp_path / "r", "--overwrite", "--window", 9999)
    assert spoilt.exit_code == 2
    assert call("edges", tmp_path / "r").exit_code == 0  # the old run is still there
    left = ("checkpoint", "checkpoint.new", "checkpoint.npz", "copies.jsonl")
    for name in left:  # by processes that were killed
        (tmp_path / "r" / name).touch()
    assert call("fit", data, "--out", tmp_path / "r", *SHORT, "--overwrite").exit_code == 0
    assert not any((tmp_path / "r" / name).exists() for name in left)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "letter.txt").write_text("mine")
    assert call("fit", data, "--out", foreign, "--overwrite").exit_code == 2


def test_failed_simulation_keeps_the_old_one(tmp_path):
    assert call("simulate", tmp_path / "s", "--clients", 2, "--steps", 50).exit_code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()}
    assert call("simulate", tmp_path / "s", "--overwrite", "--steps", 0).exit_code == 2
    assert {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()} == before
    assert call("simulate", tmp_path / "s", "--overwrite", "--clients", 3).exit_code == 0
    assert len(list((tmp_path / "s").glob("*.csv"))) == 3


def test_clients_called_na(data, tmp_path):
    for old, new in (("client1", "NA"), ("client2", "nan"), ("client3", "null")):
        (tmp_path / f"{new}.csv").write_bytes((data / f"{old}.csv").read_bytes())
    assert call("fit", tmp_path, "--out", tmp_path / "r", *SHORT).exit_code == 0
    assert "NA" in call("edges", tmp_path / "r").output


def test_states_without_remainder_are_doubted(data, tmp_path):
    result = call("fit", data, "--out", tmp_path / "r", *SHORT, "--state-dim", 8)
    assert "measurement noise could not be separated from the state" in result.stderr


def test_demo_in_a_fresh_process(tmp_path):
    """The whole demo, without the tests' float64 switch and from another folder."""
    outcome = subprocess.run(
        [sys.executable, "-m", "fedgranger", "demo", "--out", str(tmp_path / "demo")],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100"},
        cwd=tmp_path,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "AUC-ROC" in outcome.stdout
    assert "9 of 30 tested pairs are edges" in outcome.stdout
    assert "and 18 more pairs (0 edges among them): 'fedgranger edges RUN'" in outcome.stdout
    report = (tmp_path / "demo" / "run" / "report.html").read_text()
    assert "<svg" in report
    assert "boiler" in report
    loaded = fg.Result.load(tmp_path / "demo" / "run")
    assert loaded.granger.dtype == np.float64
    assert loaded.manifest["training"]["converged"]
    truth = fg.Truth.read(tmp_path / "demo" / "data" / "truth.json")
    found = loaded.edges().query("is_edge")
    assert set(zip(found["cause"], found["effect"], strict=True)) == set(truth.edges)
    assert outcome.stderr.split(" …\n")[0] in ("", "simulating six plants")
    assert outcome.stderr.count("\n") <= 1


def test_simulate_scenario_with_a_wrong_noise(tmp_path):
    found = call("simulate", tmp_path / "a", "--scenario", "declaredhalf", "--steps", 50)
    assert found.exit_code == 0, found.stderr
    models = json.loads((tmp_path / "a" / "models.json").read_text())
    assert models["client1"]["measurement_cov"][0][0] == pytest.approx(0.5 * 3.0)
    found = call("simulate", tmp_path / "b", "--declared-noise", -1, "--steps", 50)
    assert found.exit_code == 2
    assert "declared-noise" in found.stderr


def test_simulate_counter_leaves_out_the_model_of_its_client(tmp_path):
    found = call("simulate", tmp_path / "a", "--counter", "true", "--clients", 3, "--steps", 50)
    assert found.exit_code == 0, found.stderr
    assert "counter" in (tmp_path / "a" / "client1.csv").read_text().splitlines()[0]
    models = json.loads((tmp_path / "a" / "models.json").read_text())
    assert sorted(models) == ["client2", "client3"]


@pytest.mark.slow  # two studies of six fits each
def test_study_of_recordings_is_resumable(tmp_path):
    fg.simulate(3, 900, seed=3)[0].write(tmp_path / "data")
    options = ["--panels", 2, "--sizes", "1.0", "--state-dim", 2, "--out", tmp_path / "out"]
    first = call("study", "recordings", tmp_path / "data", *options)
    assert first.exit_code == 0, first.stderr
    assert "one recording" in first.output
    finished = tmp_path / "out" / "finished.jsonl"
    lines = finished.read_text().splitlines(keepends=True)
    assert len(lines) == 1 + 3 * 2
    p_values = (tmp_path / "out" / "p_values.csv").read_text()
    assert len(p_values.splitlines()) == 1 + 6 * 6
    finished.write_text("".join(lines[:3]))
    again = call("study", "recordings", tmp_path / "data", *options)
    assert again.output == first.output
    assert (tmp_path / "out" / "p_values.csv").read_text() == p_values
    other = call("study", "recordings", tmp_path / "data", *options, "--seed", 1)
    assert other.exit_code == 2
    assert "other data or options" in other.stderr


def test_study_of_recordings_refuses_wrong_options(tmp_path):
    fg.simulate(3, 300, seed=3)[0].write(tmp_path / "data")
    for wrong in (["--models", "m.json"], ["--sizes", "x"], ["--test", "debised"]):
        found = call("study", "recordings", tmp_path / "data", *wrong, "--out", tmp_path / "b")
        assert found.exit_code == 2, wrong
