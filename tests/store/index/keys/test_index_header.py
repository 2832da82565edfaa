"""One flipped bit in the header of an index file never hides a key, and is reported.

A file with wrong begin or end times in its header must be searched, and so must the files after a
file with a later end.
"""

import shutil
from dataclasses import replace
from itertools import product

import pytest
from pyrocket import Store
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.index_file import HEADER_BYTES, ITEM_BYTES, SLOT_BYTES
from pyrocket.index.keys.index_file import IndexFile, inspect
from pyrocket.tools.repair.run import repair
from pyrocket.tools.verify.verify import verify
from pyrocket.values.lookup import LookupRequest
from support.damage import index_files
from support.keyed import index_of
from support.stores import SMALL, FakeClock, batch, log_files, message, numbered, overwrite

COUNT, STEP = 100, 700
START = 1_700_000_000_000
ASKED = (0, 39, 40, 60, 79, 99)
"""Numbers of the first and last messages of the files, and of a message between them."""

SLOT_COUNT = range(32, 36)


def make(path, step=STEP):
    """Append messages k0, k1, …, four every `step` ms, for two full files and part of a third."""
    clock = FakeClock(START)
    with Store.open(path, create=True, config=SMALL, clock=clock) as store:
        store.topics.create("t", read_queues=1, write_queues=1)
        for first in range(0, COUNT, 4):
            keys = [[f"k{number}"] for number in range(first, first + 4)]
            store.append_batch(batch(numbered(4, 20, first), 0, keys=keys), topic="t")
            clock.now += step
    assert len(index_files(path)) == 3
    return path


def flip(path, file, byte, bit):
    name = index_files(path)[file]
    overwrite(name, bytes([name.read_bytes()[byte] ^ 1 << bit]), byte)
    return f"index/{name.name}"


def missed(store, step=STEP):
    """Return the keys that are not found, either without times or at exactly their store times."""
    wanted = LookupRequest(topics=["t"], keys=[f"k{number}" for number in range(COUNT)])
    found = len(store.lookup.locate(wanted))
    names = [] if found == COUNT else [f"{COUNT - found} of all"]
    for number in ASKED:
        at = START + number // 4 * step
        if len(store.lookup.query("t", f"k{number}")) != 1:
            names.append(f"k{number}")
        if len(store.lookup.query("t", f"k{number}", begin_ms=at, end_ms=at)) != 1:
            names.append(f"k{number} at {at}")
    return names


def missed_by_reader(path, step=STEP):
    """Return the keys that a new reader does not find; none if it reports a damaged index."""
    with Store.open(path, read_only=True) as reader:
        try:
            return missed(reader, step)
        except StoreDamagedError as error:
            reported = error.code == "KEY_INDEX_DAMAGED" and "pyrocket repair" in error.remedy
            return [] if reported else [str(error)]


@pytest.mark.parametrize(
    ("file", "place", "step", "bits"),
    [
        pytest.param(1, "store", STEP, range(8), marks=pytest.mark.heavy),
        pytest.param(2, "store", STEP, range(8), marks=pytest.mark.heavy),
        pytest.param(1, "copy", 0, (0, 7), marks=pytest.mark.heavy),
        (1, "store", STEP, (0,)),
        (2, "store", STEP, (7,)),
        (1, "copy", 0, (0,)),
    ],
)
def test_flipped_bit_of_a_header_never_hides_a_key_and_is_reported(
    tmp_path, file, place, step, bits
):
    """The number of used slots is not needed; it may be higher, as in older versions of RocketMQ.

    If all items have the same store time, wrong times cannot be detected.
    """
    path = make(tmp_path / "store", step)
    path = path if place == "store" else shutil.copytree(path, tmp_path / "copy")
    assert not missed_by_reader(path, step)
    # One bit of every fourth or eighth byte; the tests of the second and the third file alternate.
    every = 4 if place == "store" else 8
    places = range(HEADER_BYTES) if len(bits) > 1 else range(file % 2, HEADER_BYTES, every)
    for byte, bit in product(places, bits):
        name = flip(path, file, byte, bit)
        assert not missed_by_reader(path, step), (byte, bit)
        reported = {one.file for one in verify(path).findings}
        assert reported == {name} or (not reported and byte in SLOT_COUNT), (byte, bit)
        flip(path, file, byte, bit)
    assert not verify(path).findings


@pytest.mark.parametrize(("byte", "bit", "file"), [(0, 7, 1), (30, 4, 1), (12, 0, 2)])
def test_a_repair_or_an_appending_writer_fixes_the_header(tmp_path, byte, bit, file):
    path = make(tmp_path / "store")
    flip(path, file, byte, bit)
    shutil.copytree(path, tmp_path / "copy")
    with Store.open(path) as writer:
        assert not missed(writer)
        writer.append(message(b"next"))
        assert not missed(writer)
    assert not verify(path).findings
    repair(tmp_path / "copy")
    assert not verify(tmp_path / "copy").findings
    for each in path, tmp_path / "copy":
        assert not missed_by_reader(each)
        assert len(index_files(each)) == 3


def test_open_readers_and_writers_find_all_keys_after_a_damaged_header(tmp_path):
    path = make(tmp_path / "store")
    flip(path, 1, 30, 4)
    with Store.open(path) as writer, Store.open(path, read_only=True) as reader:
        for _ in range(2):
            assert not missed(writer)
            assert not missed(reader)
            writer.append(message(b"next"))


@pytest.mark.parametrize("bit", [0, 6])
def test_keys_are_found_if_the_begin_time_of_a_deleted_record_is_almost_a_second_wrong(
    tmp_path, bit
):
    """The exact time is unknown, so nothing is reported, but searches must find all messages."""
    path = make(tmp_path / "store", step=999)
    with Store.open(path) as store:
        store.clean(total_bytes=12_000)
    header = index_of(path).header(index_files(path)[0].name)
    assert header.begin_offset < int(log_files(path)[0].name) < header.end_offset
    flip(path, 0, 7 - bit // 8, bit % 8)
    with Store.open(path, read_only=True) as reader:
        first = reader.offsets("t")[0].minimum
        assert first < 70
        for number, one in enumerate(reader.read("t", 0, first, COUNT), first):
            at = one.store_timestamp
            assert len(reader.lookup.query("t", f"k{number}", begin_ms=at, end_ms=at)) == 1


def test_only_changed_headers_are_inspected_again(tmp_path, monkeypatch):
    index = index_of(make(tmp_path / "store"))
    known = list(index.files())
    assert len(known) == 3

    def none(*_):
        raise AssertionError

    monkeypatch.setattr(IndexFile, "items", none)
    assert list(index.files()) == known


def test_a_header_that_is_being_written_is_read_again(tmp_path, monkeypatch):
    index = index_of(make(tmp_path / "store"))
    real, read = IndexFile.header, []

    def torn(file):
        header = real(file)
        read.append(header)
        return replace(header, end_offset=header.end_offset + 1) if len(read) == 1 else header

    monkeypatch.setattr(IndexFile, "header", torn)
    name = index.names()[-1]
    with index.open(name) as file:
        assert not inspect(name, file).header_error
    assert len(read) == 2


def test_an_item_with_a_wrong_time_is_detected_and_repaired(tmp_path):
    path = make(tmp_path / "store")
    first_items = HEADER_BYTES + SMALL.index_slots * SLOT_BYTES
    flip(path, 1, first_items + 5 * ITEM_BYTES + 12, 1)
    report = verify(path)
    assert [one.code for one in report.findings] == ["KEY_INDEX_WRONG"]
    assert "1 items have times that differ from the log" in report.findings[0].what
    repair(path)
    assert verify(path).ok
