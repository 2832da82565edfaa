"""Asynchronous flushes follow an append soon, and appends do not wait for them."""

import threading
import time
from dataclasses import replace

import pytest
from pyrocket.disk import io
from pyrocket.disk.shared_state import FAILED, FLUSHED, PUBLISHED
from pyrocket.errors import OptionError, StoreFailedError
from pyrocket.log.flusher import FlushPolicy
from support.stores import SMALL, batch, message, numbered, words

POLICY = FlushPolicy(interval_ms=500, least_pages=4, thorough_ms=10_000)
QUICK = replace(SMALL, flush="async", flush_interval_ms=5, flush_thorough_interval_ms=20)


@pytest.mark.parametrize(
    ("dirty", "elapsed", "due"),
    [
        (0, 60_000, False),
        (1, 499, False),
        (4 * 4096, 499, False),
        (4 * 4096, 500, True),
        (4 * 4096 - 1, 500, False),
        (1, 9_999, False),
        (1, 10_000, True),
    ],
)
def test_a_flush_is_due_after_enough_dirty_pages_or_after_the_thorough_interval(
    dirty, elapsed, due
):
    assert POLICY.is_due(dirty, elapsed) == due


@pytest.mark.parametrize("name", ["flush_interval_ms", "flush_thorough_interval_ms"])
def test_an_interval_of_zero_is_rejected(name):
    with pytest.raises(OptionError, match=name):
        replace(SMALL, **{name: 0})


def await_flush(path):
    page, deadline = words(path), time.monotonic() + 60
    while page[FLUSHED] < page[PUBLISHED]:
        assert time.monotonic() < deadline, "no flush happened"
        time.sleep(0.002)
    page.close()


def test_appended_messages_are_flushed_without_a_request(open_store, path):
    store = open_store(config=QUICK)
    for count in (1, 100, 1):
        store.append_batch(batch(numbered(count), 0), topic="t")
        await_flush(path)


def test_an_append_does_not_wait_for_the_flush(open_store, path, monkeypatch):
    store = open_store(config=QUICK)
    store.append(message())
    await_flush(path)
    entered, leave, real = threading.Event(), threading.Event(), io.sync

    def slow(descriptor):
        entered.set()
        assert leave.wait(10)
        real(descriptor)

    monkeypatch.setattr(io, "sync", slow)
    store.append(message())
    assert entered.wait(10)
    assert store.append(message()).queue_offset == 2
    leave.set()
    await_flush(path)


def flush_threads():
    return {one for one in threading.enumerate() if one.name == "pyrocket-flush"}


def test_with_manual_flush_nothing_is_flushed_before_a_request(open_store, path):
    before = flush_threads()
    store = open_store(config=replace(QUICK, flush="manual"))
    store.append(message())
    assert flush_threads() == before
    time.sleep(0.05)
    page = words(path)
    assert page[FLUSHED] < page[PUBLISHED]
    page.close()
    store.flush()
    await_flush(path)


def test_closing_a_store_ends_its_flush_thread(open_store):
    before = flush_threads()
    store = open_store(config=QUICK)
    store.append(message())
    assert flush_threads() > before
    store.close()
    assert flush_threads() == before


def test_failed_background_flush_is_raised_by_the_next_append(open_store, path, monkeypatch):
    store = open_store(config=QUICK)
    store.append(message())
    await_flush(path)
    failed = threading.Event()

    def fail(descriptor):
        failed.set()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(io, "sync", fail)
    store.append(message())
    assert failed.wait(10)
    page, deadline = words(path), time.monotonic() + 60
    while not page[FAILED]:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    page.close()
    with pytest.raises(StoreFailedError):
        store.append(message())
