"""The flush thread: flushes follow an append soon; appends wait for an fsync only with a limit."""

import errno
import threading
import time
from dataclasses import replace

import pytest
from pyrocket.broker.broker import Broker
from pyrocket.disk import io
from pyrocket.disk.file_queue import FileQueue
from pyrocket.disk.shared_state import FAILED, FLUSHED, PUBLISHED
from pyrocket.errors import OptionError, StoreFailedError
from pyrocket.log import flusher
from pyrocket.log.flusher import FlushPolicy
from pyrocket.values.message import SendStatus
from support.name_server import wait_until
from support.stores import SMALL, message, words

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
    page = words(path)
    wait_until(lambda: page[FLUSHED] >= page[PUBLISHED])
    page.close()


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


@pytest.mark.parametrize(
    "error",
    [
        *(OSError(one, "no more") for one in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)),
        KeyError("defect"),
    ],
)
def test_the_flush_thread_survives_an_error_before_an_fsync(
    open_store, path, monkeypatch, caplog, error
):
    store = open_store(config=QUICK)
    broker, tries = Broker(store), []
    monkeypatch.setattr(flusher, "RETRY_S", 0.01)
    with monkeypatch.context() as fails:

        def fail(*given):
            tries.append(given)
            raise error

        fails.setattr(FileQueue, "sync", fail)
        store.append(message())
        wait_until(lambda: len(tries) > 3)
        assert broker.trouble == f"flushing the log failed: {error}"
        assert broker.failed_rounds()["flushes"] >= 3
    await_flush(path)
    wait_until(lambda: not broker.trouble)
    assert len([one for one in caplog.records if "flushing the log" in one.message]) == 1
    assert store.append(message()).status is SendStatus.SEND_OK
    broker.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_end_of_the_flush_thread_is_reported_as_trouble(open_store, monkeypatch):
    broker = Broker(open_store(config=QUICK))

    def dies(*given):
        raise SystemExit

    with monkeypatch.context() as fails:
        fails.setattr(FileQueue, "sync", dies)
        broker.store.append(message())
        wait_until(lambda: broker.trouble == "the thread of flushes has ended")
    broker.close()


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_an_append_succeeds_without_a_flush_thread(open_store, path, monkeypatch, flush):
    store = open_store(config=replace(QUICK, flush=flush))
    with monkeypatch.context() as limit:

        def refuse(thread):
            raise RuntimeError("can't start new thread")

        limit.setattr(threading.Thread, "start", refuse)
        assert store.append(message()).status is SendStatus.SEND_OK
    store.append(message())
    await_flush(path)


def test_a_failed_background_fsync_is_logged_raised_by_the_next_append_and_not_repeated(
    open_store, path, monkeypatch, caplog
):
    store = open_store(config=QUICK)
    store.append(message())
    await_flush(path)
    tries = []

    def fail(descriptor):
        tries.append(descriptor)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(flusher, "RETRY_S", 0.001)
    monkeypatch.setattr(io, "sync", fail)
    store.append(message())
    page = words(path)
    wait_until(lambda: page[FAILED])
    page.close()
    time.sleep(0.1)
    assert len(tries) == 1
    (logged,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert "fsync of the log failed" in logged.message
    with pytest.raises(StoreFailedError):
        store.append(message())


@pytest.fixture
def slow_disk(open_store, monkeypatch):
    """A store whose appends wait 100 ms for an fsync, and a disk whose next fsync hangs."""
    store = open_store(config=replace(SMALL, flush="sync", flush_timeout_ms=100))
    store.append(message())
    leave, real = threading.Event(), io.sync

    def slow(descriptor):
        leave.wait(1)
        real(descriptor)

    monkeypatch.setattr(io, "sync", slow)
    yield store, leave
    leave.set()


def test_an_append_returns_after_the_flush_timeout_while_an_fsync_hangs(slow_disk, path):
    store, leave = slow_disk
    for number in (1, 2):
        sent = store.append(message())
        assert (sent.status, sent.queue_offset) == (SendStatus.FLUSH_DISK_TIMEOUT, number)
    leave.set()
    await_flush(path)
    assert store.append(message()).status is SendStatus.SEND_OK


def test_a_failed_fsync_is_reported_to_every_waiting_append(open_store, path, monkeypatch):
    store = open_store(config=replace(SMALL, flush="sync", flush_timeout_ms=30_000))
    store.append(message())
    leave, errors = threading.Event(), []

    def fail(descriptor):
        leave.wait(60)
        raise OSError(5, "Input/output error")

    def append():
        try:
            store.append(message())
        except StoreFailedError as error:
            errors.append(str(error))

    monkeypatch.setattr(io, "sync", fail)
    threads = [threading.Thread(target=append) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: store.max_offset("t", 0) == 4)
    leave.set()
    for thread in threads:
        thread.join(60)
    assert len(errors) == 3
    assert all("Input/output error" in one for one in errors)
