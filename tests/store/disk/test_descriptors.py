"""Operations close all their descriptors."""

import errno
import mmap
import os
import shutil

import pytest
from pyrocket import Store, StoreConfig
from pyrocket.errors import StoreUnavailableError
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.verify import verify
from support.full_store import copied, descriptors, error_of, make_full, read, use
from support.inner import inner
from support.shares import share
from support.stores import SMALL, bodies, filled, log_files, scan

TIMES = 2


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    path = tmp_path_factory.mktemp("descriptors") / "full"
    make_full(path)
    return path


@pytest.fixture
def path(full, tmp_path):
    shutil.copytree(full, tmp_path / "store")
    return tmp_path / "store"


def read_a_part(path):
    """Stop a scan and an iteration in the middle."""
    with Store.open(path, read_only=True) as store:
        next(store.scan("t", 0, store.min_offset("t", 0), store.max_offset("t", 0)))
        next(store.messages("t"))


OPERATIONS = {
    "open to read": read,
    "stop reading in the middle": read_a_part,
    "open to write": use,
    "close without a clean shutdown": lambda path: Store.open(path, config=SMALL).close(
        clean=False
    ),
    "verify": verify,
    "repair": repair,
    "repair a copy in use": lambda path: repair(path, dry_run=True),
    "snapshot": lambda path: copied(path, path.parent / f"copy-{len(os.listdir(path.parent))}"),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_an_operation_leaves_no_descriptor(path, operation):
    operation(path)
    before = descriptors()
    for _ in range(TIMES):
        operation(path)
    assert descriptors() == before


def test_operations_on_one_open_store_leave_no_descriptor(path, tmp_path):
    with Store.open(path, config=SMALL) as store:

        def work(number):
            bodies(store)
            store.lookup.query("t", "k")
            store.snapshot(tmp_path / f"copy-{number}")
            store.clean(total_bytes=8192)
            store.flush()

        for number in range(3):  # The log's last window stays mapped, and its descriptor open.
            work(number)
        before = len(descriptors())
        for number in range(3, 3 + TIMES):
            work(number)
        assert len(descriptors()) <= before


def test_a_queue_that_is_used_while_a_reader_detects_a_new_topic_leaves_no_descriptor(tmp_path):
    """A reader that detects a new topic closes the files of all queues, even of those in use."""
    before = descriptors()
    with filled(tmp_path / "store") as store:
        queue = inner(store).writer.files.queues.get("t", 0)
        store.topics.create("new")
        store.position()
        assert len(queue.entries(0, 1))
        assert inner(store).reader.files.queues.get("t", 0) is queue
    assert descriptors() == before


def test_a_file_that_another_process_deleted_is_closed(tmp_path):
    """An open descriptor would keep the file's disk space in use."""
    filled(tmp_path / "store").close()
    before = descriptors()
    with Store.open(tmp_path / "store", read_only=True) as store:
        log = inner(store).reader.log
        start = log.first_offset()
        log.read(start, 8)
        log_files(tmp_path / "store")[0].unlink()
        with pytest.raises(FileNotFoundError):
            log.read(start, 8)
    assert descriptors() == before


@pytest.mark.parametrize("number", share([errno.EIO, errno.ENOMEM, errno.ENOSPC], 1))
@pytest.mark.parametrize("name", ["fstat", "pread", "pwrite", "fsync", "rename", "set_blocking"])
def test_a_failed_operation_leaves_no_descriptor(path, monkeypatch, name, number):
    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    before = descriptors()
    for operation in (read, use, verify, repair):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse)
            error_of(operation, path)
    assert descriptors() == before


@pytest.mark.parametrize("maps", [0, 1])
def test_with_little_address_space_a_smaller_window_is_mapped_or_the_limit_is_reported(
    tmp_path, monkeypatch, maps
):
    real, tried = mmap.mmap, []

    def limited(descriptor, length, **options):
        tried.append(length)
        if len(tried) > maps and (maps == 0 or len(tried) == maps):
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return real(descriptor, length, **options)

    with filled(tmp_path / "store", config=StoreConfig(log_file_bytes=1 << 22)) as store:
        store.position()  # Maps the shared state.
        monkeypatch.setattr(mmap, "mmap", limited)
        if maps:
            assert len(scan(store, "t", 0)) == 40
            return
        with pytest.raises(StoreUnavailableError) as failure:
            scan(store, "t", 0)
        monkeypatch.undo()
    assert failure.value.code == "READ_FAILED"
    assert "commitlog" in failure.value.message
    assert "spark.executor.pyspark.memory" in failure.value.remedy
    assert len(tried) == 2
    assert tried[1] < tried[0]
