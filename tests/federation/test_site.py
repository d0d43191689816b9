"""At a client's own site: preview, consent, the word to a run, the audit log, and who may call."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedgranger as fg
from fedgranger.cli.app import app
from fedgranger.client.params import known_models, read_models, write_models
from fedgranger.data.time_axis import LocalSeries
from fedgranger.federation.audit_log import AuditLog, read_lines, verify
from fedgranger.federation.codec import Packet, decode, encode
from fedgranger.federation.policy import SitePolicy, policy_text
from fedgranger.federation.preview import explained, make_preview
from fedgranger.federation.questions import ALLOWED, WAITING
from fedgranger.federation.secret import data_hash
from fedgranger.federation.store import DiskFiles, Store
from fedgranger.flare.own_data import read_series
from fedgranger.flare.processes import alone
from fedgranger.flare.settings import ClientSettings, write_settings
from tests.federation.attacker import CLIENT, NUM_STEPS, Attacker, options

pytest.importorskip("nvflare", reason="needs the extra 'flare'")


@pytest.fixture
def kit(tmp_path):
    """As much of a client's kit as its own commands look at."""
    folder = tmp_path / "client-pump"
    for name in ("startup", "local"):
        (folder / name).mkdir(parents=True)
    (folder / "startup" / "fed_client.json").write_text('{"client": {"fqsn": "pump"}}')
    (folder / "policy.toml").write_text(policy_text())
    panel = fg.simulate(2, 301, seed=0)[0]
    panel.write(tmp_path / "data")
    return folder


def command(*words, code=0):
    done = CliRunner().invoke(app, ["federation", *map(str, words)])
    assert done.exit_code == code, done.output
    assert "Traceback" not in done.output
    return " ".join(done.output.split())


def data_of(kit):
    return kit.parent / "data" / "client1.csv"


def test_preview_shows_what_would_leave_worst_sensor_first(kit):
    text = command("preview", kit, "--data", data_of(kit), "--rounds", "4")
    assert "8 sensors, 301 time steps; 2 states leave per time step." in text
    assert "policy.toml allows 0 rounds, 1 question about these data, 24 runs per day" in text
    rows = [word for word in text.split("4 rounds")[-1].split() if word.startswith("0.")]
    assert [float(row) for row in rows] == sorted(map(float, rows), reverse=True)
    assert text.count("1.000") == 8  # four rounds of two states: all of eight sensors
    assert not (kit / "fedgranger-state" / "audit.jsonl").exists()
    assert not (kit / "local" / "fedgranger.json").exists()


def counter_of(kit):
    """The client's data with a meter beside the sensors."""
    lines = data_of(kit).read_text().splitlines()
    meter = np.cumsum(np.random.default_rng(0).integers(0, 4, len(lines) - 1))
    rows = [f"{line},{reading}" for line, reading in zip(lines[1:], meter, strict=True)]
    file = kit.parent / "meter.csv"
    file.write_text("\n".join([f"{lines[0]},meter", *rows]) + "\n")
    return file


def test_a_client_names_its_own_sensors_to_difference_or_leave_out(kit):
    data = counter_of(kit)
    said = command("preview", kit, "--data", data)
    assert "sensor 'meter' counts: it rises" in said
    assert "--difference none switches this off" in said
    assert "9 sensors" in said
    said = command("preview", kit, "--data", data, "--difference", "none")
    assert "used as measured; --difference auto uses the change per row" in said
    assert "8 sensors" in command("preview", kit, "--data", data, "--leave-out", "meter")
    said = command("preview", kit, "--data", data, "--difference", "metre", code=2)
    assert "names 'metre', which is no sensor (did you mean 'meter'?)" in said


def test_a_site_says_how_its_own_file_is_written(kit):
    plain = pd.read_csv(data_of(kit))
    plain["time"] = pd.date_range("2026-10-25", periods=len(plain), freq="min").strftime(
        "%d.%m.%Y %H:%M"
    )
    file = kit.parent / "german.csv"
    plain.assign(status="Good").to_csv(file, index=False, sep=";", decimal=",")
    needed = "--delimiter semicolon --decimal comma --date-format dd.mm.yyyy --leave-out status"
    assert needed in command("preview", kit, "--data", file, code=2)
    said = command("preview", kit, "--data", file, *needed.split())
    assert "8 sensors, 301 time steps" in said
    said = command("preview", kit, "--data", file, *needed.split(), "--resample", "2min")
    assert "301 rows became 151 steps of 2min" in said
    assert "8 sensors, 151 time steps" in said


def test_start_keeps_the_choice_for_the_runs(kit, monkeypatch):
    from fedgranger.cli.federation import site_commands
    from fedgranger.flare.settings import read_settings

    monkeypatch.setattr(site_commands, "check_kit", lambda _: None)
    monkeypatch.setattr(site_commands, "become_supervisor", lambda _: None)
    command("start", kit, "--data", counter_of(kit), "--difference", "auto,s1")
    settings = read_settings(kit, "pump")
    assert settings.difference == "auto,s1"
    series, notes = read_series("pump", settings, SitePolicy())
    assert set(series.client.treatment.differenced) == {"s1", "meter"}
    assert any("'s1'" in note for note in notes)


def test_start_of_a_party_that_runs_says_only_that_and_changes_nothing(kit, monkeypatch):
    from fedgranger.cli.federation import site_commands

    monkeypatch.setattr(site_commands, "check_kit", lambda _: None)
    monkeypatch.setattr(site_commands, "become_supervisor", lambda _: None)
    with alone(kit):
        said = command("start", kit, "--data", data_of(kit), code=2)
    assert "is running already" in said
    assert "starts" not in said
    assert not (kit / "local" / "fedgranger.json").exists()


def models_of(kit, number, names=("pump",)):
    """A file with the true local model of simulated client `number` under these names."""
    truth = fg.simulate(2, 301, seed=0, sensor_dims=(8, 5))[1]
    model = known_models(truth)[f"client{number}"]
    file = kit.parent / "models.json"
    write_models(file, dict.fromkeys(names, model))
    return file


def test_a_site_declares_its_own_model(kit, monkeypatch):
    from fedgranger.cli.federation import site_commands
    from fedgranger.flare.settings import read_settings

    monkeypatch.setattr(site_commands, "check_kit", lambda _: None)
    monkeypatch.setattr(site_commands, "become_supervisor", lambda _: None)
    file = models_of(kit, 1)
    command("start", kit, "--data", data_of(kit), "--models", file)
    settings = read_settings(kit, "pump")
    series, _ = read_series("pump", settings, SitePolicy())
    np.testing.assert_array_equal(series.model.matrices[0], read_models(file)["pump"].matrices[0])
    plain, _ = read_series("pump", replace(settings, models=None), SitePolicy())
    assert plain.model is None
    assert data_hash(b"s", series) != data_hash(b"s", plain), "another model is another question"
    text = command("preview", kit, "--data", data_of(kit), "--models", file)
    assert "2 states leave per time step" in text


def test_a_limited_period_keeps_what_was_done_to_the_sensors_and_the_model(kit):
    settings = ClientSettings(str(counter_of(kit)), difference="auto,s1")
    whole, _ = read_series("pump", settings, SitePolicy())
    model = read_models(models_of(kit, 1))["pump"]
    part = SitePolicy(first_time=100, last_time=200).within(whole._replace(model=model))
    assert len(part.time) == 101
    assert part.client.treatment == whole.client.treatment
    assert set(part.client.treatment.differenced) == {"s1", "meter"}
    assert part.model is model


@pytest.mark.parametrize(
    ("number", "names", "sentence"),
    [
        (1, ("other",), "has no model of client 'pump'; add one"),
        (2, ("pump",), "the given local model is for 5 sensors but the data have 8"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(kit, number, names, sentence):
    file = models_of(kit, number, names)
    assert sentence in command("preview", kit, "--data", data_of(kit), "--models", file, code=2)


def test_settings_of_an_older_kit_are_read(kit):
    from fedgranger.flare.settings import read_settings

    old = {"data": "x.csv", "time_column": "t", "interval": None, "missing": "mask"}
    (kit / "local" / "fedgranger.json").write_text(json.dumps(old | {"constant": "drop"}))
    assert read_settings(kit, "pump") == ClientSettings(
        "x.csv", time_column="t", missing="mask", constant="drop"
    )


def test_consent_is_recorded_for_these_data(kit):
    assert "consent recorded" in command("preview", kit, "--data", data_of(kit), "--consent")
    (line,) = read_lines(kit / "fedgranger-state" / "audit.jsonl")
    assert (line["event"], line["states"], line["sensors"]) == ("consent", 2, 8)
    assert json.loads(line["policy"])["rounds"] == 0
    assert 0.5 < line["largest_r2"] < 1


def test_preview_measures_what_a_server_could_hold():
    """The share is that of least squares on the states around a step; rounds add to it."""
    client = fg.simulate(2, 301, seed=0)[0]["client1"]
    series = LocalSeries(client, np.arange(301))
    none, two, many = (make_preview(series, SitePolicy(), rounds) for rounds in (0, 2, 4))
    np.testing.assert_array_equal(none.after, none.default)
    assert (two.after >= two.default - 1e-12).all()
    assert (two.after.mean() - two.default.mean()) > 1e-3
    np.testing.assert_allclose(many.after, 1.0, atol=1e-9)
    assert many.bytes_rounds > two.bytes_rounds > none.bytes_default
    y = np.random.default_rng(0).standard_normal((500, 2))
    held = y[:, :1] + 0.0
    shares = explained(y, held, np.ones(500, dtype=bool))
    assert shares[0] == pytest.approx(1.0)
    assert shares[1] < 0.05
    late = np.roll(held, 1, axis=0)  # seen one step later: the neighbours give it away
    assert explained(y, late, np.ones(500, dtype=bool))[0] == pytest.approx(1.0)


def test_the_preview_asks_the_question_of_the_default_run():
    found = make_preview(LocalSeries(CLIENT, np.arange(NUM_STEPS)), SitePolicy(), 0)
    server = Attacker(SitePolicy())
    server.offer(options())
    assert server.begin(1).arrays["error_cov"].shape == (found.state_dim, found.state_dim)
    assert server.party._client.question == found.question


def test_without_a_policy_nothing_starts(kit, monkeypatch):
    (kit / "policy.toml").unlink()
    monkeypatch.setattr(
        "fedgranger.cli.federation.site_commands.check_kit", lambda _: None
    )  # no key here
    for words in (["preview"], ["start"]):
        assert "no policy" in command(*words, kit, "--data", data_of(kit), code=2)
    assert not (kit / "local" / "fedgranger.json").exists()


def test_preview_of_too_little_is_a_sentence(kit):
    (kit / "policy.toml").write_text("smallest_sensors_per_state = 20")
    text = command("preview", kit, "--data", data_of(kit), code=2)
    assert "lets no state out" in text


def test_the_log_is_shown_and_checked(kit):
    path = kit / "fedgranger-state" / "audit.jsonl"
    assert "0 lines" in command("log", kit, "--verify")
    for k in range(3):
        AuditLog(path).add(
            "answered", run="run-1", request="upload", answer="states", bytes=100 + k
        )
    shown = command("log", kit, "--verify")
    assert "run-1 upload states 102" in shown
    assert "3 lines, none changed" in shown
    lines = json.loads(command("log", kit, "--json"))
    assert [line["bytes"] for line in lines] == [100, 101, 102]
    path.write_text(path.read_text().replace('"bytes": 101', '"bytes": 1'))
    assert "line 2 is broken" in command("log", kit, "--verify", code=2)
    assert "run-1" in command("log", kit)


def test_the_log_lists_the_fields_that_left_with_every_answer(kit):
    (kit / "fedgranger-state").mkdir()
    log = AuditLog(kit / "fedgranger-state" / "audit.jsonl")
    for _ in range(2):
        log.add("answered", request="begin", answer="hello", fields="own_lags, error_cov")
    assert command("log", kit).count("fields of 'hello': own_lags, error_cov") == 1


def test_a_run_is_allowed_by_name(kit):
    assert "no run 'run-1' waits here" in command("allow", kit, "run-1", code=2)
    store = Store(DiskFiles(kit / "fedgranger-state"))
    asks = {"question": "q", "options": '{"state_dim": 3}', "period": "0 to 300, 301 steps of 1"}
    store.save(WAITING, {"runs": {"run-1": asks}}, {})
    said = command("allow", kit, "run-1", code=2)  # nobody is there to be asked back
    assert '"state_dim": 3' in said
    assert "0 to 300, 301 steps of 1" in said
    assert "add '--question q'" in said
    assert "asks question q, not p" in command("allow", kit, "run-1", "--question", "p", code=2)
    assert store.load(ALLOWED) is None
    assert "run 'run-1' may go on" in command("allow", kit, "run-1", "--question", "q")
    assert store.load(ALLOWED)[0]["runs"] == {"run-1": "q"}
    (line,) = read_lines(kit / "fedgranger-state" / "audit.jsonl")
    assert {"event": "allowed", "run": "run-1", **asks}.items() <= line.items()


def test_commands_of_a_site_refuse_another_kit(tmp_path):
    (tmp_path / "startup").mkdir()
    (tmp_path / "startup" / "fed_admin.json").write_text("{}")
    for words in (["log", tmp_path], ["allow", tmp_path, "run"], ["preview", tmp_path]):
        command(*words, code=2)


@pytest.fixture
def call(kit, monkeypatch):
    """What FLARE says of a call; its caller can be changed."""
    from nvflare.collab.api import context

    workspace = SimpleNamespace(get_root_dir=lambda: str(kit))
    site = SimpleNamespace(name="pump", workspace=workspace, props={})
    found = SimpleNamespace(caller="server", callee="pump", app=site, workspace=workspace)
    monkeypatch.setattr(context.collab_context, "call_ctx", found, raising=False)
    return found


def test_one_run_at_a_time_has_the_sites_records(kit, call):
    """Several jobs at once could each ask a question before any of them was written down."""
    from fedgranger.flare.client_job import FlareClient

    write_settings(kit, ClientSettings(str(data_of(kit))))
    request = encode(Packet("offer", "run", "pump", {"nonce": "n", "options": options().to_text()}))
    first, second = FlareClient(), FlareClient()
    assert decode(first.handle(request)).kind == "range"
    answer = decode(second.handle(request))
    assert (answer.kind, answer.values["code"]) == ("refusal", "waiting")
    assert decode(first.handle(request)).kind == "range"
    del first
    assert decode(second.handle(request)).kind == "range"


def test_whatever_is_wrong_with_a_site_the_server_is_not_told(kit, call, monkeypatch):
    from fedgranger.flare import client_job

    def fail(*_):
        raise RuntimeError("sensor 'secret'")

    monkeypatch.setattr(client_job, "read_secret", fail)
    write_settings(kit, ClientSettings(str(data_of(kit))))
    client = client_job.FlareClient()
    request = encode(Packet("offer", "run", "pump", {"nonce": "n", "options": options().to_text()}))
    for _ in range(2):
        answer = decode(client.handle(request))
        assert answer.values["sentence"] == "it cannot take part; its own log says why"
    assert "secret" in (kit / "fedgranger-state" / "log.txt").read_text()


@pytest.mark.parametrize("caller", ["client2", "", "server.x"])
def test_only_the_server_may_call_a_client(kit, caller, call):
    from fedgranger.flare.client_job import FlareClient

    call.caller = caller
    client = FlareClient()
    told = options().to_text()
    request = encode(Packet("offer", "run", "pump", {"nonce": "n", "options": told}))
    answer = decode(client.handle(request))
    assert (answer.kind, answer.values["code"]) == ("refusal", "invalid")
    assert client._party is None
    with pytest.raises(PermissionError):
        client.ping()
    path = kit / "fedgranger-state" / "audit.jsonl"
    lines = list(read_lines(path))
    assert [(line["caller"], line["method"]) for line in lines] == [
        (caller, "handle"), (caller, "ping"),
    ]  # fmt: skip
    assert verify(path) == 2
    call.caller = "server"
    assert client.ping() == "here"
    (kit / "policy.toml").unlink()
    answer = decode(client.handle(request))
    assert answer.values["sentence"] == "it cannot take part; its own log says why"


def test_a_site_reads_what_its_edges_do(kit):
    from fedgranger.flare.settings import state_folder, write_edges

    assert "no run has sent this site its edges yet" in command("edges", kit, code=2)
    none = float("nan")
    pairs = [("pump", "mill", 0.001, 0.4, True), ("mill", "pump", none, none, None)]
    sentence = "+1 bar at pump.P [1] → 0.50 s.d. (0.40 to 0.60) at mill after 1 step"
    write_edges(state_folder(kit), pairs, {"pump -> mill": {"sentence": sentence, "peak": 1}})
    said = command("edges", kit)
    assert said.startswith(sentence)
    assert "pump mill yes 0.001 0.4" in said
    assert "pairs that were not tested: 1" in said
    found = json.loads(command("edges", kit, "--json"))
    assert found["own_edges"]["pump -> mill"]["peak"] == 1
    assert found["pairs"][1] == {
        "cause": "mill", "effect": "pump", "p_value": None, "strength": None, "is_edge": None
    }  # fmt: skip
    write_edges(state_folder(kit), pairs, {})
    words = "edges of this site whose response over time cannot be shown: 1"
    assert command("edges", kit).startswith(words)
    write_edges(state_folder(kit), [(*pairs[0][:4], False)], {})
    assert command("edges", kit).startswith("no edge from or to this site was found")
    (kit / "fedgranger-state" / "own_edges.json").unlink()  # of an older version
    assert "pump mill" in command("edges", kit)
    (kit / "fedgranger-state" / "edges.csv").write_text("cause,effect,p_value\npump,mill,x\n")
    assert "cannot be read" in command("edges", kit, code=2)
