"""Searches for keys in one index file, with any items and any links between them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.index_file import HEADER_BYTES, SLOT_BYTES, Geometry
from pyrocket.index.keys.index_file import IndexFile
from pyrocket.index.keys.key_items import KeyItems
from pyrocket.index.keys.key_search import KeySearch, among
from support.stores import overwrite

GEOMETRY = Geometry(5, 64)
START = 1_700_000_000_000


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Create an index file with items of these hashes at offsets 100, 101, …, one per second."""

    def make_one(hashes):
        path = tmp_path_factory.mktemp("index") / "file"
        path.write_bytes(bytes(GEOMETRY.file_bytes))
        count = len(hashes)
        items = KeyItems(
            np.array(hashes, np.int32),
            100 + np.arange(count),
            START + 1000 * np.arange(count),
        )
        with IndexFile(path, GEOMETRY, writable=True) as file:
            file.put(items)
        return path

    return make_one


def parts(path, wanted, begin=0, end=2**63 - 1, **limits):
    with IndexFile(path, GEOMETRY) as file:
        found = KeySearch(file, GEOMETRY, np.unique(wanted).astype(np.int32), begin, end)
        for name, value in limits.items():
            setattr(found, name, value)
        for part in found.parts(file.header().count):
            yield from part.tolist()


def search(path, *given, **limits):
    return sorted({*parts(path, *given, **limits)})


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=60),
    st.sets(st.integers(0, 14), min_size=1),
    st.integers(-2000, 70_000),
    st.integers(-2000, 70_000),
    st.integers(0, 70),
)
def test_keys_are_found_in_chains_of_any_length(make, hashes, wanted, begin, end, max_followed):
    path = make(hashes)
    window = START + begin, START + end
    everything = [100 + at for at, each in enumerate(hashes) if each in wanted]
    assert search(path, [*wanted], max_followed=max_followed) == everything
    assert search(path, [*wanted], *window, max_followed=max_followed) == [
        place for place in everything if begin - 2000 < 1000 * (place - 100) <= end + 1000
    ]
    for each in wanted:
        found = list(dict.fromkeys(parts(path, [each], max_followed=max_followed)))
        assert found == [100 + at for at, one in enumerate(hashes) if one == each][::-1]


def test_a_search_that_stops_early_reads_little(make, monkeypatch):
    path, real, read = make([7] * 63), IndexFile.item, []
    monkeypatch.setattr(IndexFile, "item", lambda *given: (read.append(given[1]), real(*given))[1])
    found = parts(path, [7])
    assert (next(found), read) == (162, [63])
    assert [next(found) for _ in range(9)] == list(range(161, 152, -1))
    assert len(read) == 15


@pytest.mark.parametrize("begin_ms", [-(2**63), -(2**63) + 1, 2**63 - 1, 0])
@pytest.mark.parametrize("seconds", [-(2**31), -1, 2**31 - 1])
@pytest.mark.parametrize("max_followed", [0, 99])
def test_times_beyond_64_bits_are_compared_exactly(make, begin_ms, seconds, max_followed):
    """Only a corrupt header or item has such times."""
    limit = {"max_followed": max_followed}
    path = make([5, 5])
    overwrite(path, begin_ms.to_bytes(8, "big", signed=True), 0)
    overwrite(path, seconds.to_bytes(4, "big", signed=True), GEOMETRY.item_position(2) + 12)
    stored_ms = begin_ms + 1000 * seconds
    assert (101 in search(path, [5], 0, 2**63 - 1, **limit)) == (-2000 < stored_ms < 2**63 + 1000)
    assert (101 in search(path, [5], START, START + 5000, **limit)) is False
    assert 101 in search(path, [5], stored_ms, stored_ms, **limit)


def test_a_search_of_a_whole_file_in_blocks_finds_all_items(make):
    path = make([7] * 63)
    assert list(parts(path, [7], max_followed=0, block_items=10)) == list(range(162, 99, -1))


@pytest.mark.parametrize("head", [-1, 64, 2**31 - 1, 3])
def test_an_invalid_slot_is_treated_as_empty(make, head):
    path = make([5, 6, 7])
    place = HEADER_BYTES + SLOT_BYTES * (5 % GEOMETRY.slots)
    overwrite(path, head.to_bytes(4, "big", signed=True), place)
    assert search(path, [5, 6, 7]) == [101, 102]


def test_a_search_stops_where_a_chain_leads_to_newer_items(make):
    path = make([5, 10, 15])
    previous = GEOMETRY.item_position(3) + 16
    overwrite(path, (3).to_bytes(4, "big"), previous)
    assert search(path, [5, 10, 15]) == [102]


@given(st.lists(st.integers(0, 2**31 - 1), max_size=200), st.lists(st.integers(0, 2**31 - 1)))
def test_a_few_hashes_are_found_among_many(many, few):
    wanted = np.array([*few, *many[:3]], np.int32)
    hashes = np.array(many, np.int32)
    assert among(hashes, wanted).tolist() == [n for n, each in enumerate(many) if each in wanted]
