"""A mark identifies the log that it was taken from, even after the directory was moved."""

import os
import shutil
import subprocess
from dataclasses import replace

import pytest
from pyrocket import Store
from pyrocket.disk.file_queue import file_name
from pyrocket.errors import QueueNotFoundError
from pyrocket.tools.repair.run import repair
from support.stores import (
    SMALL,
    FakeClock,
    batch,
    filled,
    log_files,
    message,
    next_boot,
    overwrite,
    queue_files,
    reboot,
)


def marked(path, count=30):
    """A cleanly closed store with messages in t/0, and the mark of the last one."""
    with filled(path, count=count) as store:
        return store.history.mark({"t": {0: count}})


def holds(path, mark):
    with Store.open(path, read_only=True) as store:
        return store.history.holds(mark)


def test_a_mark_replaced_by_a_placeholder_is_unknown(tmp_path):
    """A stream that has read the message has lost nothing: the store is not an older copy."""
    path = tmp_path / "s"
    mark = marked(path)
    with Store.open(path) as store:
        store.append_batch(batch([b"later"] * 3, 0), topic="t")
    file = path / "commitlog" / file_name(mark.log_offset - mark.log_offset % 4096)
    overwrite(file, b"\xff", mark.log_offset % 4096 + 100)
    reboot(path)
    assert holds(path, mark), "only the body of the message is damaged"
    assert repair(path).after.ok
    assert holds(path, mark) is None


def test_there_is_no_mark_without_messages(tmp_path):
    with filled(tmp_path / "s", count=3) as store:
        assert store.history.mark({}) is None
        assert store.history.mark({"t": {0: 0}}) is None
        assert store.history.mark({"t": {0: 9}, "gone": {3: 1}}) is None


@pytest.mark.parametrize("later", [0, 200])
def test_an_older_copy_does_not_have_the_mark_even_after_it_has_grown(tmp_path, later):
    """The messages of the copy have the same lengths and log offsets as those of the original."""
    marked(tmp_path / "s", count=20)
    shutil.copytree(tmp_path / "s", tmp_path / "copy")
    with Store.open(tmp_path / "s") as store:
        store.append_batch(batch([b"%0100d" % n for n in range(10)], 0), topic="t")
        mark = store.history.mark({"t": {0: 30}})
    with Store.open(tmp_path / "copy") as copy:
        if later:
            copy.append_batch(batch([b"%0100d" % n for n in range(later)], 0), topic="t")
        assert copy.history.holds(mark) is False
    assert holds(tmp_path / "copy", mark) is False
    assert holds(tmp_path / "s", mark)


def moved(path):
    os.rename(path, path.with_name("moved"))


def copied(path):
    subprocess.run(["cp", "-a", path, path.with_name("moved")], check=True)


def synchronised(path):
    if shutil.which("rsync") is None:
        pytest.skip("rsync is not installed")
    subprocess.run(["rsync", "-a", f"{path}/", path.with_name("moved")], check=True)


def rewritten(path):
    """Replace all files with copies that have other times, like a restore from an archive."""
    shutil.copytree(path, path.with_name("moved"), copy_function=shutil.copyfile)


@pytest.mark.parametrize(
    ("move", "boot"),
    [(moved, bool), (copied, next_boot), (synchronised, reboot), (rewritten, bool)],
)
def test_a_store_that_was_moved_has_its_mark(tmp_path, move, boot):
    path = tmp_path / "s"
    mark = marked(path)
    move(path)
    target = tmp_path / "moved"
    boot(target)
    assert holds(target, mark)
    with Store.open(target) as store:
        assert store.history.holds(mark)
        store.append(message(b"later"))
    assert holds(target, mark)


def test_the_mark_of_an_expired_message_is_unknown(tmp_path):
    with filled(tmp_path / "s", count=90) as store:
        mark = store.history.mark({"t": {0: 3}})
        store.clean(total_bytes=4096)
        assert store.min_offset("t", 0) > 3
        assert store.history.holds(mark) is None
        assert store.history.mark({"t": {0: 3}}) is None


def test_a_mark_in_a_lost_file_is_unknown(tmp_path):
    mark = marked(tmp_path / "s", count=90)
    with Store.open(tmp_path / "s", read_only=True) as store:
        early = store.history.mark({"t": {0: 40}})
    assert early.log_offset < mark.log_offset
    lost = early.log_offset - early.log_offset % 4096
    next(one for one in log_files(tmp_path / "s") if int(one.name) == lost).unlink()
    assert holds(tmp_path / "s", early) is None
    assert holds(tmp_path / "s", mark)


def test_an_entry_that_does_not_point_to_a_record_has_no_mark(tmp_path):
    marked(tmp_path / "s")
    overwrite(queue_files(tmp_path / "s")[-1], (5000).to_bytes(8, "big"), at=9 * 20)
    with Store.open(tmp_path / "s", read_only=True) as store:
        assert store.history.mark({"t": {0: 30}}) is None


def test_lookups_by_time_work_in_a_queue_that_its_topic_no_longer_has(tmp_path):
    """A query reads such a queue to its end."""
    clock = FakeClock()
    config = replace(SMALL, flush_interval_ms=3_600_000)
    with Store.open(tmp_path / "s", create=True, config=config, clock=clock) as store:
        store.topics.create("t", read_queues=2, write_queues=2)
        for _ in range(4):
            clock.now += 1_000
            store.append(message(b"x", queue_id=1))
        store.topics.update("t", read_queues=1, write_queues=1)
        assert store.offset_by_time("t", 1, clock.now - 1_000) == 2
        with pytest.raises(QueueNotFoundError):
            store.offset_by_time("t", 7, clock.now)
