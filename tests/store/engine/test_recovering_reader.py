"""A reader waits during a recovery, which truncates and rebuilds the queues."""

import errno
import os
import signal
import threading
from contextlib import contextmanager, nullcontext

import pytest
from pyrocket import Message, Store
from pyrocket.disk.lock import FileLock
from pyrocket.disk.shared_state import STATE_FORMAT, SharedState
from pyrocket.engine import reader, recovery
from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError, StoreUnavailableError
from pyrocket.index.queues import rebuild, scanner
from pyrocket.tools.verify.verify import verify
from support.inner import inner
from support.stores import reboot


@pytest.fixture
def root(tmp_path):
    with Store.open(tmp_path / "store", create=True) as store:
        for number in range(100):
            store.append(Message(topic="T", body=b"%d" % number, queue_id=0))
    return tmp_path / "store"


def impatient(root):
    """A reader that waits only a fifth of a second for a recovery to end."""
    store = Store.open(root, read_only=True)
    inner(store).reader.recovery_seconds = 0.2
    return store


@contextmanager
def alone(root):
    """Hold the store exclusively, like a process that recovers the store."""
    lock = FileLock(root / "lock")
    assert lock.try_lock()
    try:
        yield
    finally:
        lock.close()


def die_in_a_recovery(root, where=recovery, step="keep_tail"):
    """Kill a writer, and then, at a step of the recovery, the process that recovers the store."""
    store = Store.open(root)
    for number in range(100, 105):
        store.append(Message(topic="T", body=b"%d" % number, queue_id=0))
    store.close(clean=False)
    reboot(root)
    child = os.fork()
    if not child:
        setattr(where, step, lambda *given: os.kill(os.getpid(), signal.SIGKILL))
        Store.open(root)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_only_durable_messages_are_read_after_a_writer_was_killed_in_a_recovery(root):
    """The next recovery may truncate later messages, which therefore must not be visible."""
    with impatient(root) as before:
        assert before.max_offset("T", 0) == 100
        die_in_a_recovery(root)
        with impatient(root) as after:
            for store in (before, after):
                assert store.max_offset("T", 0) == 100
                assert store.history.recovery_is_interrupted
                assert len(store.read("T", 0, 0, 1000)) == 100
                assert store.history.epoch == 0
                assert store.position() == store.position()
            known = after.position()
            Store.open(root).close()
            assert after.position() != known
            assert not after.history.recovery_is_interrupted
            assert [store.max_offset("T", 0) for store in (before, after)] == [105, 105]


def test_queues_that_a_killed_recovery_truncated_are_not_read(root):
    """Otherwise a batch read would skip messages, and a new stream would start too early."""
    die_in_a_recovery(root, rebuild._Recovery, "_complete_queues")
    with Store.open(root, read_only=True) as store:
        for _ in range(2):
            with pytest.raises(StoreUnavailableError, match="STORE_RECOVERING"):
                store.offsets("T")
        Store.open(root).close()
        assert store.max_offset("T", 0) == 105


@pytest.mark.parametrize("broker", ["runs", "has ended"])
def test_readers_do_not_wait_for_a_killed_recovery_after_a_broker_started(root, broker):
    """The broker recovers the store itself, and has changed the lock file."""
    die_in_a_recovery(root)
    os.utime(root / "lock", ns=(1, 1))
    held = alone(root) if broker == "runs" else nullcontext()
    with held, impatient(root) as store:
        assert store.max_offset("T", 0) == 105
        assert not store.history.recovery_is_interrupted


def test_a_reader_waits_for_a_recovery_if_no_durable_end_is_known(root):
    die_in_a_recovery(root)
    (root / "pyrocket/ends.json").unlink()
    waits = pytest.raises(StoreUnavailableError, match="STORE_RECOVERING")
    with impatient(root) as store, waits:
        store.offsets("T")


def test_verify_reports_an_unfinished_recovery(root):
    page = SharedState(root / "pyrocket/state", writable=True)
    assert not [one for one in verify(root).findings if one.code == "NOT_RECOVERED"]
    page.invalidate()
    page.close()
    report = verify(root)
    assert report.ok
    (found,) = [one for one in report.findings if one.code == "NOT_RECOVERED"]
    assert (found.severity.value, found.file) == ("note", "pyrocket/state")
    Store.open(root).close()
    assert not [one for one in verify(root).findings if one.code == "NOT_RECOVERED"]


def test_a_reader_sees_complete_queues_before_and_after_a_recovery(root, monkeypatch):
    started, finish = threading.Event(), threading.Event()
    restore_cursors = recovery.restore_cursors

    def slow(*arguments):
        started.set()
        finish.wait(10)
        return restore_cursors(*arguments)

    monkeypatch.setattr(recovery, "restore_cursors", slow)
    page = SharedState(root / "pyrocket/state", writable=True)
    with Store.open(root, read_only=True) as looking:
        assert looking.max_offset("T", 0) == 100
        page[0] = 0
        thread = threading.Thread(target=lambda: Store.open(root).close())
        thread.start()
        started.wait(10)
        timer = threading.Timer(0.2, finish.set)
        timer.start()
        assert looking.max_offset("T", 0) == 100
        assert finish.is_set()
        thread.join()
    page.close()


@pytest.mark.parametrize("can_tell", [True, False])
def test_a_reader_reports_a_recovery_that_never_ends(root, monkeypatch, can_tell):
    if not can_tell:
        monkeypatch.setattr(reader, "is_locked", lambda path: None)
    page = SharedState(root / "pyrocket/state", writable=True)
    page.invalidate()
    page.close()
    with impatient(root) as store:
        with alone(root), pytest.raises(StoreUnavailableError, match="STORE_RECOVERING"):
            store.offsets("T")
        Store.open(root).close()
        assert store.max_offset("T", 0) == 100


def test_a_scan_during_a_recovery_reads_the_queue_again(root):
    """The range was checked before; during the scan, the entries are truncated and rewritten."""
    queue_file = next((root / "consumequeue" / "T" / "0").iterdir())
    entries = queue_file.read_bytes()
    page = SharedState(root / "pyrocket/state", writable=True)
    with Store.open(root, read_only=True) as looking:
        inner(looking).scanner.entries_at_once = 10
        batches = looking.scan("T", 0, 0, 100, ["queueOffset"])
        rows = next(batches).num_rows
        page.invalidate()
        queue_file.write_bytes(bytes(len(entries)))

        def finish():
            queue_file.write_bytes(entries)
            page[0] = STATE_FORMAT

        timer = threading.Timer(0.2, finish)
        with alone(root):
            timer.start()
            assert rows + sum(batch.num_rows for batch in batches) == 100
            timer.join()
        assert page[0] == STATE_FORMAT
        queue_file.write_bytes(bytes(len(entries)))
        with pytest.raises(OffsetOutOfRangeError):
            list(looking.scan("T", 0, 0, 100, ["queueOffset"]))
        queue_file.write_bytes(entries)
    page.close()


def test_messages_read_during_a_recovery_are_read_again(root, monkeypatch):
    queue_file = next((root / "consumequeue" / "T" / "0").iterdir())
    entries, real = queue_file.read_bytes(), scanner.read_messages
    page = SharedState(root / "pyrocket/state", writable=True)

    def finish():
        queue_file.write_bytes(entries)
        page[0] = STATE_FORMAT

    timer = threading.Timer(0.2, finish)

    def begin(*arguments):
        monkeypatch.setattr(reader, "read_messages", real)
        page.invalidate()
        queue_file.write_bytes(bytes(len(entries)))
        timer.start()
        return real(*arguments)

    monkeypatch.setattr(reader, "read_messages", begin)
    with Store.open(root, read_only=True) as looking:
        with alone(root):
            assert len(looking.read("T", 0, 0, 100)) == 100
            timer.join()
        queue_file.write_bytes(entries[:40] + bytes(20) + entries[60:])
        with pytest.raises(StoreDamagedError):
            looking.read("T", 0, 0, 100)
    page.close()


def test_readers_do_not_wait_for_a_recovery_that_failed(root, monkeypatch):
    """A recovery may fail on a full disk; the store is still readable."""

    def no_space(*arguments, **named):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pyrocket.engine.recovery.QueueEnds.save", no_space)
    reboot(root)
    with pytest.raises(StoreUnavailableError, match="No space left"):
        Store.open(root)
    with impatient(root) as looking:
        assert len(looking.read("T", 0, 0, 100)) == 100
