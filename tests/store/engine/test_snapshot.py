"""A snapshot of a store in use is complete, consistent and independent."""

import errno
import shutil
from contextlib import suppress
from dataclasses import replace

import pytest
from golden.java import CLEAN, GOLDEN, check_test_topic, listing
from pyrocket import Store, StoreConfig
from pyrocket.disk import io
from pyrocket.errors import InvalidInputError, StoreUnavailableError
from pyrocket.formats.checkpoint import decode_checkpoint
from pyrocket.tools.verify.verify import verify
from support.stores import (
    SMALL,
    batch,
    bodies,
    filled,
    log_files,
    message,
    numbered,
    queue_files,
    reboot,
    snapshot,
)


@pytest.fixture
def source(path, clock):
    """45 messages in one queue, with four full files and a half-full file; 7 in two others."""
    with filled(path, count=45, clock=clock) as store:
        store.topics.create("u", read_queues=2, write_queues=2)
        store.append_batch(batch(numbered(7), [0, 1, 0, 1, 0, 1, 0]), topic="u")
        yield store


@pytest.fixture
def target(tmp_path):
    return tmp_path / "copies" / "first"


def all_bodies(store):
    return {topic: bodies(store, topic) for topic in store.topics.all()}


def test_a_snapshot_is_complete_and_cleanly_shut_down(source, target):
    expected = all_bodies(source)
    report = source.snapshot(target)
    assert report.path == target
    assert report.log_end == source.position().published
    assert not verify(target).findings
    assert not (target / "abort").exists()
    with Store.open(target) as copy:
        assert all_bodies(copy) == expected
        assert (copy.uuid, copy.topics.all()) == (source.uuid, source.topics.all())
    # The rest of the key index is built by the next writer that appends.
    assert set(verify(target).counts) == {"KEY_INDEX_BEHIND"}
    assert verify(target).ok


def test_the_checkpoint_of_a_copy_has_the_time_of_its_last_message(source, target, clock):
    clock.now += 1000
    source.append(message(b"the only one of its topic", topic="v"))
    source.snapshot(target)
    assert decode_checkpoint((target / "checkpoint").read_bytes()).log_timestamp == clock.now


@pytest.mark.parametrize("links", [True, False])
def test_progress_reports_add_up_to_the_total(source, target, monkeypatch, links):
    def refuse(one, other):
        raise OSError(errno.EXDEV, "other file system")

    if not links:
        monkeypatch.setattr(io, "link", refuse)
    reports = []
    source.snapshot(target, lambda done, total, file: reports.append((done, total, file)))
    assert [done for done, _, _ in reports] == sorted(done for done, _, _ in reports)
    assert reports[-1][0] == reports[-1][1]
    assert reports[0][1] > 0.8 * reports[-1][1]  # The first report has an estimate.
    shown = {file for _, _, file in reports}
    copied = {*target.glob("commitlog/*"), *target.glob("consumequeue/*/*/*")}
    assert shown >= {str(file.relative_to(target)) for file in copied}


def test_full_files_are_linked_and_growing_files_are_copied(source, path, target):
    report = source.snapshot(target)
    shared = {
        str(file.relative_to(target))
        for file in target.rglob("*")
        if file.is_file() and file.stat().st_nlink > 1
    }
    full = [*log_files(path)[:-1], *queue_files(path)[:-1]]
    assert shared == {str(file.relative_to(path)) for file in full}
    assert report.linked_files == len(full)
    assert not report.unlinkable
    tail = log_files(target)[-1]
    assert tail.stat().st_size == SMALL.log_file_bytes
    assert tail.stat().st_mtime_ns // 10**6 == log_files(path)[-1].stat().st_mtime_ns // 10**6


def test_a_log_with_only_messages_of_deleted_topics_is_copied(path, target):
    with filled(path) as store:
        store.topics.create("gone", read_queues=1, write_queues=1)
        store.append_batch(batch(numbered(40), 0), topic="gone")
        store.topics.delete("gone")
        assert store.clean(total_bytes=0).removals
        report = store.snapshot(target)
        assert report.log_end == store.position().published
    assert not verify(target).findings
    with Store.open(target) as copy:
        assert copy.append(message()).queue_offset == 40


def test_a_recovery_of_the_copy_does_not_change_the_source(source, path, target):
    """A recovery never writes, truncates or rebuilds shared files."""
    source.snapshot(target)
    files = {file: file.read_bytes() for file in path.rglob("0*") if file.is_file()}
    reboot_like_a_crash(target)
    with Store.open(target) as copy:
        kept, everything = bodies(copy)[0], bodies(source)[0]
        assert kept == everything[: len(kept)]
        assert len(kept) < len(everything) // 2
    assert {file: file.read_bytes() for file in files} == files


def reboot_like_a_crash(target):
    """Clear the content of all log files except the first, as a power loss may do."""
    (target / "abort").touch()
    (target / "checkpoint").unlink()
    for file in log_files(target)[1:]:
        data = bytes(file.stat().st_size)
        file.unlink()
        file.write_bytes(data)


def test_the_source_is_not_changed(source, path, target):
    source.flush()
    source.close()
    reboot(path)
    before = snapshot(path)
    with Store.open(path, read_only=True) as reader:
        reader.snapshot(target)
    after = snapshot(path)
    assert after == before
    assert verify(target).ok


def test_offsets_of_a_streaming_checkpoint_beyond_the_end_of_the_copy_are_detected(source, target):
    """A query that has read later offsets of the source must not silently use the copy."""
    source.snapshot(target)
    end = source.max_offset("t", 0)
    source.append(message(b"later", queue_id=0))
    with Store.open(target, read_only=True) as copy:
        assert copy.history.epoch == source.history.epoch + 1
        assert copy.history.cut_since(source.history.epoch, "t", 0) == end


def test_keys_of_one_message_may_continue_after_the_last_index_file(path, target, open_store):
    """A file has 79 items, two for each message."""
    with open_store() as store:
        store.append_batch(batch(numbered(50), keys=[str(n) for n in range(50)]), topic="t")
    with open_store() as store:
        store.snapshot(target)
    assert not verify(target).findings
    max((path / "index").iterdir()).unlink()
    with open_store(config=replace(SMALL, key_index=False)) as store:
        store.append(message())
    assert set(verify(path).counts) == {"KEY_INDEX_BEHIND"}


def test_only_full_index_files_are_copied(path, target, clock):
    config = StoreConfig(log_file_bytes=4096, queue_file_entries=10, index_slots=10, index_items=20)
    with filled(path, count=45, config=config, clock=clock) as store:
        store.append(message(b"found", queue_id=0, keys=["k1"]))
        store.close()
    with Store.open(path, config=config, clock=clock) as store:
        report = store.snapshot(target)
        assert len(list((target / "index").iterdir())) == 2 < len(list((path / "index").iterdir()))
        assert report.linked_files >= 2
        with Store.open(target, config=config) as copy:
            assert [each.body for each in copy.lookup.query("t", "k1")] == [b"found"]
    assert verify(target).ok


def test_a_failed_snapshot_leaves_nothing_at_the_target(source, target, monkeypatch):
    def fail(descriptor, data, offset):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(io, "write_at", fail)
        with pytest.raises(StoreUnavailableError):
            source.snapshot(target)
    assert not list(target.parent.iterdir())
    source.snapshot(target)


def test_a_target_that_is_not_empty_is_rejected(source, path, tmp_path):
    with pytest.raises(InvalidInputError, match="SNAPSHOT_TARGET"):
        source.snapshot(path)
    with pytest.raises(InvalidInputError, match="SNAPSHOT_TARGET"):
        source.snapshot(path / "backup")
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInputError, match="SNAPSHOT_TARGET"):
        source.snapshot(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert source.snapshot(tmp_path / "empty").linked_files


def test_topics_created_or_deleted_during_a_snapshot_cause_a_retry(
    source, path, target, monkeypatch
):
    real, done = io.set_time, []

    def disturb(file, ms):
        real(file, ms)
        if len(done) < 3 and "consumequeue" in str(file):
            done.append(1)
            source.topics.delete("u") if len(done) == 1 else source.topics.create(f"x{len(done)}")

    monkeypatch.setattr(io, "set_time", disturb)
    source.snapshot(target)
    assert done == [1, 1, 1]
    with Store.open(target, read_only=True) as copy:
        assert set(copy.topics.all()) == {"t", "x2", "x3"}
    assert verify(target).ok


def test_a_snapshot_fails_if_topics_change_during_every_attempt(source, target, monkeypatch):
    real, made = io.set_time, []

    def disturb(file, ms):
        real(file, ms)
        if "consumequeue" in str(file):
            made.append(f"x{len(made)}")
            source.topics.create(made[-1])

    monkeypatch.setattr(io, "set_time", disturb)
    with pytest.raises(StoreUnavailableError) as failure:
        source.snapshot(target)
    assert failure.value.code == "SNAPSHOT_DISTURBED"
    assert failure.value.remedy
    assert list(target.parent.glob(f"*{target.name}*")) == []


def test_an_empty_store_is_copied(path, target):
    with Store.open(path, create=True) as store:
        store.snapshot(target)
    with Store.open(target) as copy:
        assert copy.append(message(queue_id=0)).queue_offset == 0


@pytest.mark.parametrize("failing", range(1, 5))
def test_a_store_whose_first_append_failed_is_copied(path, target, monkeypatch, failing):
    """Its log may have one file, without messages."""
    real, calls = io.write_at, []

    def write(descriptor, data, offset):
        calls.append(offset)
        if len(calls) == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor, data, offset)

    with Store.open(path, create=True) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        with monkeypatch.context() as patch:
            patch.setattr(io, "write_at", write)
            with suppress(StoreUnavailableError):
                store.append(message(queue_id=0))
        store.snapshot(target)
    assert not verify(target).findings


def test_the_store_of_a_broker_is_copied(tmp_path, target):
    java = shutil.copytree(GOLDEN / CLEAN, tmp_path / CLEAN)
    before = listing(java)
    with Store.open(java, read_only=True) as store:
        store.snapshot(target)
    assert {name: kept[2] for name, kept in listing(java).items()} == {
        name: kept[2] for name, kept in before.items()
    }
    assert verify(target).ok
    with Store.open(target) as copy:
        check_test_topic(copy)
