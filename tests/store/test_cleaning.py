"""Cleaning a store: what goes, what stays, and what everybody sees of it."""

import shutil

import pytest
from pyrocket import Retention, Store
from pyrocket.disk import io, space
from pyrocket.disk.state_page import PUBLISHED
from pyrocket.errors import (
    OffsetOutOfRangeError,
    OptionError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from stores import (
    SMALL,
    batch,
    bodies,
    filled,
    log_files,
    message,
    numbered,
    queue_files,
    reboot,
    scan,
    snapshot,
    words,
)

HOUR = 3_600_000


@pytest.fixture
def aged(path, clock):
    """Topic t, one queue, 100 messages an hour apart; topic idle with 15 at the beginning."""
    store = filled(path, count=0, clock=clock)
    store.create_topic("idle", read_queues=1, write_queues=1)
    store.append_batch(batch(numbered(15, 50), 0), topic="idle")
    for body in numbered(100):
        store.append(message(body, queue_id=0))
        clock.now += HOUR
    yield store
    store.close()


def usage(monkeypatch, ratio):
    monkeypatch.setattr(space, "_usage", lambda folder: space.DiskUsage(int(ratio * 1000), 1000))


def with_retention(clock, path, **policy):
    config = type(SMALL)(log_file_bytes=4096, queue_file_entries=10, retention=Retention(**policy))
    return Store.open(path, config=config, clock=clock)


def test_by_hand_old_files_go_and_minimum_offsets_follow(aged, path):
    expected = dict(scan(aged, "t", 0))
    report = aged.clean(hours=30)
    known = aged.offsets("t")[0]
    assert report.removals
    assert report.bytes == 4096 * len(report.removals)
    assert report.log_start == int(log_files(path)[0].name) > 4096
    assert 50 < known.minimum <= 70
    assert known.maximum == 100
    assert dict(scan(aged, "t", 0)) == {
        offset: body for offset, body in expected.items() if offset >= known.minimum
    }


def test_queue_files_follow_but_never_the_last(aged, path):
    report = aged.clean(hours=30)
    first = int(queue_files(path)[0].name) // 20
    minimum = aged.min_offset("t", 0)
    assert first <= minimum < first + 10
    (kept,) = queue_files(path, "idle")
    assert int(kept.name) == 200
    assert report.queue_files == first // 10 + 1


def test_offsets_go_on_where_all_messages_are_gone(aged, path):
    aged.clean(hours=0)
    assert len(log_files(path)) == 1
    known = aged.offsets("idle")[0]
    assert (known.minimum, known.maximum) == (15, 15)
    assert aged.append(message(b"next", "idle", 0)).queue_offset == 15
    assert scan(aged, "idle", 0) == [(15, b"next")]


@pytest.mark.parametrize("lost", ["consumequeue", "pyrocket/state"])
def test_offsets_go_on_when_the_queues_are_lost_too(aged, path, lost):
    aged.clean(hours=0)
    kept = scan(aged, "t", 0)
    aged.close()
    if lost == "consumequeue":
        shutil.rmtree(path / lost)
        (path / "abort").touch()
    reboot(path)
    with Store.open(path) as store:
        assert store.append(message(b"next", "idle", 0)).queue_offset == 15
        assert scan(store, "t", 0) == kept
        assert store.append(message(b"next", "t", 0)).queue_offset == 100


def test_a_queue_whose_last_file_is_full_keeps_its_end(path, clock):
    with filled(path, count=0, clock=clock) as store:
        store.append_batch(batch(numbered(10), 0), topic="t")
        store.create_topic("u", read_queues=1, write_queues=1)
        store.append_batch(batch(numbered(100), 0), topic="u")
        store.clean(hours=0)
        assert [int(file.name) for file in queue_files(path)] == [0]
        assert store.append(message(b"next", queue_id=0)).queue_offset == 10


def test_a_dry_run_changes_nothing_and_says_the_same(aged, path, clock):
    aged.flush()
    before = snapshot(path)
    with Store.open(path, read_only=True, clock=clock) as reader:
        told = reader.clean(hours=30, dry_run=True)
        assert snapshot(path) == before
        with pytest.raises(StoreReadOnlyError):
            reader.clean(hours=30)
    done = aged.clean(hours=30)
    assert told.removals == done.removals
    assert told.dry_run
    assert told.log_start == done.log_start


def test_down_to_a_size(aged, path):
    aged.clean(total_bytes=3 * 4096)
    assert len(log_files(path)) == 3
    assert not aged.clean(total_bytes=3 * 4096).removals


def test_limits_have_to_be_named(aged):
    for dry_run in (False, True):
        with pytest.raises(OptionError, match="RETENTION_MISSING"):
            aged.clean(dry_run=dry_run)


def test_a_store_keeps_everything_unless_told_otherwise(aged, path, clock, monkeypatch):
    usage(monkeypatch, 0.99)
    count = len(log_files(path))
    clock.now += 10_000 * HOUR
    aged.append(message(b"late", queue_id=0))
    assert len(log_files(path)) == count


def test_age_is_that_of_the_last_message_even_in_a_copy(aged, path, tmp_path, clock):
    """A copy's files are all modified now, by the wall clock."""
    aged.close()
    copy = shutil.copytree(path, tmp_path / "copy", copy_function=shutil.copyfile)
    with Store.open(copy, clock=clock) as store:
        assert store.clean(hours=30).removals
        assert 50 < store.min_offset("t", 0) <= 70


def test_a_file_made_in_advance_is_not_the_last(path, clock):
    """Java's allocator leaves one after a crash; the messages before it must stay."""
    filled(path, count=10, clock=clock).close()
    (only,) = log_files(path)
    only.with_name(f"{int(only.name) + 4096:020d}").write_bytes(bytes(4096))
    with Store.open(path, read_only=True, clock=clock) as reader:
        assert not reader.clean(hours=0, dry_run=True).removals


def test_a_writer_cleans_behind_itself_every_ten_seconds(aged, path, clock, monkeypatch):
    usage(monkeypatch, 0.80)
    aged.close()
    with with_retention(clock, path, hours=50, at_hours=()) as store:
        count = len(log_files(path))
        store.append(message(b"one", queue_id=0))
        first = len(log_files(path))
        assert first < count
        clock.now += 30 * HOUR
        for _ in range(2):  # The second turn comes too early.
            clock.now += 4000
            store.append(message(b"two", queue_id=0))
        assert len(log_files(path)) < first
        again = len(log_files(path))
        clock.now += 10 * HOUR - 8000
        store._writing()._cleaner._next_look_ms = clock.now + 1
        store.append(message(b"three", queue_id=0))
        assert len(log_files(path)) >= again


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


@pytest.mark.parametrize("booted", [False, True])
def test_a_death_at_any_step_leaves_a_store_that_agrees(tmp_path, clock, monkeypatch, booted):
    """Each step of a cleaning that changes the disk fails once, for good."""
    for step in range(200):
        path = tmp_path / f"store{step}"
        store = filled(path, count=0, clock=clock)
        store.create_topic("idle", read_queues=1, write_queues=1)
        store.append_batch(batch(numbered(12, 50), 0), topic="idle")
        store.append_batch(batch(numbered(90), 0), topic="t")
        everything = dict(scan(store, "t", 0))
        with monkeypatch.context() as patch:
            done = die_at(step, patch)
            try:
                store.clean(total_bytes=2 * 4096)
            except StoreUnavailableError:
                assert not done
        store.close(clean=not booted)
        if booted:
            reboot(path)
        with Store.open(path, clock=clock) as again:
            first = again.min_offset("t", 0)
            assert dict(scan(again, "t", 0)) == {
                offset: body for offset, body in everything.items() if offset >= first
            }
            assert again.append(message(b"next", "idle", 0)).queue_offset == 12
            assert again.append(message(b"next", "t", 0)).queue_offset == 90
            again.clean(total_bytes=2 * 4096)
            assert len(log_files(path)) == 2
            assert len(queue_files(path)) <= 6
        if done:
            break
    assert done


def die_at(step, patch):
    """Fail at a step and all after it; the list returned is empty if it came to that."""
    left, done = [step], [True]

    def instead(real):
        def operation(*arguments):
            left[0] -= 1
            if left[0] < 0:
                done.clear()
                failing()
            return real(*arguments)

        return operation

    for name in ("write_at", "sync", "sync_directory", "rename", "unlink"):
        patch.setattr(io, name, instead(getattr(io, name)))
    return done


def test_other_writers_and_readers_notice(aged, path, clock):
    with Store.open(path, clock=clock) as other, Store.open(path, read_only=True) as reader:
        assert reader.min_offset("t", 0) == other.min_offset("t", 0) == 0
        before = reader.position()
        old = reader.scan("t", 0, 0, 100)
        aged.clean(hours=30)
        minimum = aged.min_offset("t", 0)
        assert reader.position() != before
        assert reader.min_offset("t", 0) == other.min_offset("t", 0) == minimum
        assert other.append(message(b"on", queue_id=0)).queue_offset == 100
        with pytest.raises(OffsetOutOfRangeError, match="cleaned away"):
            list(old)
        for call in (reader.read, reader.scan):
            with pytest.raises(OffsetOutOfRangeError):
                call("t", 0, 0, 5)
        assert reader.offset_by_time("t", 0, 0) == minimum


def test_the_end_of_the_log_stays_where_it_is(aged, path):
    page = words(path)
    end = page[PUBLISHED]
    aged.clean(hours=0)
    assert page[PUBLISHED] == end
    page.close()
