"""The site's own log: every line is chained to the one before it, and none is lost."""

import json
import multiprocessing
import stat

import pytest

from fedgranger.errors import RunError
from fedgranger.federation.audit_log import AuditLog, read_lines, verify


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "audit.jsonl"
    writer = AuditLog(path, map(float, range(100)).__next__)
    for k in range(5):
        writer.add("answered", run="r", kind="states", bytes=k)
    return path


def test_lines_are_private_in_order_and_whole(log):
    assert verify(log) == 5
    assert [line["bytes"] for line in read_lines(log)] == list(range(5))
    assert [line["time"] for line in read_lines(log)] == list(range(5))
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("change", "broken"),
    [
        (lambda lines: [*lines[:2], lines[2].replace('"bytes": 2', '"bytes": 7'), *lines[3:]], 3),
        (lambda lines: [*lines[:-1], lines[-1].replace('"bytes": 4', '"bytes": 7')], 5),
        (lambda lines: [*lines[:1], *lines[2:]], 2),
        (lambda lines: lines[1:], 1),
        (lambda lines: [lines[1], lines[0], *lines[2:]], 1),
        (lambda lines: [*lines[:3], "nonsense", *lines[3:]], 4),
        (lambda lines: [*lines, lines[4][:20]], 6),
    ],
)
def test_a_change_is_found_at_its_line(log, change, broken):
    log.write_text("\n".join(change(log.read_text().splitlines())) + "\n")
    with pytest.raises(RunError, match=f"line {broken} is broken"):
        verify(log)


def test_a_line_torn_by_a_crash_stays_and_the_chain_goes_on(log):
    with log.open("ab") as file:
        file.write(b'{"time": 9, "event": "answ')
    with pytest.raises(RunError, match="line 6 is broken"):
        verify(log)
    AuditLog(log).add("refused", run="r")
    assert verify(log) == 8
    assert [line["event"] for line in read_lines(log)][-2:] == ["mended", "refused"]
    text = log.read_text().replace('"event": "answ\n', '"event": "ansx\n')
    log.write_text(text)
    with pytest.raises(RunError, match="line 6 is broken"):
        verify(log)


def _write(path, who):
    writer = AuditLog(path)
    for k in range(40):
        writer.add("answered", who=who, number=k)


def test_several_processes_write_one_chain(tmp_path):
    path = tmp_path / "audit.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(path, who)) for who in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert verify(path) == 120
    for who in range(3):
        assert [line["number"] for line in read_lines(path) if line["who"] == who] == [*range(40)]


def test_words_of_others_cannot_make_lines(tmp_path):
    path = tmp_path / "audit.jsonl"
    AuditLog(path).add("refused", caller='x"}\n{"event": "answered"' + "y" * 10_000)
    assert verify(path) == 1
    assert len(path.read_bytes()) < 1000
    assert len(json.loads(path.read_text())["caller"]) == 500


def test_no_log_is_an_empty_one(tmp_path):
    assert verify(tmp_path / "none") == 0
    assert list(read_lines(tmp_path / "none")) == []
