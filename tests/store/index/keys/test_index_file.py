"""One index file: appended batches, and searches in valid and corrupt files."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.disk import io
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.hashes import java_hash
from pyrocket.formats.index_file import ITEM, Geometry, key_hash
from pyrocket.index.keys.index_file import IndexFile
from pyrocket.index.keys.key_items import KeyItems
from pyrocket.index.keys.key_search import KeySearch
from support.java_index import JavaIndex
from support.stores import overwrite

# Few keys, so that slots collide. The first two have equal hashes, the last has the minimum hash.
WORDS = ("Aa", "BB", "k", "a longer word", "中文", "polygenelubricants", "")


def make(path, geometry):
    path.write_bytes(bytes(geometry.file_bytes))
    return IndexFile(path, geometry, writable=True)


def items(rows):
    """Convert rows of (key, offset, time) to columns."""
    hashes = [max(abs(java_hash(key)), 0) % 2**31 for key, _, _ in rows]
    return KeyItems(
        np.array(hashes, np.int32),
        np.array([offset for _, offset, _ in rows], np.int64),
        np.array([time for _, _, time in rows], np.int64),
    )


ROWS = st.lists(
    st.tuples(
        st.sampled_from([f"t#{word}" for word in WORDS] + ["polygenelubricants"]),
        st.integers(0, 2**60),
        st.integers(-5, 2**43),
    ),
    max_size=60,
)


@given(
    rows=ROWS,
    cuts=st.lists(st.integers(0, 60), max_size=4),
    slots=st.sampled_from([1, 2, 7, 1014, 1015, 3000]),
    most=st.sampled_from([2, 3, 20, 100]),
)
def test_batches_write_the_same_bytes_as_rocketmq(tmp_path_factory, rows, cuts, slots, most):
    java = JavaIndex(slots, most)
    file = java._last()
    taken = sum(file.put(*row) for row in rows)
    with make(tmp_path_factory.mktemp("index") / "f", Geometry(slots, most)) as ours:
        bounds = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})
        parts = itertools.pairwise(bounds)
        assert sum(ours.put(items(rows[first:last])) for first, last in parts) == taken
        assert ours.path.read_bytes() == bytes(file)


@pytest.fixture
def file(tmp_path):
    with make(tmp_path / "f", Geometry(16, 1000)) as one:
        yield one


def put(file, *keys, first=1000, step=100, time=1_000_000):
    rows = [(f"t#{key}", first + step * at, time + 1000 * at) for at, key in enumerate(keys)]
    assert file.put(items(rows)) == len(rows)


def found(file, key, begin=0, end=2**63 - 1):
    wanted = np.array([key_hash("t", key)])
    search = KeySearch(file, file.geometry, wanted, begin, end)
    return [offset for part in search.parts(file.header().count) for offset in part.tolist()]


def test_a_search_returns_messages_at_most_two_seconds_outside_its_time_range(file):
    """One second is the precision of items, the other the precision of the header."""
    put(file, *["k"] * 10)
    assert found(file, "k", 1_003_000, 1_005_000) == [1600, 1500, 1400, 1300, 1200]
    assert found(file, "k", 1_003_999, 1_004_001) == [1500, 1400, 1300, 1200]
    assert found(file, "k", 1_020_000) == []
    assert found(file, "k", 0, 998_999) == []


def test_the_first_item_of_a_file_after_another_is_found_at_its_own_time(tmp_path):
    """Its time is stored in seconds since the end of the previous file."""
    with make(tmp_path / "f", Geometry(16, 100)) as file:
        rows = [("t#k", 5000, 900_000)]
        header = (600_000).to_bytes(8, "big") * 2 + (4000).to_bytes(8, "big") * 2
        with file.path.open("r+b") as raw:
            raw.write(header)
        file.put(items(rows))
        assert file.items(1, 2)[0]["seconds"] == 300
        assert found(file, "k", 900_000, 900_000) == [5000]


def test_items_of_a_record_at_the_end_of_the_file_are_counted(file):
    put(file, "a")
    put(file, *"bcdefghijklmnopqrstuvwxyz" * 4, first=1100, step=0)
    assert file.trailing(1100) == 100
    assert file.trailing(1000) == 0
    put(file, "b", first=1200)
    assert file.trailing(1200) == 1
    assert file.trailing(1100) == 0


def set_item(file, number, **fields):
    item = np.array(file.items(number, number + 1)[0], ITEM)
    for name, value in fields.items():
        item[name] = value
    overwrite(file.path, item.tobytes(), file.geometry.item_position(number))


def set_slot(file, key, value):
    position = file.geometry.slot_position(key_hash("t", key) % file.geometry.slots)
    overwrite(file.path, value.to_bytes(4, "big", signed=True), position)


def test_a_slot_that_points_to_items_of_another_slot_is_not_followed(file):
    put(file, "k", "l")
    set_slot(file, "k", 2)
    assert found(file, "k") == []


def test_negative_offsets_are_never_returned(file):
    put(file, "k", "k")
    set_item(file, 2, physical_offset=-5)
    assert found(file, "k") == []


@pytest.mark.parametrize("length", [0, 39, 40, 20_103, 20_105])
def test_a_file_of_the_wrong_length_is_reported(tmp_path, length):
    assert Geometry(16, 1000).file_bytes == 20_104
    path = tmp_path / "20261121014518383"
    path.write_bytes(bytes(length))
    with pytest.raises(StoreDamagedError, match=path.name) as caught:
        IndexFile(path, Geometry(16, 1000))
    assert caught.value.code == "KEY_INDEX_DAMAGED"
    assert "index_slots" in caught.value.remedy


@pytest.mark.parametrize(("at", "data"), [(36, b"\xff"), (36, b"\0\0\x03\xe9"), (24, b"\x80")])
def test_an_invalid_header_is_reported(file, at, data):
    put(file, "k")
    overwrite(file.path, data, at)
    with pytest.raises(StoreDamagedError, match="header"):
        file.header()


def test_a_batch_writes_items_then_slots_then_the_header(file, monkeypatch):
    at, real = [], io.write_at

    def write(descriptor, data, offset):
        at.append((offset, len(data)))
        real(descriptor, data, offset)

    monkeypatch.setattr(io, "write_at", write)
    put(file, "k", "l", "m")
    assert at == [(file.geometry.item_position(1), 60), (40, 64), (0, 40)]


def test_slots_are_written_in_runs_of_pages(tmp_path, monkeypatch):
    """With many keys one run covers all pages; with few keys each run is a page."""
    geometry = Geometry(100_000, 400_000)
    with make(tmp_path / "f", geometry) as file:
        lengths, real = [], io.write_at
        monkeypatch.setattr(
            io,
            "write_at",
            lambda descriptor, data, at: (lengths.append(len(data)), real(descriptor, data, at)),
        )
        put(file, *(str(number) for number in range(50_000)))
        assert lengths == [50_000 * 20, 400_000, 40]
        lengths.clear()
        put(file, *(str(number) for number in range(10)), first=10**7)
        assert 3 <= len(lengths) <= 12
        assert max(lengths[1:-1]) <= 3 * 4096
        assert found(file, "7") == [10**7 + 700, 1700]
