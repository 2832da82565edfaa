"""The checkpoint advances with flushes and never covers data that is not durable."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from pyrocket import Store, StoreConfig
from pyrocket.disk import io
from pyrocket.disk.layout import Layout
from pyrocket.disk.shared_state import DISPATCHED, FAILED, PUBLISHED
from pyrocket.errors import StoreFailedError
from pyrocket.formats.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from pyrocket.index.keys.key_index import KeyIndex
from pyrocket.log.valid_end import read_checkpoint, recovery_start
from support.inner import inner
from support.keyed import crash, fill, index_of, limit_index
from support.stores import SMALL, FakeClock, batch, message, numbered, overwrite, words

CONFIG = StoreConfig(log_file_bytes=4096, queue_file_entries=10, flush="manual")


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def store(path, clock):
    store = Store.open(path, create=True, config=CONFIG, clock=clock)
    store.topics.create("t", read_queues=2, write_queues=2)
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


def test_messages_published_during_a_flush_do_not_advance_the_checkpoint(store, clock, monkeypatch):
    """The message is published while the fsync runs: its time must not be in the checkpoint."""
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


def test_queue_entries_are_durable_before_the_checkpoint(store, monkeypatch):
    fill_a_file(store)
    done = []
    for name in ("sync", "rename"):
        real = getattr(io, name)

        def record(*arguments, real=real, name=name):
            place = (
                arguments[-1] if name == "rename" else os.readlink(f"/proc/self/fd/{arguments[0]}")
            )
            done.append((name, str(place)))
            return real(*arguments)

        monkeypatch.setattr(io, name, record)
    store.flush()
    renamed = next(at for at, (name, place) in enumerate(done) if place.endswith("/checkpoint"))
    synced = [place for name, place in done[:renamed] if name == "sync"]
    assert any("commitlog" in place for place in synced)
    queue = store.path / "consumequeue" / "t" / "0"
    assert {str(file) for file in queue.iterdir()} <= set(synced)


def test_entries_missing_after_a_writer_died_postpone_the_checkpoint(store):
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
    assert "was not advanced" in caplog.text
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


def test_recovery_starts_near_the_end_of_a_log_that_was_flushed_regularly(store, clock):
    for _ in range(20):
        fill_a_file(store)
        store.flush()
        clock.now += 10_000
    starts = inner(store).writer.files.log.run.starts()
    begin = recovery_start(inner(store).writer.files.log, checkpoint(store), clean=False)
    assert len(starts) > 20
    assert begin >= starts[-4]


def test_full_index_files_are_durable_before_the_checkpoint(path, clock, monkeypatch):
    """After a crash only the file that was not full is rebuilt."""
    config = replace(SMALL, flush="manual")
    store = Store.open(path, create=True, config=config, clock=clock)
    limit_index(store, put_items=1)
    store.topics.create("t", read_queues=2, write_queues=2)
    index, synced, real = index_of(path), [], io.sync

    def record(descriptor):
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        real(descriptor)

    monkeypatch.setattr(io, "sync", record)
    for turn in range(4):
        clock.now += 1000
        fill(store, 50, 50 * turn)
        full = [name for name in index.names() if index.is_full(index.header(name))]
        before = checkpoint(store).index_timestamp
        again = [name for name in full if index.header(name).end_timestamp >= before]
        synced.clear()
        store.flush()
        assert checkpoint(store).index_timestamp == index.full_until() > before
        assert sorted(set(synced) & set(index.names())) == again
        assert index.names()[-1] not in synced
    kept = index.count_durable(checkpoint(store).index_timestamp)
    survivors = index.names()[:kept]
    assert kept >= 5
    crash(store, path)
    with Store.open(path, config=replace(config, key_index=False), clock=clock) as store:
        assert index.names() == survivors
        assert inner(store).keys.index.full_until() == checkpoint(store).index_timestamp


def test_a_flush_without_a_newly_filled_index_file_keeps_the_index_time_of_the_checkpoint(
    path, clock
):
    store = Store.open(path, create=True, config=replace(SMALL, flush="manual"), clock=clock)
    store.topics.create("t", read_queues=1, write_queues=1)
    fill(store, 60)
    store.close()
    saved = checkpoint(store).index_timestamp
    assert saved > 0
    clock.now += 100_000
    with Store.open(path, clock=clock) as store:
        store.append(message())
        store.flush()
        assert checkpoint(store).log_timestamp == clock.now
        assert checkpoint(store).index_timestamp == saved


def test_a_failed_fsync_of_an_index_file_fails_the_store(store, monkeypatch, path):
    limit_index(store, put_items=1)
    monkeypatch.setattr(KeyIndex, "is_full", lambda index, header: True)
    fill_a_file(store)
    real = io.sync

    def fail(descriptor):
        if "/index/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(io, "sync", fail)
    with pytest.raises(StoreFailedError):
        store.flush()
    assert checkpoint(store).log_timestamp == 0


def test_a_damaged_index_file_does_not_delay_the_checkpoint(store, path, clock):
    limit_index(store, put_items=1)
    fill_a_file(store)
    overwrite(index_of(path).path(index_of(path).names()[-1]), b"\xff" * 40, 0)
    store.flush()
    assert checkpoint(store).log_timestamp == clock.now
    assert checkpoint(store).index_timestamp == 0
    store.close(clean=False)


def test_a_checkpoint_rewritten_by_a_rejected_broker_is_not_trusted(store, clock):
    """RocketMQ loads the store and writes the checkpoint before it tries the lock."""
    fill_a_file(store)
    store.flush()
    ours = checkpoint(store)
    layout = Layout(store.path)
    later = Checkpoint(ours.log_timestamp + 90_000, ours.queue_timestamp + 90_000, 7)
    layout.checkpoint.write_bytes(encode_checkpoint(later))
    assert read_checkpoint(layout) == ours
    earlier = Checkpoint(ours.log_timestamp - 5, ours.queue_timestamp - 9, 0)
    layout.checkpoint.write_bytes(encode_checkpoint(earlier))
    assert read_checkpoint(layout) == earlier
    layout.own_checkpoint.unlink()
    assert read_checkpoint(layout) == earlier
