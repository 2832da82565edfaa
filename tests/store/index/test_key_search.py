"""Many keys in one index file: the same places as one key after the other finds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.key_table import HEADER_BYTES, SLOT_BYTES, Geometry
from pyrocket.index import key_search
from pyrocket.index.key_file import KeyFile
from pyrocket.index.key_items import KeyItems
from pyrocket.index.key_search import KeySearch, among
from stores import overwrite

GEOMETRY = Geometry(5, 64)
START = 1_700_000_000_000


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Makes an index file with items of these hashes, at offsets 100, 101, …, a second apart."""

    def make_one(hashes):
        path = tmp_path_factory.mktemp("index") / "file"
        path.write_bytes(bytes(GEOMETRY.file_bytes))
        count = len(hashes)
        items = KeyItems(
            np.array(hashes, np.int32),
            100 + np.arange(count),
            START + 1000 * np.arange(count),
        )
        with KeyFile(path, GEOMETRY, writable=True) as file:
            file.put(items)
        return path

    return make_one


def search(path, wanted, begin=0, end=2**63 - 1):
    with KeyFile(path, GEOMETRY) as file:
        found = KeySearch(file, GEOMETRY, np.unique(wanted).astype(np.int32), begin, end)
        return sorted(set(found.offsets(file.header().count).tolist()))


def one_by_one(path, wanted, begin=0, end=2**63 - 1):
    with KeyFile(path, GEOMETRY) as file:
        return sorted({at for each in wanted for at in file.candidates(each, begin, end)})


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=60),
    st.sets(st.integers(0, 14), min_size=1),
    st.integers(-2000, 70_000),
    st.integers(-2000, 70_000),
    st.booleans(),
)
def test_all_keys_together_are_found_as_each_alone(make, hashes, wanted, begin, end, whole):
    path = make(hashes)
    window = START + begin, START + end
    with pytest.MonkeyPatch.context() as patch:
        if whole:
            patch.setattr(key_search, "MOST_FOLLOWED", 0)
        assert search(path, [*wanted], *window) == one_by_one(path, wanted, *window)
        everything = [100 + at for at, each in enumerate(hashes) if each in wanted]
        assert search(path, [*wanted]) == everything


def test_blocks_of_a_file_are_looked_through_to_the_last_item(make, monkeypatch):
    path = make([7] * 63)
    monkeypatch.setattr(key_search, "MOST_FOLLOWED", 0)
    monkeypatch.setattr(key_search, "_BLOCK_ITEMS", 10)
    assert search(path, [7]) == list(range(100, 163))


@pytest.mark.parametrize("head", [-1, 64, 2**31 - 1, 3])
def test_a_slot_that_makes_no_sense_is_none(make, head):
    path = make([5, 6, 7])
    place = HEADER_BYTES + SLOT_BYTES * (5 % GEOMETRY.slots)
    overwrite(path, head.to_bytes(4, "big", signed=True), place)
    assert search(path, [5, 6, 7]) == [101, 102]


def test_a_chain_that_leads_forwards_ends(make):
    path = make([5, 10, 15])
    previous = GEOMETRY.item_position(3) + 16
    overwrite(path, (3).to_bytes(4, "big"), previous)
    assert search(path, [5, 10, 15]) == [102]


@given(st.lists(st.integers(0, 2**31 - 1), max_size=200), st.lists(st.integers(0, 2**31 - 1)))
def test_a_few_hashes_among_many(many, few):
    wanted = np.array([*few, *many[:3]], np.int32)
    hashes = np.array(many, np.int32)
    assert among(hashes, wanted).tolist() == [n for n, each in enumerate(many) if each in wanted]
