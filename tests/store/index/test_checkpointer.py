"""The checkpoint follows the flushes, and never claims more than is durable."""

import errno
import os

import pytest
from pyrocket import Store, StoreConfig
from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.disk.state_page import CHECKPOINTED, DISPATCHED, FAILED, PUBLISHED
from pyrocket.errors import StoreFailedError
from pyrocket.formats.checkpoint import decode_checkpoint
from pyrocket.log.recovery import recovery_start
from stores import FakeClock, batch, message, numbered, words

CONFIG = StoreConfig(log_file_bytes=4096, queue_file_entries=10, flush="manual")


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(path, clock):
    store = Store.open(path, create=True, config=CONFIG, clock=clock)
    store.create_topic("t", read_queues=2, write_queues=2)
    yield store
    store.close()


def checkpoint(store):
    file = Layout(store.path).checkpoint
    return decode_checkpoint(file.read_bytes() if file.exists() else b"")


def fill_a_file(store):
    store.append_batch(batch(numbered(30, 150), 0), topic="t")


def test_a_filled_log_file_moves_the_checkpoint_with_the_next_flush(store, clock):
    fill_a_file(store)
    assert checkpoint(store).log_timestamp == 0
    store.flush()
    known = checkpoint(store)
    assert known.log_timestamp == known.queue_timestamp == clock.now


def test_within_a_file_the_checkpoint_moves_once_a_minute(store, clock):
    store.append(message())
    store.flush()
    assert checkpoint(store).log_timestamp == 0
    clock.now += 59_999
    store.append(message())
    store.flush()
    assert checkpoint(store).log_timestamp == 0
    clock.now += 1
    store.append(message())
    store.flush()
    assert checkpoint(store).log_timestamp == clock.now


def test_the_time_claimed_is_not_that_of_messages_behind_the_flush(store, clock, monkeypatch):
    """Another writer publishes while the fsync runs: its time must not be in the checkpoint."""
    flushed_at, real, others = clock.now, io.sync, []
    fill_a_file(store)

    def publish_meanwhile(descriptor):
        if not others:
            others.append(descriptor)
            clock.now += 100_000
            store.append(message())
        real(descriptor)

    monkeypatch.setattr(io, "sync", publish_meanwhile)
    store.flush()
    assert others
    assert checkpoint(store).log_timestamp == flushed_at


def test_queue_entries_are_durable_before_the_checkpoint_says_so(store, monkeypatch):
    fill_a_file(store)
    done = []
    for name in ("sync", "rename"):
        real = getattr(io, name)

        def note(*arguments, real=real, name=name):
            place = (
                arguments[-1] if name == "rename" else os.readlink(f"/proc/self/fd/{arguments[0]}")
            )
            done.append((name, str(place)))
            return real(*arguments)

        monkeypatch.setattr(io, name, note)
    store.flush()
    renamed = next(at for at, (name, place) in enumerate(done) if place.endswith("/checkpoint"))
    synced = [place for name, place in done[:renamed] if name == "sync"]
    assert any("commitlog" in place for place in synced)
    queue = store.path / "consumequeue" / "t" / "0"
    assert {str(file) for file in queue.iterdir()} <= set(synced)


def test_entries_that_a_dead_writer_left_out_put_the_checkpoint_off(store):
    fill_a_file(store)
    page = words(store.path)
    page[DISPATCHED] = page[PUBLISHED] - 1
    store.flush()
    assert checkpoint(store).log_timestamp == 0
    page[DISPATCHED] = page[PUBLISHED]
    page.close()


def test_a_checkpoint_that_cannot_be_written_does_not_fail_the_flush(store, monkeypatch, caplog):
    fill_a_file(store)
    real = io.write_at

    def full(descriptor, data, offset):
        if "checkpoint" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor, data, offset)

    monkeypatch.setattr(io, "write_at", full)
    store.flush()
    assert "stays behind" in caplog.text
    monkeypatch.setattr(io, "write_at", real)
    store.append(message())
    store.flush()
    assert checkpoint(store).log_timestamp


def test_a_failed_fsync_of_a_queue_fails_the_store(store, monkeypatch):
    fill_a_file(store)
    real = io.sync

    def fail(descriptor):
        if "consumequeue" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(io, "sync", fail)
    with pytest.raises(StoreFailedError):
        store.flush()
    page = words(store.path)
    assert page[FAILED]
    page.close()


def test_recovery_starts_near_the_end_of_a_log_that_was_flushed_all_along(store, clock):
    for _ in range(20):
        fill_a_file(store)
        store.flush()
        clock.now += 10_000
    starts = store._writer._log.run.starts()
    begin = recovery_start(store._writer._log, checkpoint(store), clean=False)
    assert len(starts) > 20
    assert begin >= starts[-4]


def test_queues_are_not_synced_again_from_their_beginning(store, monkeypatch):
    for _ in range(5):
        fill_a_file(store)
    store.flush()
    page = words(store.path)
    assert page[CHECKPOINTED] == page[PUBLISHED]
    page.close()
    synced, real = [], io.sync

    def note(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(io, "sync", note)
    fill_a_file(store)
    store.flush()
    queue_files = sorted((store.path / "consumequeue" / "t" / "0").iterdir())
    assert str(queue_files[-1]) in synced
    assert str(queue_files[0]) not in synced
