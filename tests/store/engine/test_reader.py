"""A reader's offsets, ranges and times, and its handling of corrupt queue entries."""

import shutil

import pyarrow as pa
import pytest
from pyrocket import SCAN_COLUMNS, PyrocketError, Store
from pyrocket.disk.shared_state import DISPATCHED, PUBLISHED
from pyrocket.errors import OffsetOutOfRangeError, StoreDamagedError
from support.slices import span_of
from support.stores import (
    SMALL,
    FakeClock,
    batch,
    bodies,
    filled,
    log_files,
    message,
    numbered,
    overwrite,
    queue_files,
    reboot,
    scan,
    words,
)


@pytest.fixture
def forty(path):
    with filled(path) as store:
        yield store


def test_read_returns_at_most_max_messages_from_an_offset(forty):
    assert [one.queue_offset for one in forty.read("t", 0, 5, 3)] == [5, 6, 7]
    assert [one.body for one in forty.read("t", 0, 38)] == numbered(2, first=38)
    assert len(forty.read("t", 0, 0)) == 32
    assert forty.read("t", 0, 40) == forty.read("t", 0, 0, 0) == []


@pytest.mark.parametrize("offset", [-1, 41, 2**62])
def test_offsets_outside_the_queue_are_rejected_with_its_range(forty, offset):
    with pytest.raises(OffsetOutOfRangeError, match="0 to 40") as caught:
        forty.read("t", 0, offset)
    assert caught.value.code == "OFFSET_OUT_OF_RANGE"


@pytest.mark.parametrize("queue_id", [-1, 1])
def test_missing_queues_are_reported(forty, queue_id):
    for ask in (forty.min_offset, forty.max_offset, lambda t, q: forty.read(t, q, 0)):
        with pytest.raises(PyrocketError, match=f"queue {queue_id}") as caught:
            ask("t", queue_id)
        assert caught.value.code == "QUEUE_NOT_FOUND"


def test_a_scan_returns_exactly_the_requested_range(forty):
    expected = numbered(40)
    for start in range(0, 41, 3):
        for end in range(start, 41, 7):
            parts = list(forty.scan("t", 0, start, end, ["body"]))
            assert [b for part in parts for b in part.column(0).to_pylist()] == expected[start:end]


def test_the_offset_of_a_time_is_the_first_message_stored_then_or_later(open_store, clock):
    store = open_store()
    store.topics.create("t", read_queues=1, write_queues=1)
    assert store.offset_by_time("t", 0, 0) == 0
    times = [0, 0, 5, 5, 9, 20, 20, 20, 21]
    start = clock.now
    for step in times:
        clock.now = start + step
        for _ in range(3):
            store.append(message())
    stored = [step for step in times for _ in range(3)]
    for asked in range(-1, 23):
        expected = sum(step < asked for step in stored)
        assert store.offset_by_time("t", 0, start + asked) == expected
    assert store.offset_by_time("t", 0, -(2**62)) == 0
    assert store.offset_by_time("t", 0, 2**62) == 27


def test_the_estimated_size_is_close_to_the_real_size(forty):
    assert span_of(forty, "t", 0, 0, 40).bytes == sum(
        one.store_size for one in forty.read("t", 0, 0, 40)
    )
    assert span_of(forty, "t", 0, 7, 7).bytes == 0


def test_published_messages_are_not_read_before_they_are_dispatched(forty, path):
    page = words(path)
    page[DISPATCHED] = forty.read("t", 0, 30)[0].physical_offset
    assert forty.max_offset("t", 0) == 30
    assert bodies(forty)[0] == numbered(30)
    page[DISPATCHED] = page[PUBLISHED]
    page.close()
    assert forty.max_offset("t", 0) == 40


def test_an_entry_that_points_to_another_message_is_an_error(forty, path):
    first = queue_files(path)[0]
    entry = first.read_bytes()[20:40]
    overwrite(first, entry, 0)
    for read in (lambda: forty.read("t", 0, 0), lambda: scan(forty, "t", 0)):
        with pytest.raises(StoreDamagedError, match=r"(queue|log) (0|offset)"):
            read()


@pytest.mark.parametrize(
    ("offset", "size"),
    [(2**60, 137), (-1, 137), (4096, 5), (4096, 2**31 - 2), (4100, 137), (8190, 137), (5000, -7)],
)
def test_invalid_queue_entries_are_reported(forty, path, offset, size):
    entry = offset.to_bytes(8, "big", signed=True) + size.to_bytes(4, "big", signed=True)
    overwrite(queue_files(path)[1], entry, 3 * 20)
    for read in (
        lambda: forty.read("t", 0, 12, 5),
        lambda: list(forty.scan("t", 0, 10, 20, ["body"])),
    ):
        with pytest.raises((StoreDamagedError, OffsetOutOfRangeError)):
            read()
    assert len(forty.read("t", 0, 0, 10)) == 10


def test_a_damaged_body_is_detected_if_crcs_are_verified(forty, path):
    at = forty.read("t", 0, 3)[0].physical_offset
    overwrite(log_files(path)[0], b"!", at - 4096 + 90)
    with pytest.raises(StoreDamagedError, match=r"offset 3 of queue 0.*checksum"):
        forty.read("t", 0, 3)
    with pytest.raises(StoreDamagedError, match=f"log offset {at}: checksum"):
        scan(forty, "t", 0)
    assert sum(part.num_rows for part in forty.scan("t", 0, 0, 40)) == 40


def test_offsets_in_a_deleted_log_file_are_out_of_range(forty, path):
    with_gone = forty.read("t", 0, 0)[0].physical_offset
    assert with_gone == 4096
    rows = forty.scan("t", 0, 0, 40)
    log_files(path)[0].unlink()
    minimum = forty.min_offset("t", 0)
    assert 0 < minimum < 40
    with pytest.raises(OffsetOutOfRangeError):
        list(rows)
    with pytest.raises(OffsetOutOfRangeError):
        forty.read("t", 0, 0)
    assert [row for row, _ in scan(forty, "t", 0)] == list(range(minimum, 40))


def test_an_unrecovered_store_is_read_up_to_the_end_of_its_queues(path):
    filled(path).close(clean=False)
    reboot(path)
    with Store.open(path, read_only=True) as reader:
        assert bodies(reader)[0] == numbered(40)
        before = reader.position()
        with Store.open(path) as writer:
            writer.append(message(b"more"))
            assert reader.position() != before
        assert reader.max_offset("t", 0) == 41


def test_a_reader_reads_the_new_store_after_its_directory_was_replaced(path):
    filled(path).close()
    with Store.open(path, read_only=True) as reader:
        assert reader.max_offset("t", 0) == 40
        shutil.rmtree(path)
        with Store.open(path, create=True, config=SMALL, clock=FakeClock()) as writer:
            writer.topics.create("t", read_queues=1, write_queues=1)
            writer.append_batch(batch([b"new"], 0), topic="t")
            assert bodies(reader) == {0: [b"new"]}


def test_columns_have_the_documented_types(forty):
    (part, *_) = forty.scan("t", 0, 0, 5, list(SCAN_COLUMNS))
    assert part.schema == pa.schema(list(SCAN_COLUMNS.items()))
    assert part.num_rows == 5
