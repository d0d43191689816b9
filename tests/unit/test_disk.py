"""What is written is whole, or what was there before, and it is on the disk."""

import os
import stat
import threading

import pytest

from fedgranger.disk import append_line, create_private, write_atomically, write_text


@pytest.fixture
def flushed(monkeypatch):
    """Sizes of what is forced to the disk, folders as None."""
    real, sizes = os.fsync, []

    def fsync(descriptor):
        facts = os.fstat(descriptor)
        sizes.append(None if stat.S_ISDIR(facts.st_mode) else facts.st_size)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return sizes


def test_a_file_is_flushed_before_it_has_its_name(tmp_path, flushed):
    write_text(tmp_path / "a.txt", "ä\r\n")
    assert (tmp_path / "a.txt").read_bytes() == "ä\r\n".encode()
    assert flushed == [4, None]


def test_what_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "before")

    def fail(part):
        part.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        write_atomically(path, fail)
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "before"


def test_two_threads_do_not_write_into_each_other(tmp_path):
    path, both = tmp_path / "a.txt", threading.Barrier(2)

    def slow(part, text):
        part.write_text(text)
        both.wait(10)

    texts = ("x" * 1000, "y" * 1000)
    threads = [
        threading.Thread(target=write_atomically, args=(path, lambda part, t=text: slow(part, t)))
        for text in texts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in texts
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]


def test_every_line_is_flushed_and_a_torn_one_ends(tmp_path, flushed):
    path = tmp_path / "a.jsonl"
    append_line(path, "one")
    append_line(path, "two")
    assert flushed == [4, None, 8]
    with path.open("a") as file:
        file.write("tor")
    append_line(path, "three")
    assert path.read_text() == "one\ntwo\ntor\nthree\n"


def test_a_private_file_is_its_owners_only(tmp_path, monkeypatch):
    before = os.umask(0)
    try:
        create_private(tmp_path / "a", b"secret")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full_disk)
    with pytest.raises(OSError, match="No space"):
        create_private(tmp_path / "b", b"secret")
    assert [one.name for one in tmp_path.iterdir()] == ["a"]
