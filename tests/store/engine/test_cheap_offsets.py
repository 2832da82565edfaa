"""Reading the offsets of many queues is cheap, and correct after changes by other processes."""

import os

import pytest
from pyrocket import QueueOffsets, Store
from pyrocket.disk import io
from support.stores import SMALL, batch, message, reboot

QUEUES = 70
"""More queues than there may be open queue files at the same time."""


@pytest.fixture
def path(tmp_path):
    """A topic with one message in each queue except the last, which is empty."""
    with Store.open(tmp_path / "store", create=True, config=SMALL) as store:
        store.topics.create("t", read_queues=QUEUES, write_queues=QUEUES)
        store.append_batch(batch([b"x"] * (QUEUES - 1), list(range(QUEUES - 1))), topic="t")
    return tmp_path / "store"


@pytest.fixture
def reader(path):
    with Store.open(path, read_only=True, config=SMALL) as reader:
        yield reader


def maxima(store):
    return [offsets.maximum for offsets in store.offsets("t").values()]


@pytest.fixture
def looks(monkeypatch):
    """Counts the calls that list folders, read files and open files."""
    counts = {"listdir": 0, "pread": 0, "open": 0}

    def counting(name):
        real = getattr(os, name)

        def counted(*arguments, **more):
            counts[name] += 1
            return real(*arguments, **more)

        return counted

    for name in counts:
        monkeypatch.setattr(os, name, counting(name))
    return counts


def test_offsets_of_known_queues_need_few_file_operations(path, reader, looks):
    with Store.open(path, config=SMALL) as writer:
        writer.append(message(queue_id=3))
        reader.offsets("t")
        writer.append(message(queue_id=3))
        looks.update(dict.fromkeys(looks, 0))
        assert maxima(reader)[:5] == [1, 1, 1, 3, 1]
        assert looks["listdir"] <= 4  # The folders of the log and of the empty queue.
        assert looks["pread"] <= QUEUES


def test_the_end_of_a_queue_is_found_after_any_number_of_appends(path, reader):
    assert maxima(reader)[0] == 1
    with Store.open(path, config=SMALL) as writer:
        for count in (5, 58, 1, 63, 64, 65, 200):
            writer.append_batch(batch([b"x"] * count, 0), topic="t")
            assert maxima(reader)[0] == writer.max_offset("t", 0)


def test_an_open_reader_detects_deleted_files(path, reader):
    with Store.open(path, config=SMALL) as writer:
        writer.append_batch(batch([b"x" * 300] * 60, 5), topic="t")
        assert reader.offsets("t")[5] == QueueOffsets(0, 61)
        report = writer.clean(total_bytes=3 * SMALL.log_file_bytes)
        assert report.removals
        assert reader.offsets("t") == writer.offsets("t")
        assert reader.offsets("t")[5].minimum > 0
        assert reader.offsets("t")[0] == QueueOffsets(1, 1)
        writer.append(message(queue_id=0))
        assert reader.offsets("t")[0] == QueueOffsets(1, 2)


def test_the_former_ends_of_deleted_queues_are_read_from_disk_once(path, reader, monkeypatch):
    reader.offsets("t")
    real = io.open_file

    def only_runs(opened, flags):
        return real(opened, flags) if "/consumequeue/" in str(opened) else pytest.fail(f"{opened}")

    monkeypatch.setattr(io, "open_file", only_runs)
    assert reader.offsets("t")[QUEUES - 1] == QueueOffsets(0, 0)


def test_without_a_valid_state_nothing_is_cached(path, reader):
    reader.offsets("t")
    reboot(path)
    assert maxima(reader) == [1] * (QUEUES - 1) + [0]
    with Store.open(path, config=SMALL) as writer:
        writer.append(message(queue_id=3))
    assert maxima(reader)[3] == 2
