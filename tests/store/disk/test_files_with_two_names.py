"""Files with a second hard link, a wrong time, no length, or stale cached pages."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from pyrocket import Store
from pyrocket.disk import io
from pyrocket.disk.file_queue import FileQueue, file_name
from pyrocket.errors import StoreDamagedError, StoreFailedError
from support.stores import (
    SMALL,
    batch,
    bodies,
    filled,
    log_files,
    message,
    numbered,
    overwrite,
    queue_files,
    reboot,
)

SIZE = 3 * 1024 * 1024


@pytest.fixture
def run(tmp_path):
    one = FileQueue(tmp_path / "run", SIZE, tmp_path / "tmp")
    yield one
    one.close()


@pytest.fixture
def linked(run, tmp_path):
    """Create a file of the queue and a second hard link, as a snapshot does."""
    run.create(0)
    run.write(5, b"old")
    run.write(SIZE - 3, b"end")
    file, other = tmp_path / "run" / file_name(0), tmp_path / "snapshot"
    os.link(file, other)
    io.set_time(file, 1_600_000_000_123)
    return file, other


def test_a_file_with_a_second_name_is_never_changed_in_place(run, linked):
    file, other = linked
    before = other.read_bytes()
    run.write(5, b"new")
    assert other.read_bytes() == before
    assert file.read_bytes() == before.replace(b"old", b"new")
    assert file.stat().st_nlink == other.stat().st_nlink == 1
    assert file.stat().st_blocks * 512 < SIZE, "holes stay holes"
    assert run.read(5, 3) == b"new"


def test_zeroing_an_empty_range_does_not_change_a_shared_file(run, linked):
    file, other = linked
    run.zero(100, SIZE - 3)
    assert file.samefile(other)
    assert file.stat().st_mtime_ns == 1_600_000_000_123_000_000
    run.zero(100, SIZE)
    assert not file.samefile(other)
    assert other.read_bytes().endswith(b"end")


def test_readers_detect_that_a_shared_file_was_replaced_by_a_copy(run, linked, tmp_path):
    """The copy has the name of the file, while a snapshot keeps a link to the old content."""
    reader = FileQueue(tmp_path / "run", SIZE, tmp_path / "tmp", writable=False)
    assert reader.read(5, 3) == b"old"
    run.write(5, b"new")
    assert reader.read(5, 3) == b"new"
    run.remove(0)
    with pytest.raises(FileNotFoundError):
        reader.read(5, 3)
    reader.close()


def test_a_recovery_does_not_change_a_snapshot(path, tmp_path, open_store):
    filled(path, count=150).close(clean=False)
    shared = {}
    for number, file in enumerate([*log_files(path), *queue_files(path)]):
        os.link(file, tmp_path / str(number))
        shared[tmp_path / str(number)] = file.read_bytes()
    reboot(path)
    overwrite_copy(log_files(path)[-2], b"\xff", 150)
    store = open_store()
    assert 0 < store.max_offset("t", 0) < 150
    store.append_batch(batch(numbered(100), 0), topic="t")
    assert {file: file.read_bytes() for file in shared} == shared


def overwrite_copy(file, data, at):
    """Damage a file, but not the content of its other hard link."""
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content)
    overwrite(file, data, at)


def test_rebuilt_queues_have_the_times_of_their_last_messages(path, open_store, clock):
    """RocketMQ 4.x uses the times of files for lookups by time."""
    store = open_store()
    store.topics.create("t", read_queues=1, write_queues=1)
    for number in range(35):
        clock.now += 60_000
        store.append(message(b"%d" % number))
    stored = [one.store_timestamp for one in store.read("t", 0, 0, 35)]
    store.close(clean=False)
    for file in queue_files(path):
        file.unlink()
    reboot(path)
    open_store()
    times = [file.stat().st_mtime_ns // 1_000_000 for file in queue_files(path)]
    assert times == [stored[9], stored[19], stored[29], stored[34]]
    assert log_files(path)[-1].stat().st_mtime_ns // 1_000_000 == stored[34]


def test_recovery_does_not_change_correct_queue_files(path, open_store):
    filled(path, count=150).close()
    reboot(path)
    open_store().close()
    before = [(file.stat().st_mtime_ns, file.stat().st_ctime_ns) for file in queue_files(path)]
    reboot(path)
    open_store()
    after = [(file.stat().st_mtime_ns, file.stat().st_ctime_ns) for file in queue_files(path)]
    assert after == before


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_empty_files_at_the_end_are_deleted(path, clean):
    """RocketMQ leaves such files; RocketMQ 5.1.3 and newer delete them at the next start."""
    filled(path).close(clean=clean)
    begun = [log_files(path)[-1], queue_files(path)[-1]]
    sizes = SMALL.log_file_bytes, SMALL.queue_file_bytes
    empty = [
        file.with_name(file_name(int(file.name) + size))
        for file, size in zip(begun, sizes, strict=True)
    ]
    for file in empty:
        file.touch()
    reboot(path)
    with Store.open(path, config=SMALL) as store:
        assert bodies(store)[0] == numbered(40)
        assert not [file for file in empty if file.exists()]


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/t/0"])
def test_a_folder_in_place_of_a_file_is_reported(path, folder):
    filled(path).close(clean=False)
    names = sorted((path / folder).iterdir())
    step = int(names[-1].name) - int(names[-2].name)
    names[-1].with_name(file_name(int(names[-1].name) + step)).mkdir()
    reboot(path)
    with pytest.raises(StoreDamagedError, match="is not a file"):
        Store.open(path)


def test_queue_file_missing_in_the_middle_is_created_again(path, open_store):
    filled(path, count=60).close(clean=False)
    queue_files(path)[2].unlink()
    reboot(path)
    assert bodies(open_store())[0] == numbered(60)


def test_a_record_damaged_after_a_clean_shutdown_is_not_mistaken_for_a_torn_tail(path):
    """The messages after it were acknowledged, and the queue has their entries."""
    filled(path, count=40).close()
    with Store.open(path, read_only=True) as reader:
        offset = reader.read("t", 0, 37)[0].physical_offset
    file = log_files(path)[-1]
    overwrite(file, b"!", offset - int(file.name) + 150)
    before = [one.read_bytes() for one in [*log_files(path), *queue_files(path)]]
    reboot(path)
    for _ in ("after a clean shutdown", "after any other"):
        with pytest.raises(
            StoreDamagedError, match=f"byte {offset - int(file.name)} of"
        ) as failure:
            Store.open(path)
        assert failure.value.code == "LOG_DAMAGED"
        assert f"commitlog/{file.name}" in str(failure.value)
        assert [one.read_bytes() for one in [*log_files(path), *queue_files(path)]] == before
        (path / "abort").touch()


class LyingCache:
    """Simulates a kernel that marks pages as clean after a failed fsync."""

    def __init__(self, monkeypatch):
        self.breaks, self._on_disk, self._lost = None, {}, set()
        monkeypatch.setattr(io, "sync", self.sync)
        monkeypatch.setattr(io, "drop_cached", self.drop_cached)

    def sync(self, descriptor):
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        if self.breaks and self.breaks in name:
            self.breaks = None
            self._lost.add(name)
            self._on_disk.setdefault(name, bytes(Path(name).stat().st_size))
            raise OSError(5, "Input/output error")
        if name not in self._lost:
            self._on_disk[name] = Path(name).read_bytes()

    def drop_cached(self, descriptor):
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        if name in self._lost:
            Path(name).write_bytes(self._on_disk[name])
            self._lost.remove(name)


def test_recovery_from_a_failed_fsync_trusts_only_the_disk(path, open_store, monkeypatch):
    store = open_store(config=replace(SMALL, flush="manual"))
    store.topics.create("t", read_queues=1, write_queues=1)
    cache = LyingCache(monkeypatch)
    store.append_batch(batch(numbered(5), 0), topic="t")
    store.flush()
    store.append_batch(batch(numbered(5, first=5), 0), topic="t")
    cache.breaks = "commitlog"
    with pytest.raises(StoreFailedError):
        store.flush()
    assert len(bodies(store)[0]) == 10, "before the recovery, readers see the page cache"
    store.close()
    again = open_store()
    assert bodies(again)[0] == numbered(5)
    assert again.history.cut_since(0, "t", 0) == 5
    assert again.append(message(b"next")).queue_offset == 5


def test_an_fsync_that_fails_in_a_recovery_is_reported(path, open_store, monkeypatch):
    filled(path).close(clean=False)
    reboot(path)
    LyingCache(monkeypatch).breaks = "consumequeue"
    with pytest.raises(StoreFailedError, match="recovery"):
        Store.open(path, config=SMALL)
    assert bodies(open_store())[0] == numbered(40)
