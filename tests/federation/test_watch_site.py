"""Whoever lies in a watch: an altered site gets a sentence, an altered server nothing more."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from fedgranger.data.time_axis import LocalSeries
from fedgranger.federation.codec import Packet, decode, encode, pack
from fedgranger.federation.policy import UNLIMITED, SitePolicy
from fedgranger.federation.protocol import RunStopped
from fedgranger.federation.requests import read_alarm
from fedgranger.federation.store import DiskFiles, Store
from fedgranger.federation.watch_records import load_normal
from fedgranger.flare.settings import add_alarm, read_alarms
from fedgranger.messages import OLDEST_PROTOCOL, PROTOCOL_VERSION
from fedgranger.rca.alarms import knowledge_of
from tests.federation.watched import NEW, assert_same, give, trained

LIMITED = SitePolicy(**{**UNLIMITED, "largest_message_steps": 100, "runs_per_day": 3})


def unchecked(packet):
    """Bytes of a message that an honest side would not send."""
    header = {
        "protocol": PROTOCOL_VERSION,
        "oldest_protocol": OLDEST_PROTOCOL,
        **{name: getattr(packet, name) for name in ("kind", "run", "client", "answers")},
        "values": dict(packet.values),
    }
    return pack(header, packet.arrays)


def changed(kind, **arrays):
    """Change some arrays of one client's answers of a kind."""
    return kind, lambda packet: packet._replace(
        arrays={**packet.arrays, **{name: f(packet.arrays[name]) for name, f in arrays.items()}}
    )


def valued(kind, **values):
    return kind, lambda packet: packet._replace(values={**packet.values, **values})


def first(value):
    return lambda array: np.concatenate([np.full((1, *array.shape[1:]), value), array[1:]])


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """Sites after a run and an honest watch of their new data; tests put another wire between."""
    federation, result = trained(tmp_path_factory.mktemp("honest"))
    give(federation, NEW)
    knowledge = knowledge_of(result)
    return federation, knowledge, federation.watch(knowledge)


@pytest.mark.parametrize(
    ("alter", "sentence"),
    [
        (changed("monitor", surprise=first(np.nan)), "surprise holds a number that is not finite"),
        (changed("monitor", surprise=first(1e12)), "not finite or above 1e+09"),
        (changed("monitor", surprise=first(-1.0)), "one of its numbers of surprise is negative"),
        (changed("monitor", surprise=lambda a: a[1:]), "numbers of surprise do not fit"),
        (changed("monitor", states=first(np.inf)), "states holds a number that is not finite"),
        (changed("monitor", states=lambda a: np.hstack([a, a])), "its states have shape (50, 2)"),
        (changed("monitor", states=lambda a: a[1:]), "its states have shape (49, 1)"),
        (changed("monitor", is_observed=lambda a: a[1:]), "its flags do not fit its states"),
        (changed("monitor", is_observed=np.zeros_like), "steps that it did not observe"),
        (valued("monitor", piece=7), "it sent another piece"),
        (valued("news", threshold=0.0), "its normal range does not end above 0"),
        (valued("news", threshold=-2.0), "its normal range does not end above 0"),
        (valued("news", threshold=1e300), "its normal range does not end above 0"),
        (valued("news", threshold=2), "threshold is not a valid float"),
        (valued("news", sensors="flow"), "has other fields than it should"),
    ],
)
def test_an_altered_sites_numbers_are_refused_and_asked_for_again(honest, alter, sentence):
    kind, change = alter
    federation, knowledge, right = honest
    left = {"times": 2}

    def wrap(name, handle):
        def call(payload):
            answer = handle(payload)
            packet = decode(answer)
            if name != "c" or packet.kind != kind or not left["times"]:
                return answer
            left["times"] -= 1
            return unchecked(change(packet))

        return call

    federation.wrap = wrap
    federation.log.clear()
    found = federation.watch(knowledge, nonce=f"again {sentence}")
    assert left["times"] == 0
    assert federation.server.ledger.totals()["c"]["refused"] == 2
    (said,) = {line for line in federation.log if "answer refused" in line}
    assert said.startswith("client 'c': answer refused: ")
    assert sentence in said
    assert_same(found.alarms, right.alarms)


class Server:
    """An altered server that speaks to site a and keeps every number by its time step."""

    def __init__(self, federation):
        self.federation, self.seen, self.codes, self.epoch = federation, {}, [], 0

    def ask(self, kind, values, arrays=None, run="run"):
        payload = encode(Packet(kind, run, "a", values, arrays or {}))
        answer = decode(self.federation.parties["a"].handle(payload))
        if answer.kind == "refusal":
            self.codes.append(answer.values["code"])
        return answer

    def watch(self, start=0, stop=300, interval="1", steps=50, run="run", pieces=None):
        """A whole watch of some steps; whatever it gets is kept."""
        self.ask("watch", {"nonce": "n"}, run=run)
        self.epoch += 1
        axis = {"time_kind": "numbers", "first": str(start), "interval": str(interval)}
        begin, every = Fraction(start), Fraction(interval)
        length = int((stop - begin) / every)
        stretches = {"stretches": np.array([[0, length]], dtype=np.int64)}
        told = self.ask("follow", {"epoch": self.epoch, "steps": steps, **axis}, stretches, run)
        for piece in range(-(-length // steps)) if pieces is None else pieces:
            answer = self.ask("report", {"epoch": self.epoch, "piece": piece}, run=run)
            if answer.kind != "monitor":
                continue
            rows = np.column_stack([answer.arrays["states"], answer.arrays["surprise"]])
            for k, row in enumerate(rows):
                time = begin + (piece * steps + k) * every
                self.seen.setdefault(time, []).append(row)
        return told


def one_row_per_step(seen):
    """All that was obtained of a step is one row of numbers, or the same without its surprise."""
    for rows in seen.values():
        for row in rows[1:]:
            is_same = np.allclose(row, rows[0], rtol=1e-9, atol=1e-12)
            is_less = row[-1] == 0 and np.allclose(row[:-1], rows[0][:-1], rtol=1e-9)
            assert is_same or is_less
    return len(seen)


def test_whatever_a_server_asks_it_gets_every_new_step_once(tmp_path):
    federation, _ = trained(tmp_path, policy=LIMITED, message_steps=100)
    give(federation, NEW)
    server = Server(federation)
    assert server.watch().kind == "done"
    assert one_row_per_step(server.seen) == 300
    assert server.watch(steps=7).kind == "done"  # cut in another way: the same numbers
    assert server.watch(steps=1).kind == "done"
    for start in ("1/20", "1/10"):
        assert server.watch(start=start, stop=299).values["code"] == "policy"  # between the steps
    assert server.watch(interval=2).values["code"] == "data"  # other predecessors
    assert server.watch(interval="1001/1000", stop=290).kind == "refusal"
    assert server.watch(steps=101).values["code"] == "policy"
    assert server.watch(steps=0, pieces=(0,)).values["code"] == "policy"
    assert server.watch(start=-5, stop=300).values["code"] == "invalid"
    assert (
        server.watch(stop=10**9, pieces=(0,)).values["code"] == "invalid"
    )  # before memory is taken
    assert server.watch(run="other").values["code"] == "unknown"  # not the run it learned in
    assert server.watch(start=100).kind == "done"
    client = federation.parties["a"]._client.series.client
    federation.give(LocalSeries(client, np.arange(600)))  # restart
    assert server.watch(pieces=(-1, 0, 5, 6, 10**9)).kind == "done"
    assert one_row_per_step(server.seen) == 300
    assert "invalid" in server.codes


def test_rows_that_change_or_that_another_run_asks_for_are_not_reported_again(tmp_path):
    """A site that let rows be changed under the same time would show other combinations."""
    federation, _ = trained(tmp_path)
    give(federation, NEW.slice(0, 200))
    server = Server(federation)
    assert server.watch(stop=200).kind == "done"
    give(federation, NEW)
    values = NEW["a"].values.copy()
    values[50] += 1.0
    federation.news["a"] = LocalSeries(replace(NEW["a"], values=values), NEW.time)
    assert server.watch(stop=300).values["code"] == "invalid"  # begins before its new rows
    answer = server.ask("watch", {"nonce": "n"})
    assert answer.values["first"] == "200"
    assert server.watch(start=200, stop=300).kind == "done"
    assert one_row_per_step(server.seen) == 300
    answer = server.ask("watch", {"nonce": "n"})  # the same again may be repeated
    assert answer.values["first"] == "200"
    store = Store(DiskFiles(tmp_path / "a"))  # as if another run had learned another readout
    values, arrays = store.load("normal.run")
    store.save("normal.other", {**values, "identity": "x" * 32}, {**arrays})
    answer = server.ask("watch", {"nonce": "n"}, run="other")
    assert answer.values["sentence"] == "it has no new data since it reported last"


def test_a_damaged_record_reports_nothing(tmp_path):
    federation, _ = trained(tmp_path)
    give(federation, NEW)
    server = Server(federation)
    assert server.watch().kind == "done"
    (tmp_path / "a" / "reported").write_bytes(b"FGM1 torn")
    answer = server.ask("watch", {"nonce": "n"})
    assert answer.values["code"] == "policy"
    assert "record of reported steps is damaged" in answer.values["sentence"]


def test_without_the_sites_word_nothing_is_watched(tmp_path):
    closed = SitePolicy(**{**UNLIMITED, "watch": False})
    federation, result = trained(tmp_path, policy=closed)
    give(federation, NEW)
    with pytest.raises(RunStopped, match="client 'a': its policy does not let its new data be wat"):
        federation.watch(knowledge_of(result))
    assert not SitePolicy().watch
    assert load_normal(Store(DiskFiles(tmp_path / "a")), "run") is not None


def test_a_site_that_asks_is_waited_for(tmp_path):
    asking = SitePolicy(**{**UNLIMITED, "ask": True})
    federation, result = trained(tmp_path)
    give(federation, NEW)
    federation.policy = asking
    federation.give(federation.parties["a"]._client.series)
    server = Server(federation)
    assert server.watch().values["code"] == "waiting"
    assert server.seen == {}
    waiting = Store(DiskFiles(tmp_path / "a")).load("waiting")[0]["runs"]["run"]
    assert waiting["options"] == "watch for root causes"
    assert waiting["period"] == "0 to 299, 300 steps of 1"
    Store(DiskFiles(tmp_path / "a")).save("allowed", {"runs": {"run": waiting["question"]}}, {})
    assert federation.watch(knowledge_of(result)).alarms


@pytest.mark.parametrize(
    ("news", "sentence"),
    [
        (lambda panel: LocalSeries(panel["a"], 2 * panel.time), "its own log says why"),
        (lambda panel: LocalSeries(panel.slice(0, 1)["a"], panel.time[:1]), "no new data since"),
    ],
)
def test_new_data_that_do_not_fit_are_explained_at_the_site(tmp_path, news, sentence):
    federation, result = trained(tmp_path)
    give(federation, NEW)
    federation.news["a"] = news(NEW)
    with pytest.raises(RunStopped, match=sentence):
        federation.watch(knowledge_of(result))
    said = "the new data come every 2, those that the run learned from came every 1"
    assert any(said in line for line in federation.log) == ("own log" in sentence)


ROW = {
    "client": "a", "score": 1.0, "ci_low": 0.5, "ci_high": 1.5, "probability": 1.0,
    "surprise": 9.0, "explained": 0.0, "explained_by": None, "onset": None,
}  # fmt: skip
ALARM = {
    "step": 3, "time": "2026-01-01T00:00:30", "num_steps": 50,
    "name": "alarm at step 3", "is_defined": True,
    "ranking": [ROW], "evidence": ["a's own one-step errors are 9 times their usual energy."],
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "null", "[" * 100_000,
        json.dumps({**ALARM, "more": 1}),
        json.dumps({**ALARM, "step": "3"}),
        json.dumps({**ALARM, "num_steps": 1.5}),
        json.dumps({**ALARM, "ranking": []}),
        json.dumps({**ALARM, "ranking": [{**ROW, "score": "high"}]}),
        json.dumps({**ALARM, "ranking": [{**ROW, "score": float("nan")}]}),
        json.dumps({**ALARM, "ranking": [{**ROW, "client": "../a"}]}),
        json.dumps({**ALARM, "evidence": ["\x1b[2J"]}),
        json.dumps({**ALARM, "evidence": ["x" * 2000]}),
        json.dumps({**ALARM, "evidence": 3}),
        json.dumps({**ALARM, "ranking": {"client": ROW}}),
        json.dumps({**ALARM, "ranking": ["client"]}),
        json.dumps({**ALARM, "ranking": [{**ROW, "client": None}]}),
        json.dumps({**ALARM, "ranking": [{**ROW, "client": ["a"]}]}),
        json.dumps({**ALARM, "time": 3}),
    ],
)  # fmt: skip
def test_alarms_are_checked_before_anybody_sees_them(tmp_path, text):
    federation, _ = trained(tmp_path)
    give(federation, NEW)
    server = Server(federation)
    server.watch(pieces=())
    answer = server.ask("alarm", {"epoch": server.epoch, "alarm": text})
    assert answer.values["code"] == "invalid"
    assert federation.alarms["a"] == []


@pytest.mark.parametrize("step", [-1, 10**30, NEW.num_steps])
def test_an_alarm_outside_the_watched_steps_names_no_sensors(tmp_path, step):
    federation, _ = trained(tmp_path)
    give(federation, NEW)
    server = Server(federation)
    server.watch(pieces=())
    text = json.dumps({**ALARM, "step": step})
    assert server.ask("alarm", {"epoch": server.epoch, "alarm": text}).kind == "done"
    assert federation.alarms["a"][-1]["own_sensors"] == []


def test_a_site_keeps_every_alarm_once_with_its_last_ranking(tmp_path):
    assert read_alarms(tmp_path) == []
    alarm = read_alarm(json.dumps(ALARM))
    add_alarm(tmp_path, alarm)
    add_alarm(tmp_path, {**alarm, "step": 90, "time": "2026-01-01T00:15:00"})
    add_alarm(tmp_path, {**alarm, "num_steps": 100, "evidence": ["later"]})
    add_alarm(tmp_path, alarm)  # a message that was on its way for long
    found = read_alarms(tmp_path)
    assert [one["step"] for one in found] == [3, 90]
    assert found[0]["evidence"] == ["later"]
    assert (tmp_path / "alarms.json").stat().st_mode & 0o077 == 0
