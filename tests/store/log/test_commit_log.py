"""The placement of records: file boundaries, blank records, batches that span many files."""

import struct

import pytest
from pyrocket.errors import MessageError
from pyrocket.formats.record import BLANK_MAGIC
from support.stores import RECORD_BYTES, batch, bodies, log_files, message, numbered, scan

FILE = 4096
UNIQUE = 42  # UNIQ_KEY, its separators and 32 characters


def record_bytes(body_bytes):
    return RECORD_BYTES + len("t") + UNIQUE + body_bytes


def fill_to(store, left):
    """Append so that `left` bytes of the first log file are free."""
    taken = 0
    while FILE - taken - left > 2 * record_bytes(0) + 1000:
        store.append(message(b"f" * 500))
        taken += record_bytes(500)
    store.append(message(b"f" * (FILE - taken - left - record_bytes(0))))


def blank_at(path, file, position):
    return struct.unpack_from(">iI", log_files(path)[file].read_bytes(), position)


@pytest.mark.parametrize("left", [8, 133, 134, 141, 142, 143])
@pytest.mark.parametrize("as_batch", [False, True])
def test_a_record_is_placed_where_at_least_eight_bytes_of_its_file_stay_free(
    store, path, left, as_batch
):
    fill_to(store, left)
    before = len(bodies(store)[0])
    if as_batch:
        store.append_batch(batch([b"", b""], 0), topic="t")
        first, second = (one.physical_offset for one in store.read("t", 0, before))
    else:
        first, second = (store.append(message(b"")).physical_offset for _ in range(2))
    size = record_bytes(0)
    if size + 8 <= left:
        assert first == 2 * FILE - left
        left -= size
        assert second == (first + size if size + 8 <= left else 2 * FILE)
    else:
        assert (first, second) == (2 * FILE, 2 * FILE + size)
    if second >= 2 * FILE:
        assert blank_at(path, 0, FILE - left) == (left, BLANK_MAGIC)
    assert len(bodies(store)[0]) == before + 2


@pytest.mark.parametrize("as_batch", [False, True])
def test_largest_record_of_a_file_is_stored_and_one_byte_more_is_rejected(store, path, as_batch):
    most = FILE - 8 - record_bytes(0)
    send = {
        False: lambda size: store.append(message(b"m" * size)),
        True: lambda size: store.append_batch(batch([b"1", b"m" * size, b"3"], 0), topic="t"),
    }[as_batch]
    store.append(message(b"first"))
    send(most)
    files, before = log_files(path), bodies(store)
    position = store.position()
    with pytest.raises(MessageError, match=f"{record_bytes(most + 1)} bytes") as caught:
        send(most + 1)
    assert caught.value.code == "RECORD_TOO_LARGE"
    assert store.position() == position
    assert (log_files(path), bodies(store)) == (files, before)
    store.append(message(b"after"))
    assert bodies(store)[0][-1] == b"after"


@pytest.mark.parametrize("body_bytes", [0, 1228, 1908, 1909])
def test_batch_spreads_over_many_files(store, path, body_bytes):
    rows = [b"%03d" % n + b"." * body_bytes for n in range(30)]
    rows = [row[: max(body_bytes, 3)] for row in rows]
    store.append_batch(batch(rows, [n % 3 for n in range(30)]), topic="t")
    assert bodies(store) == {**{q: rows[q::3] for q in range(3)}, 3: []}
    per_file = (FILE - 8) // record_bytes(max(body_bytes, 3))
    assert len(log_files(path)) == -(-30 // per_file)
    assert {file.stat().st_size for file in log_files(path)} == {FILE}


def test_a_blank_record_fills_the_rest_of_a_file_of_any_size(open_store):
    """With bodies of increasing size, records end at every position of a file."""
    store = open_store()
    rows = [b"b" * (n % 97) for n in range(1500)]
    for first in range(0, 1500, 50):
        store.append_batch(batch(rows[first : first + 50], 0), topic="t")
    assert [body for _, body in scan(store, "t", 0)] == rows


def test_the_sizes_and_magic_codes_of_records_lead_from_start_to_end_of_the_log(store, path):
    """RocketMQ reads a log in this way."""
    store.append_batch(batch(numbered(60), 0), topic="t")
    found = 0
    for file in log_files(path):
        data, at = file.read_bytes(), 0
        while at < FILE:
            size, magic = struct.unpack_from(">iI", data, at)
            if magic == BLANK_MAGIC:
                assert size == FILE - at
                assert not data[at + 8 :].strip(b"\0")
                break
            if size == 0:
                assert file == log_files(path)[-1]
                assert not data[at:].strip(b"\0")
                break
            (offset,) = struct.unpack_from(">q", data, at + 28)
            assert offset == int(file.name) + at
            found, at = found + 1, at + size
    assert found == 60


def test_store_times_never_decrease_when_the_clock_is_set_back(open_store, clock):
    store, other = open_store(), open_store()
    start, times = clock.now, []
    for step in (0, 5, -100, 7, -(10**9), 8, 8):
        clock.now = start + step
        for one in (store, other):
            one.append(message())
    times = [one.store_timestamp - start for one in store.read("t", 0, 0)]
    assert times == [0, 0, 5, 5, 5, 5, 7, 7, 7, 7, 8, 8, 8, 8]
    store.close()
    other.close()
    clock.now = start - 50
    open_store().append(message())
    assert open_store().read("t", 0, 14)[0].store_timestamp - start == 8
