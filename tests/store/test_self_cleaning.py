"""A store with a retention cleans itself while it is written."""

import time

import pytest
from pyrocket import Retention, Store, service_runner
from pyrocket.disk import io, space
from pyrocket.errors import StoreUnavailableError
from pyrocket.services.retention import local_hour
from stores import SMALL, bodies, log_files, message, scan


def usage(monkeypatch, ratio):
    monkeypatch.setattr(space, "_usage", lambda folder: space.DiskUsage(int(ratio * 1000), 1000))


def with_retention(clock, path, **policy):
    config = type(SMALL)(log_file_bytes=4096, queue_file_entries=10, retention=Retention(**policy))
    return Store.open(path, config=config, clock=clock)


def test_a_store_keeps_everything_unless_told_otherwise(aged, path, clock, monkeypatch):
    usage(monkeypatch, 0.99)
    count = len(log_files(path))
    clock.now += 10_000 * 3_600_000
    aged.append(message(b"late", queue_id=0))
    assert len(log_files(path)) == count


def test_a_writer_looks_every_ten_seconds(aged, path, clock, monkeypatch):
    aged.close()
    usage(monkeypatch, 0.50)
    with with_retention(clock, path, hours=50, at_hours=()) as store:
        count = len(log_files(path))
        store.append(message(b"one", queue_id=0))
        assert len(log_files(path)) == count
        usage(monkeypatch, 0.80)
        clock.now += 9999
        store.append(message(b"two", queue_id=0))
        assert len(log_files(path)) == count
        clock.now += 1
        store.append(message(b"three", queue_id=0))
        assert 1 < len(log_files(path)) < count
        assert 30 < store.min_offset("t", 0) <= 50


def test_at_the_hour_old_files_go_on_a_disk_with_room(aged, path, clock, monkeypatch):
    aged.close()
    usage(monkeypatch, 0.10)
    hour = local_hour(clock.now)
    count = len(log_files(path))
    for hours, cleaned in (((hour + 1) % 24, False), (hour, True)):
        with with_retention(clock, path, hours=50, at_hours=(hours,)) as store:
            store.append(message(b"one", queue_id=0))
        assert (len(log_files(path)) < count) == cleaned


def test_cleaning_waits_for_nobody(aged, path, clock, monkeypatch):
    usage(monkeypatch, 0.80)
    aged.close()
    with with_retention(clock, path, hours=0, at_hours=()) as store:
        count = len(log_files(path))
        writer = store._writing()
        with aged_turn(path):
            writer._cleaner.run_if_due(lambda: writer._turn(0))
        assert len(log_files(path)) == count
        clock.now += 1001
        store.create_topic("other")
        assert len(log_files(path)) == 1


def aged_turn(path):
    return Store.open(path)._writing().section()


def test_a_full_disk_refuses_appends_until_there_is_room(aged, path, clock, monkeypatch):
    aged.close()
    usage(monkeypatch, 0.95)
    with with_retention(clock, path) as store:
        end = store.max_offset("t", 0)
        with pytest.raises(StoreUnavailableError) as refused:
            store.append(message(b"no", queue_id=0))
        assert (refused.value.code, refused.value.put_status) == (
            "DISK_FULL",
            "SERVICE_NOT_AVAILABLE",
        )
        assert len(bodies(store)[0]) == end - store.min_offset("t", 0)
        usage(monkeypatch, 0.90)
        assert store.append(message(b"yes", queue_id=0)).queue_offset == end


def test_on_a_full_disk_no_more_goes_in_ten_seconds_than_one_run_takes(
    aged, path, clock, monkeypatch
):
    """The disk may be full of other things: appends that are tried again must not eat the log."""
    aged.close()
    usage(monkeypatch, 0.95)
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


def test_a_failure_to_clean_is_no_failure_to_append(aged, path, clock, monkeypatch):
    aged.close()
    usage(monkeypatch, 0.80)
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


def test_a_thread_of_services_cleans_while_nobody_writes(aged, path, clock, monkeypatch):
    aged.close()
    monkeypatch.setattr(service_runner, "TEND_SECONDS", 0.01)
    usage(monkeypatch, 0.50)
    with with_retention(clock, path, hours=50, at_hours=()) as store, store.run_services():
        count = len(log_files(path))
        time.sleep(0.1)
        assert len(log_files(path)) == count
        usage(monkeypatch, 0.80)
        clock.now += 10_000
        until = time.monotonic() + 5
        while len(log_files(path)) == count:
            assert time.monotonic() < until, "nobody has cleaned"
            time.sleep(0.01)
        assert store.min_offset("t", 0) > 30
