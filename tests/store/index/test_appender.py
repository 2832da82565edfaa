"""Appends that fail in the middle of the exclusive section, and how the next append recovers."""

import errno
import os

import pytest
from pyrocket import Store
from pyrocket.disk import io
from pyrocket.disk.shared_state import DISPATCHED, PUBLISHED, RESERVED
from pyrocket.errors import StoreUnavailableError
from support.keyed import OFF
from support.stores import (
    SMALL,
    batch,
    bodies,
    filled,
    log_files,
    message,
    numbered,
    overwrite,
    queue_files,
    reboot,
    words,
)

ROWS = numbered(12, 600)


def count_writes(monkeypatch, action):
    """Return how often `action` writes to a file."""
    calls = []
    real = io.write_at
    with monkeypatch.context() as patch:
        patch.setattr(io, "write_at", lambda *given: (calls.append(1), real(*given)))
        action()
    return len(calls)


def fail_write(patch, number, half):
    """Make the write with this number fail; with `half`, half of its bytes are written first."""
    real, calls = io.write_at, []

    def write(descriptor, data, offset):
        calls.append(1)
        if len(calls) == number:
            if half:
                real(descriptor, memoryview(data).cast("B")[: len(data) // 2], offset)
            raise OSError(28, "No space left on device")
        real(descriptor, data, offset)

    patch.setattr(io, "write_at", write)


@pytest.mark.parametrize("half", [False, True])
def test_a_failed_write_is_invisible_and_the_next_append_works(open_store, monkeypatch, half):
    """One after the other, each write of a batch that spans several log and queue files fails."""
    store = open_store(config=OFF)
    send = lambda: store.append_batch(batch(ROWS, 0), topic="t")  # noqa: E731
    send()
    expected = list(ROWS)
    writes = count_writes(monkeypatch, send)
    expected += ROWS
    codes = set()
    for number in range(1, writes + 1):
        with monkeypatch.context() as patch:
            fail_write(patch, number, half)
            with pytest.raises(StoreUnavailableError, match="No space left") as caught:
                send()
        codes.add(caught.value.code)
        if caught.value.code == "QUEUES_NOT_WRITTEN":
            expected += ROWS  # The rows are in the log: sending them again would duplicate them.
        else:
            assert bodies(store)[0] == expected
        assert bodies(store)[0] == expected[: len(bodies(store)[0])]
        store.append(message(b"next"))
        expected.append(b"next")
        assert bodies(store)[0] == expected
    assert codes == {"WRITE_FAILED", "QUEUES_NOT_WRITTEN"}


def test_an_append_that_cannot_create_a_file_leaves_no_temporary_files(store, path, monkeypatch):
    store.append(message())
    with monkeypatch.context() as patch:
        patch.setattr(io, "set_length", lambda *given: (_ for _ in ()).throw(OSError(28, "full")))
        for _ in range(3):
            with pytest.raises(StoreUnavailableError):
                store.append_batch(batch(ROWS, 0), topic="t")
    assert list((path / "pyrocket" / "tmp").iterdir()) == []


def test_reserved_bytes_of_a_dead_writer_are_erased(store, path):
    store.append(message(b"kept"))
    page = words(path)
    end = page[PUBLISHED]
    overwrite(log_files(path)[0], b"\xab" * 300, end - 4096)
    stray = path / "commitlog" / f"{8192:020d}"
    stray.write_bytes(b"\xab" * 4096)
    page[RESERVED] = 8192 + 100
    result = store.append(message(b"next"))
    assert result.physical_offset == end
    assert not stray.exists()
    tail = log_files(path)[0].read_bytes()[page[PUBLISHED] - 4096 :]
    assert not tail.strip(b"\0")
    assert page[RESERVED] == page[PUBLISHED] == page[DISPATCHED]
    page.close()
    assert bodies(store)[0] == [b"kept", b"next"]


@pytest.mark.parametrize("kept", [0, 8, 12, 20])
def test_a_torn_queue_entry_is_rewritten(store, path, kept):
    """A writer that is killed may have written the size in an entry, but not the tags code."""
    for n in range(3):
        store.append(message(b"%d" % n, tags="TagA"))
    whole = queue_files(path)[0].read_bytes()
    page = words(path)
    page[DISPATCHED] = store.read("t", 0, 2)[0].physical_offset
    overwrite(queue_files(path)[0], bytes(20 - kept), 40 + kept)
    store.append(message(b"3", tags="TagA"))
    assert queue_files(path)[0].read_bytes()[:60] == whole[:60]
    assert bodies(store)[0] == [b"0", b"1", b"2", b"3"]
    assert page[DISPATCHED] == page[PUBLISHED]
    page.close()


def test_published_but_undispatched_messages_become_visible_with_the_next_append(open_store, path):
    store, other = open_store(), open_store()
    store.append_batch(batch(numbered(25), 0), topic="t")
    page = words(path)
    page[DISPATCHED] = store.read("t", 0, 4)[0].physical_offset
    for file in queue_files(path)[1:]:
        file.unlink()
    overwrite(queue_files(path)[0], bytes(120), 80)
    assert len(bodies(other)[0]) == 4
    other.topics.create("u")
    assert bodies(store)[0] == numbered(25)
    page.close()


def test_a_batch_of_several_topics_becomes_visible_atomically(open_store, path, monkeypatch):
    store, reader = open_store(), open_store(read_only=True)
    for topic in "ab":
        store.topics.create(topic, read_queues=1, write_queues=1)
    real, seen = io.write_at, []

    def write(*given):
        real(*given)
        seen.append((reader.max_offset("a", 0), reader.max_offset("b", 0)))

    monkeypatch.setattr(io, "write_at", write)
    store.append_batch(batch(ROWS, 0, topic=list("ab" * 6)))
    # The last three writes are those of the key index, when the batch is visible.
    assert set(seen[:-3]) == {(0, 0)}
    assert set(seen[-3:]) == {(6, 6)}
    assert reader.max_offset("a", 0) == reader.max_offset("b", 0) == 6


def test_a_failed_append_does_not_reappear_after_a_reboot(path, monkeypatch):
    """The append filled one log file; the next file did not fit on the disk."""
    store = filled(path, count=5)
    real, files = io.write_at, set()

    def full(descriptor, data, offset):
        file = os.readlink(f"/proc/self/fd/{descriptor}")
        if "commitlog" in file and b"UNIQ_KEY" in bytes(data):  # Neither blanks nor zeros.
            files.add(file)
            if len(files) > 1:
                raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(io, "write_at", full)
        with pytest.raises(StoreUnavailableError, match="WRITE_FAILED"):
            store.append_batch(batch(numbered(60, first=5), 0), topic="t")
    store.close(clean=False)
    reboot(path)
    with Store.open(path, config=SMALL) as recovered:
        assert bodies(recovered)[0] == numbered(5)
