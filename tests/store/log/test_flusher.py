"""Appends share fsyncs, and a failed fsync stops the store."""

import threading
import time
from dataclasses import replace

import pytest
from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import FileLock, SharedEvent
from pyrocket.disk.shared_state import (
    APPEND_NS,
    APPENDS,
    FAILED,
    FLUSHED,
    FLUSHED_APPENDS,
    GROUP,
    PUBLISHED,
    SYNC_NS,
    SYNCING,
    WANTED,
)
from pyrocket.errors import StoreFailedError, StoreLockedError
from pyrocket.log import flusher
from support.name_server import wait_until
from support.stores import BY_HAND, SMALL, batch, bodies, message, numbered, words

SECOND = 1_000_000_000


@pytest.fixture
def break_sync(monkeypatch):
    def fail(descriptor):
        raise OSError(5, "Input/output error")

    return lambda: monkeypatch.setattr(io, "sync", fail)


def test_flush_covers_appends_of_all_processes(open_store, path):
    first, second = open_store(), open_store()
    first.append_batch(batch(numbered(50), 0), topic="t")
    page = words(path)
    assert page[FLUSHED] < page[PUBLISHED]
    second.flush()
    assert page[FLUSHED] == page[PUBLISHED]
    page.close()


def test_flushes_of_many_threads_share_an_fsync(store, monkeypatch):
    store.append(message())
    synced, hold = [], threading.Event()
    real = io.sync

    def slow(descriptor):
        synced.append(descriptor)
        hold.wait(5)
        real(descriptor)

    monkeypatch.setattr(io, "sync", slow)
    threads = [threading.Thread(target=store.flush) for _ in range(8)]
    for thread in threads:
        thread.start()
    hold.set()
    for thread in threads:
        thread.join()
    assert len(synced) == 1


@pytest.fixture
def sleeps_long(monkeypatch):
    """Allow long sleeps, so that a thread that is not woken fails the test."""
    monkeypatch.setattr(SharedEvent, "longest_sleep_ns", 200 * SECOND)
    monkeypatch.setattr(flusher, "_LONGEST_GATHER_NS", 200 * SECOND)


@pytest.fixture
def gathering(open_store, path, sleeps_long):
    """A flush of two appends that expects two more, and may wait 100 seconds for them."""
    store, page = open_store(config=BY_HAND), words(path)
    store.append(message())
    store.flush()
    store.append(message())
    store.append(message())
    page[GROUP], page[SYNC_NS], page[APPEND_NS] = 4, 200 * SECOND, SECOND
    yield page, threading.Thread(target=store.flush, daemon=True)
    page.close()


def test_an_fsync_waits_for_as_many_appends_as_the_last_fsync_covered(open_store, gathering):
    page, flush = gathering
    end = page[PUBLISHED]
    flush.start()
    flush.join(0.2)
    assert flush.is_alive()
    assert page[FLUSHED] < end
    others = open_store(config=BY_HAND)
    others.append(message())
    others.append(message())
    flush.join(60)
    assert not flush.is_alive()
    assert page[FLUSHED] == page[PUBLISHED]
    assert page[WANTED] == 0


def test_an_fsync_does_not_wait_for_further_appends_if_appends_take_long(gathering):
    page, flush = gathering
    page[APPEND_NS] = 60 * SECOND
    flush.start()
    flush.join(60)
    assert not flush.is_alive()
    assert page[FLUSHED] == page[PUBLISHED]


def test_the_duration_of_the_exclusive_section_of_an_append_is_recorded(store, path):
    page = words(path)
    store.append(message())
    assert 0 < page[APPEND_NS] < 60 * SECOND
    page.close()


def test_callers_that_wait_for_an_fsync_wake_when_it_ends(
    open_store, path, monkeypatch, sleeps_long
):
    """One store flushes, two wait for its fsync, and two that append later for the next fsync."""
    stores = [open_store(config=BY_HAND) for _ in range(5)]
    begun, end, done = [], threading.Event(), []
    leads, *covered = stores[:3]
    leads.append(message())
    real = io.sync

    def slow(descriptor):
        begun.append(descriptor)
        end.wait(60)
        real(descriptor)

    def flush(store):
        store.flush()
        done.append(store)

    def start(several):
        for store in several:
            threading.Thread(target=flush, args=(store,), daemon=True).start()

    monkeypatch.setattr(io, "sync", slow)
    start([leads])
    wait_until(lambda: begun)
    start(covered)
    for store in stores[3:]:
        store.append(message())
    start(stores[3:])
    time.sleep(0.3)  # All callers are asleep now.
    assert not done
    end.set()
    wait_until(lambda: len(done) == len(stores))
    assert len(begun) == 2


def test_corrupt_flush_statistics_are_harmless(open_store, path):
    with open_store() as store:
        store.append(message())
    page = words(path)
    for word in (APPENDS, FLUSHED_APPENDS, GROUP, SYNC_NS, APPEND_NS, SYNCING, WANTED):
        page[word] = -(2**63)
    page.close()
    with open_store() as store:
        store.append(message())
        store.flush()
    page = words(path)
    assert page[FLUSHED] == page[PUBLISHED]
    page.close()


def test_flush_timeout_is_an_error(open_store, path):
    store = open_store(config=replace(SMALL, lock_timeout_ms=50))
    store.append(message())
    stuck = FileLock(Layout(path).flush_lock)
    assert stuck.try_lock()
    with pytest.raises(StoreLockedError) as caught:
        store.flush()
    assert caught.value.code == caught.value.put_status == "FLUSH_DISK_TIMEOUT"
    stuck.close()
    store.flush()


def test_an_fsync_of_another_process_wakes_waiting_callers(open_store, path):
    """The other process flushes everything and keeps the lock."""
    store = open_store()
    store.append(message())
    other = FileLock(Layout(path).flush_lock)
    assert other.try_lock()
    waiting = threading.Thread(target=store.flush)
    waiting.start()
    page = words(path)
    page[FLUSHED] = page[PUBLISHED]
    page.close()
    waiting.join(10)
    assert not waiting.is_alive()
    other.close()


def test_failed_fsync_stops_every_writer_until_recovery(open_store, path, monkeypatch, break_sync):
    first, second, reader = open_store(), open_store(), open_store(read_only=True)
    first.append(message(b"a"))
    break_sync()
    with pytest.raises(StoreFailedError, match="Input/output"):
        first.flush()
    monkeypatch.setattr(io, "sync", lambda descriptor: None)
    for refused in (
        first.flush,
        second.flush,
        lambda: first.append(message(b"b")),
        lambda: second.append(message(b"b")),
        lambda: second.topics.create("u"),
    ):
        with pytest.raises(StoreFailedError) as caught:
            refused()
        assert caught.value.code == "STORE_FAILED"
    assert bodies(reader)[0] == [b"a"], "readers go on"
    with pytest.raises(StoreLockedError) as caught:
        open_store()
    assert caught.value.code == "STORE_NEEDS_RECOVERY"
    first.close()
    second.close()
    assert (path / "abort").exists(), "a failed store is not shut down cleanly"
    recovered = open_store()
    assert recovered.history.epoch == 1
    recovered.append(message(b"c"))
    recovered.flush()
    assert bodies(recovered)[0] == [b"a", b"c"]
    page = words(path)
    assert page[FAILED] == 0
    page.close()


def test_failed_fsync_of_queues_is_not_a_clean_shutdown(open_store, path, monkeypatch, break_sync):
    store = open_store()
    store.append(message())
    store.flush()
    break_sync()
    with pytest.raises(StoreFailedError, match="indexes"):
        store.close()
    monkeypatch.setattr(io, "sync", lambda descriptor: None)
    assert (path / "abort").exists()
    again = open_store()
    assert again.history.epoch == 1
    assert bodies(again)[0] == [b"x"]
