"""Cleaning deletes exactly the files that exceed the limits, and is visible to readers."""

import shutil
from dataclasses import replace
from itertools import product

import pytest
from pyrocket import Store, StoreConfig
from pyrocket.disk import io
from pyrocket.disk.shared_state import PUBLISHED
from pyrocket.errors import (
    OffsetOutOfRangeError,
    OptionError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from support.shares import FEW_STEPS, share
from support.stores import (
    batch,
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


def test_a_manual_cleaning_deletes_old_files_and_moves_minimum_offsets(aged, path):
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


def test_cleaning_deletes_queue_files_except_the_last(aged, path):
    report = aged.clean(hours=30)
    first = int(queue_files(path)[0].name) // 20
    minimum = aged.min_offset("t", 0)
    assert first <= minimum < first + 10
    (kept,) = queue_files(path, "idle")
    assert int(kept.name) == 200
    assert report.queue_files == first // 10 + 1


def test_offsets_continue_after_all_messages_are_deleted(aged, path):
    aged.clean(hours=0)
    assert len(log_files(path)) == 1
    known = aged.offsets("idle")[0]
    assert (known.minimum, known.maximum) == (15, 15)
    assert aged.append(message(b"next", "idle", 0)).queue_offset == 15
    assert scan(aged, "idle", 0) == [(15, b"next")]


@pytest.mark.parametrize("lost", ["consumequeue", "pyrocket/state"])
def test_offsets_continue_even_if_the_queues_are_lost(aged, path, lost):
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
        store.topics.create("u", read_queues=1, write_queues=1)
        store.append_batch(batch(numbered(100), 0), topic="u")
        store.clean(hours=0)
        assert [int(file.name) for file in queue_files(path)] == [0]
        assert store.append(message(b"next", queue_id=0)).queue_offset == 10


def with_keys(store, clock):
    """Four index files of 79 keys each."""
    store.append_batch(batch(numbered(300), 0, keys=[[f"k{n}"] for n in range(300)]), topic="t")


def files_in(path):
    return [
        {each for each in (path / name).rglob("*") if each.is_file()}
        for name in ("commitlog", "consumequeue", "index")
    ]


def with_a_delayed_one(store, clock):
    """A delayed message that is not yet due; its file and all later files are kept."""
    store.append(message(b"later", delay_level=18))
    with_keys(store, clock)


def with_timers(store, clock):
    """Enough messages to fill files of their queue; all are re-appended."""
    for body in numbered(20):
        store.append(message(body, deliver_at_ms=clock.now + 100 * HOUR))
    with_keys(store, clock)


def with_halves(store, clock):
    """Undecided half messages are re-appended, too."""
    for body in numbered(20):
        store.transactions.send_half("a", message(body))
    with_keys(store, clock)


@pytest.mark.parametrize(
    ("more", "limits"),
    share(
        product(
            [with_keys, with_a_delayed_one, with_timers, with_halves],
            [{"hours": 0}, {"hours": 60}, {"total_bytes": 30_000}],
        ),
        5,
    ),
)
def test_a_dry_run_changes_nothing_and_has_the_report_of_a_cleaning(
    aged, path, clock, more, limits
):
    more(aged, clock)
    aged.close()
    before = snapshot(path)
    with Store.open(path, read_only=True, clock=clock) as reader:
        planned = reader.clean(**limits, dry_run=True)
        assert snapshot(path) == before
        with pytest.raises(StoreReadOnlyError):
            reader.clean(**limits)
    with Store.open(path, clock=clock) as store:
        files = files_in(path)
        done = store.clean(**limits)
        gone = [len(before - after) for before, after in zip(files, files_in(path), strict=True)]
        assert gone == [len(done.removals), done.queue_files, done.index_files]
        assert done.removals
    assert planned.dry_run
    assert replace(planned, dry_run=False) == done


def test_a_store_is_cleaned_down_to_a_size(aged, path):
    aged.clean(total_bytes=3 * 4096)
    assert len(log_files(path)) == 3
    assert not aged.clean(total_bytes=3 * 4096).removals


def test_a_manual_cleaning_needs_a_limit(aged):
    for dry_run in (False, True):
        with pytest.raises(OptionError, match="RETENTION_MISSING"):
            aged.clean(dry_run=dry_run)


def test_a_cleaning_without_a_limit_deletes_nothing(aged, path):
    before = log_files(path)
    for name, limit, dry_run in product(
        ["hours", "total_bytes"], [float("nan"), -1, True], [False, True]
    ):
        with pytest.raises(OptionError, match=name):
            aged.clean(**{name: limit}, dry_run=dry_run)
    assert log_files(path) == before
    assert not aged.clean(hours=float("inf")).removals, "for ever"


def test_the_age_of_a_log_file_is_the_age_of_its_last_message(aged, path, tmp_path, clock):
    """The copied files were modified now, by the wall clock, although their messages are old."""
    aged.close()
    copy = shutil.copytree(path, tmp_path / "copy", copy_function=shutil.copyfile)
    with Store.open(copy, clock=clock) as store:
        assert store.clean(hours=30).removals
        assert 50 < store.min_offset("t", 0) <= 70


def test_a_log_file_followed_only_by_a_preallocated_file_is_not_deleted(path, clock):
    """A broker that crashed may leave a preallocated file without messages."""
    filled(path, count=10, clock=clock).close()
    (only,) = log_files(path)
    only.with_name(f"{int(only.name) + 4096:020d}").write_bytes(bytes(4096))
    with Store.open(path, read_only=True, clock=clock) as reader:
        assert not reader.clean(hours=0, dry_run=True).removals


def failing(*_):
    raise OSError(5, "Input/output error")


@pytest.mark.parametrize("every", FEW_STEPS)
@pytest.mark.parametrize("booted", [False, True])
def test_a_cleaning_killed_at_any_step_leaves_a_consistent_store(
    tmp_path, clock, monkeypatch, booted, every
):
    """In each run, one file operation of a cleaning and all later operations fail."""
    for step in range(0, 200, every):
        path = tmp_path / f"store{step}"
        store = filled(path, count=0, clock=clock)
        store.topics.create("idle", read_queues=1, write_queues=1)
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
    """Let one step and all later ones fail; the returned list is emptied at that step."""
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


def test_other_writers_and_readers_see_the_deletion(aged, path, clock):
    with Store.open(path, clock=clock) as other, Store.open(path, read_only=True) as reader:
        assert reader.min_offset("t", 0) == other.min_offset("t", 0) == 0
        before = reader.position()
        old = reader.scan("t", 0, 0, 100)
        aged.clean(hours=30)
        minimum = aged.min_offset("t", 0)
        assert reader.position() != before
        assert reader.min_offset("t", 0) == other.min_offset("t", 0) == minimum
        assert other.append(message(b"on", queue_id=0)).queue_offset == 100
        with pytest.raises(OffsetOutOfRangeError, match=r"ha(s|ve) expired"):
            list(old)
        for call in (reader.read, reader.scan):
            with pytest.raises(OffsetOutOfRangeError):
                call("t", 0, 0, 5)
        assert reader.offset_by_time("t", 0, 0) == minimum


def test_a_cleaning_does_not_change_the_end_of_the_log(aged, path):
    page = words(path)
    end = page[PUBLISHED]
    aged.clean(hours=0)
    assert page[PUBLISHED] == end
    page.close()


def test_index_files_are_deleted_even_if_one_file_is_damaged(path, clock):
    config = StoreConfig(log_file_bytes=4096, queue_file_entries=10, index_slots=10, index_items=20)
    with filled(path, count=90, config=config, clock=clock) as store:
        store.close()
    index = path / "index"
    with Store.open(path, config=config, clock=clock) as store:
        before = len(list(index.iterdir()))
        report = store.clean(total_bytes=3 * 4096)
        assert 0 < report.index_files == before - len(list(index.iterdir()))
        first = min(index.iterdir())
        first.write_bytes(b"short")
        assert store.clean(total_bytes=4096).removals
        assert len(log_files(path)) == 1
