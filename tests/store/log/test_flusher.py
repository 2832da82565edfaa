"""Durability: one fsync for all, and what a failed one means."""

import threading
from dataclasses import replace

import pytest
from pyrocket.disk import bell, io
from pyrocket.disk.layout import Layout
from pyrocket.disk.lock import FileLock
from pyrocket.disk.state_page import (
    APPEND_NS,
    FAILED,
    FLUSHED,
    GROUP,
    PUBLISHED,
    SYNC_NS,
)
from pyrocket.errors import StoreFailedError, StoreLockedError
from pyrocket.log import flusher
from pyrocket.message import SendStatus
from stores import SMALL, batch, bodies, message, numbered, words

SECOND = 1_000_000_000


@pytest.fixture
def break_sync(monkeypatch):
    def fail(descriptor):
        raise OSError(5, "Input/output error")

    return lambda: monkeypatch.setattr(io, "sync", fail)


def test_flush_reaches_what_was_published_by_anybody(open_store, path):
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
def gathering(store, path, monkeypatch):
    """A flush of this store that waits for the third and the fourth append, for ever."""
    monkeypatch.setattr(flusher, "_LONGEST_GATHER_NS", 60 * SECOND)
    monkeypatch.setattr(bell, "_LONGEST_SLEEP_NS", 20 * SECOND)
    store.append(message())
    store.flush()
    page = words(path)
    page[GROUP], page[SYNC_NS], page[APPEND_NS] = 4, 200 * SECOND, SECOND
    store.append(message())
    store.append(message())
    yield page, threading.Thread(target=store.flush)
    page.close()


def test_an_fsync_waits_for_as_many_appends_as_the_last_one_had(store, gathering):
    page, flush = gathering
    end = page[PUBLISHED]
    flush.start()
    flush.join(0.2)
    assert flush.is_alive()
    assert page[FLUSHED] < end
    store.append(message())
    store.append(message())
    store.flush()
    flush.join(10)
    assert not flush.is_alive()


def test_an_fsync_is_for_half_of_the_appends_if_all_take_longer_than_it(store, gathering):
    page, flush = gathering
    page[APPEND_NS] = 60 * SECOND
    flush.start()
    flush.join(10)
    assert not flush.is_alive()
    assert page[FLUSHED] == page[PUBLISHED]


def test_flush_that_waits_too_long_says_so(open_store, path):
    store = open_store(config=replace(SMALL, lock_timeout_ms=50))
    store.append(message())
    stuck = FileLock(Layout(path).flush_lock)
    assert stuck.try_lock()
    with pytest.raises(StoreLockedError) as caught:
        store.flush()
    assert caught.value.code == caught.value.put_status == "FLUSH_DISK_TIMEOUT"
    stuck.close()
    store.flush()


def test_a_sync_append_that_cannot_be_flushed_in_time_is_stored_and_says_so(open_store, path):
    store = open_store(config=replace(SMALL, flush="sync", flush_timeout_ms=50))
    assert store.append(message(b"a")).status == SendStatus.SEND_OK
    stuck = FileLock(Layout(path).flush_lock)
    assert stuck.try_lock()
    assert store.append(message(b"b")).status == SendStatus.FLUSH_DISK_TIMEOUT
    late = store.append_batch(batch([b"c"], 0), topic="t")
    assert late.status == SendStatus.FLUSH_DISK_TIMEOUT
    stuck.close()
    assert bodies(store)[0] == [b"a", b"b", b"c"]
    assert store.append(message(b"d")).status == SendStatus.SEND_OK


def test_who_waits_for_another_process_fsync_is_served_by_it(open_store, path):
    """The other process flushes everything, and goes on holding the lock."""
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
        lambda: second.create_topic("u"),
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
    assert (path / "abort").exists(), "that was no clean end"
    recovered = open_store()
    assert recovered.epoch == 1
    recovered.append(message(b"c"))
    recovered.flush()
    assert bodies(recovered)[0] == [b"a", b"c"]
    page = words(path)
    assert page[FAILED] == 0
    page.close()


def test_failed_fsync_of_queues_is_no_clean_end(open_store, path, monkeypatch, break_sync):
    store = open_store()
    store.append(message())
    store.flush()
    break_sync()
    with pytest.raises(StoreFailedError, match="indexes"):
        store.close()
    monkeypatch.setattr(io, "sync", lambda descriptor: None)
    assert (path / "abort").exists()
    again = open_store()
    assert again.epoch == 1
    assert bodies(again)[0] == [b"x"]
