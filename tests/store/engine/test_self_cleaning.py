"""A store with a retention is cleaned by its writers."""

import os
import time
from collections import Counter
from contextlib import suppress

import pytest
from pyrocket import Retention, Store
from pyrocket.disk import io
from pyrocket.engine.cleaner import local_hour, plan_by_hand
from pyrocket.engine.cleaner import log_files as oldest_first
from pyrocket.errors import StoreUnavailableError
from support.inner import inner
from support.name_server import wait_until
from support.sinks import numbered, publish, stage, staged_files
from support.stores import (
    SMALL,
    batch,
    bodies,
    log_files,
    message,
    scan,
    set_disk_usage,
)
from support.stores import numbered as bodies_of

WEEK_MS = 7 * 24 * 3_600_000


def with_retention(clock, path, **policy):
    config = type(SMALL)(log_file_bytes=4096, queue_file_entries=10, retention=Retention(**policy))
    return Store.open(path, config=config, clock=clock)


def test_a_store_keeps_everything_by_default(aged, path, clock, monkeypatch):
    set_disk_usage(monkeypatch, 990)
    count = len(log_files(path))
    clock.now += 10_000 * 3_600_000
    aged.append(message(b"late", queue_id=0))
    assert len(log_files(path)) == count


def test_a_writer_checks_every_ten_seconds(aged, path, clock, monkeypatch):
    aged.close()
    set_disk_usage(monkeypatch, 500)
    with with_retention(clock, path, hours=50, at_hours=()) as store:
        count = len(log_files(path))
        store.append(message(b"one", queue_id=0))
        assert len(log_files(path)) == count
        set_disk_usage(monkeypatch, 800)
        clock.now += 9999
        store.append(message(b"two", queue_id=0))
        assert len(log_files(path)) == count
        clock.now += 1
        store.append(message(b"three", queue_id=0))
        assert 1 < len(log_files(path)) < count
        assert 30 < store.min_offset("t", 0) <= 50


def test_expired_files_are_deleted_at_the_configured_hour_even_with_free_space(
    aged, path, clock, monkeypatch
):
    aged.close()
    set_disk_usage(monkeypatch, 100)
    hour = local_hour(clock.now)
    count = len(log_files(path))
    for hours, cleaned in (((hour + 1) % 24, False), (hour, True)):
        with with_retention(clock, path, hours=50, at_hours=(hours,)) as store:
            store.append(message(b"one", queue_id=0))
        assert (len(log_files(path)) < count) == cleaned


def test_cleaning_does_not_wait_for_the_write_lock(aged, path, clock, monkeypatch):
    set_disk_usage(monkeypatch, 800)
    aged.close()
    with with_retention(clock, path, hours=0, at_hours=()) as store:
        count = len(log_files(path))
        writer = inner(store).writer
        with aged_turn(path):
            inner(store).cleaner.run_if_due(writer.try_exclusive)
        assert len(log_files(path)) == count
        clock.now += 1001
        store.topics.create("other")
        assert len(log_files(path)) == 1


def aged_turn(path):
    return inner(Store.open(path)).writer.exclusive()


def test_a_full_disk_rejects_appends_until_there_is_room(aged, path, clock, monkeypatch):
    aged.close()
    set_disk_usage(monkeypatch, 950)
    with with_retention(clock, path) as store:
        end = store.max_offset("t", 0)
        with pytest.raises(StoreUnavailableError) as refused:
            store.append(message(b"no", queue_id=0))
        assert (refused.value.code, refused.value.put_status) == (
            "DISK_FULL",
            "SERVICE_NOT_AVAILABLE",
        )
        assert len(bodies(store)[0]) == end - store.min_offset("t", 0)
        set_disk_usage(monkeypatch, 900)
        assert store.append(message(b"yes", queue_id=0)).queue_offset == end


def test_on_a_full_disk_files_are_deleted_once_every_ten_seconds(aged, path, clock, monkeypatch):
    """Other files may fill the disk: repeated appends must not delete the whole log."""
    aged.close()
    set_disk_usage(monkeypatch, 950)
    with with_retention(clock, path, files_per_run=1) as store:
        count = len(log_files(path))
        for _ in range(5):
            with pytest.raises(StoreUnavailableError):
                store.append(message(b"no", queue_id=0))
        assert len(log_files(path)) == count - 1
        clock.now += 10_000
        with pytest.raises(StoreUnavailableError):
            store.append(message(b"no", queue_id=0))
        assert len(log_files(path)) == count - 2


def test_a_failed_cleaning_does_not_fail_an_append(aged, path, clock, monkeypatch):
    aged.close()
    set_disk_usage(monkeypatch, 800)
    with with_retention(clock, path, hours=0, at_hours=()) as store:
        with monkeypatch.context() as patch:
            patch.setattr(io, "unlink", failing)
            end = store.append(message(b"kept", queue_id=0)).queue_offset
        assert scan(store, "t", 0)[-1] == (end, b"kept")
        clock.now += 1001
        store.append(message(b"more", queue_id=0))
        assert len(log_files(path)) == 1


def failing(*_):
    raise OSError(5, "Input/output error")


def tended(store):
    """The store, with a service thread that cleans all the time."""
    inner(store).services.runner.tend_seconds = 0.01
    return store


def test_a_service_thread_cleans_while_no_process_writes(aged, path, clock, monkeypatch):
    aged.close()
    set_disk_usage(monkeypatch, 500)
    with tended(with_retention(clock, path, hours=50, at_hours=())) as store, store.run_services():
        count = len(log_files(path))
        time.sleep(0.1)
        assert len(log_files(path)) == count
        set_disk_usage(monkeypatch, 800)
        clock.now += 10_000
        wait_until(lambda: store.min_offset("t", 0) > 30)


@pytest.fixture
def left_over(aged, clock):
    """A store with a file that was staged a week ago by a process that has ended."""
    stage(aged, numbered(7, identity="gone"), [b"lost"])
    clock.now += WEEK_MS + 1
    return aged


def test_abandoned_staged_files_are_deleted_with_the_next_append(left_over, path, clock):
    """Neither a published batch nor a retention is needed; a younger file is kept."""
    younger = stage(left_over, numbered(8, identity="busy"), [b"soon there"])
    left_over.append(message(b"any", queue_id=0))
    assert staged_files(path) == [younger.name]


def test_a_manual_cleaning_deletes_and_counts_abandoned_staged_files(left_over, path):
    """A manual cleaning looks for such files even if a writer did so a moment ago."""
    before = staged_files(path)
    with Store.open(path, read_only=True, clock=inner(left_over).engine.clock) as reader:
        planned = reader.clean(hours=1000, dry_run=True)
    assert (planned.staged_files, staged_files(path)) == (1, before)
    (path / "pyrocket" / "staging" / "cleaned").touch()
    os.utime(path / "pyrocket" / "staging" / "cleaned", (left_over.now() / 1000,) * 2)
    done = left_over.clean(hours=1000)
    assert (done.staged_files, done.staged_bytes) == (1, planned.staged_bytes)
    assert done.staged_bytes > 0
    assert staged_files(path) == []


def test_on_a_full_disk_staged_files_are_deleted_before_an_append_is_rejected(
    aged, path, clock, monkeypatch
):
    """Files kept for reuse are deleted, too, but not files that are still needed."""
    kept = stage(aged, numbered(9, identity="kept"), [b"for later"])
    publish(aged, 0, [b"x"])
    gone = stage(aged, numbered(7, identity="gone"), [b"lost"])
    os.utime(path / "pyrocket" / "staging" / gone.name, (0, 0))
    publish(aged, 1, [b"x"])
    free = path / "pyrocket" / "staging" / "free"
    assert list(free.iterdir())
    assert gone.name in staged_files(path), "writers look for such files once an hour"
    set_disk_usage(monkeypatch, 950)
    with with_retention(clock, path) as store:
        one = numbered(2)
        staged = stage(store, one, [b"wanted"])
        with pytest.raises(StoreUnavailableError, match="DISK_FULL"):
            store.sink.publish(one, [staged])
        assert staged_files(path) == sorted([kept.name, staged.name])
        assert not free.exists()


def test_leftovers_that_cannot_be_deleted_do_not_fail_an_append(
    left_over, path, monkeypatch, caplog
):
    with monkeypatch.context() as patch:
        patch.setattr(io, "unlink", failing)
        left_over.append(message(b"kept", queue_id=0))
    assert "leftovers" in caplog.text
    with suppress(FileNotFoundError):
        (path / "pyrocket" / "staging" / "cleaned").unlink()
    left_over.clean(hours=1000)
    assert staged_files(path) == []


def test_a_cleaning_opens_each_queue_once(path, clock, monkeypatch):
    """More queues than may be open at a time: 64. The write lock is held meanwhile."""
    opened, open_file, queues = Counter(), io.open_file, 100
    with Store.open(path, create=True, config=SMALL, clock=clock) as store:
        store.topics.create("t", read_queues=queues, write_queues=queues)
        for _ in range(3):
            store.append_batch(batch(bodies_of(queues), list(range(queues))), topic="t")
        store.flush()
        writer = inner(store).writer
        plan = plan_by_hand(oldest_first(writer.files.log), 0, hours=None, total_bytes=8192)
        monkeypatch.setattr(
            io, "open_file", lambda *file: opened.update([str(file[0])]) or open_file(*file)
        )
        with writer.exclusive():
            writer.cleaner.remove(plan)
        assert len(log_files(path)) == 2
        assert {count for name, count in opened.items() if "/consumequeue/" in name} == {1}
