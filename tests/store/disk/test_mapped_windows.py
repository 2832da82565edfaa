"""Only a window of the log is mapped at a time, however long the log is.

Spark's workers have little address space: mapping a third complete log file fails there.
"""

import mmap
from types import SimpleNamespace

import numpy as np
import pytest
from pyrocket import Store
from pyrocket.disk import file_queue
from pyrocket.index.queues import record_fetch, scanner
from pyrocket.log import record_walk
from pyrocket.tools.verify.verify import verify
from support.inner import inner
from support.stores import SMALL, batch, bodies, filled, numbered, reboot

WINDOW = 64 * 1024
LOG_FILE = 1024 * 1024
MAX = 64 * 1024 * 1024


@pytest.fixture
def maps(monkeypatch):
    """Record the lengths of all mappings of log files during the test."""
    lengths = []

    def recorded(descriptor, length, **how):
        lengths.append(length)
        return mmap.mmap(descriptor, length, **how)

    like = {name: getattr(mmap, name) for name in ("ACCESS_READ", "ALLOCATIONGRANULARITY")}
    monkeypatch.setattr(file_queue, "mmap", SimpleNamespace(mmap=recorded, **like))
    return lengths


@pytest.fixture
def long_log(path):
    """A store with messages of two alternating queues in half a log file, without a key index."""
    config = SMALL.with_sizes(log_file_bytes=LOG_FILE, queue_file_entries=10_000, key_index=False)
    with filled(path, 0, config=config) as store:
        store.topics.update("t", read_queues=2, write_queues=2)
        keys = [["k"]] * 2500
        store.append_batch(batch(numbered(2500), [0, 1] * 1250, keys=keys), topic="t")
    return path


def reader(path):
    return Store.open(path, read_only=True)


def scanned(path):
    with reader(path) as store:
        assert sum(map(len, bodies(store).values())) == 2500


def as_records(path):
    with reader(path) as store:
        pieces = inner(store).reader.records("t", 0, 0, 1250)
        assert sum(len(piece.records) for piece in pieces) == 1250


def walked(path):
    with reader(path) as store:
        log, end = inner(store).reader.log, inner(store).reader.log_end()
        assert sum(map(len, record_walk.walk(log, log.first_offset(), end))) == 2500


def looked_for(path):
    with reader(path) as store:
        assert len(store.lookup.query("t", "k", max_messages=3000)) == 2500


def picked_up(path):
    with reader(path) as store:
        entries = inner(store).reader.files.queues.get("t", 0).entries(0, 1250)
        places = entries["physical_offset"].astype(np.int64), entries["size"].astype(np.int64)
        assert len(record_fetch.read_scattered(inner(store).reader.log, *places).at) == 1250
        end = inner(store).reader.log_end()
        assert (record_fetch.sizes_at(inner(store).reader.log, places[0], end) == places[1]).all()


def verified(path):
    assert verify(path).messages == 2500


def recovered(path):
    reboot(path)
    Store.open(path).close()


OPERATIONS = [scanned, as_records, walked, looked_for, picked_up, verified, recovered]


@pytest.mark.parametrize("read", OPERATIONS)
def test_a_log_longer_than_a_window_is_mapped_window_by_window(long_log, maps, monkeypatch, read):
    read(long_log)
    assert max(maps) > 2 * WINDOW, "without a limit, larger windows are mapped"
    for module in (record_fetch, scanner, record_walk):
        monkeypatch.setattr(module, "WINDOW_BYTES", WINDOW)
    monkeypatch.setattr(file_queue, "KEPT_BYTES", WINDOW)
    monkeypatch.setattr(file_queue, "HUGE_PAGE_BYTES", mmap.ALLOCATIONGRANULARITY)
    maps.clear()
    read(long_log)
    assert WINDOW // 2 < max(maps) <= WINDOW + mmap.ALLOCATIONGRANULARITY


def test_a_window_has_64_mib_at_most():
    windows = (
        scanner.WINDOW_BYTES,
        record_fetch.WINDOW_BYTES,
        record_walk.WINDOW_BYTES,
        file_queue.KEPT_BYTES,
    )
    assert max(windows) <= MAX
    assert scanner.SLICE_BYTES <= scanner.WINDOW_BYTES


def test_a_place_without_a_record_has_no_size(long_log):
    with reader(long_log) as store:
        log, end = inner(store).reader.log, inner(store).reader.log_end()
        first = log.first_offset()
        places = np.array([-1, first, first + 1, first + 4, end - 4, end])
        sizes = record_fetch.sizes_at(log, places, end)
    assert sizes[1] > 0
    assert not np.delete(sizes, 1).any()
