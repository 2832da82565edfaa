"""The shared state: fields are atomic, and valid only for the store that they belong to."""

import shutil
import threading

import pytest
from pyrocket.disk import shared_state
from pyrocket.disk.shared_state import FAILED, PAGE_BYTES, PUBLISHED, RESERVED, SharedState

STORE = bytes(range(16))
LOCK = (123, 456)
NO_FIELDS = {"PAGE_BYTES", "STATE_FORMAT", "MAX_MOVES", "MAX_DELAY_LEVELS", "NEVER", "_FORMATS"}
NO_FIELDS |= {"_RECOVERING", "_LEVELS", "_SUMMED"}


@pytest.fixture
def place(tmp_path):
    SharedState.create(tmp_path / "state", tmp_path / "tmp")
    return tmp_path / "state"


@pytest.fixture
def page(place):
    one = SharedState(place, writable=True)
    one.validate_state(STORE, LOCK)
    yield one
    one.close()


def test_a_new_state_is_allocated_and_invalid(place):
    assert place.stat().st_size == PAGE_BYTES
    assert place.stat().st_blocks > 0
    assert not SharedState(place, writable=False).is_valid(STORE, LOCK)


def test_an_existing_state_is_never_replaced(page, place, tmp_path):
    page[PUBLISHED] = 77
    inode = place.stat().st_ino
    SharedState.create(place, tmp_path / "tmp")
    assert place.stat().st_ino == inode
    assert SharedState(place, writable=False)[PUBLISHED] == 77


def test_readers_see_the_fields_of_a_writer_and_cannot_change_them(page, place):
    reader = SharedState(place, writable=False)
    page[RESERVED] = -(2**63)
    assert reader[RESERVED] == -(2**63)
    with pytest.raises(TypeError):
        reader[RESERVED] = 1
    reader.close()


def test_the_state_is_valid_until_the_boot_the_store_or_the_lock_file_changes(page, monkeypatch):
    assert page.is_valid(STORE, LOCK)
    assert not page.is_valid(STORE[::-1], LOCK)
    assert not page.is_valid(STORE, (124, 456))
    assert not page.is_valid(STORE, (123, 457))
    with monkeypatch.context() as patch:
        patch.setattr(shared_state, "boot_id", lambda: bytes(16))
        assert not page.is_valid(STORE, LOCK)
    page.invalidate()
    assert not page.is_valid(STORE, LOCK)
    page[FAILED] = 1
    page.validate_state(STORE, LOCK)
    assert page.is_valid(STORE, LOCK)
    assert page[FAILED] == 0


def test_a_copied_state_is_not_valid(page, place, tmp_path):
    folder = tmp_path / "copy"
    folder.mkdir()
    copy = SharedState(shutil.copy(place, folder / place.name), writable=False)
    assert copy[PUBLISHED] == page[PUBLISHED]
    assert not copy.is_valid(STORE, LOCK)
    copy.close()


def test_the_state_detects_that_its_directory_was_replaced(page, place, tmp_path):
    assert page.is_file_at(place)
    assert not page.is_file_at(tmp_path / "elsewhere")
    shutil.copy(place, tmp_path / "copy")
    (tmp_path / "copy").replace(place)
    assert not page.is_file_at(place)


def test_readers_never_see_a_half_written_field(page, place):
    """Two values that differ in every byte are written as fast as possible."""
    values, torn, done = (0, -1), set(), threading.Event()
    reader = SharedState(place, writable=False)

    def watch():
        while not done.is_set():
            torn.add(reader[PUBLISHED])

    page[PUBLISHED] = 0
    thread = threading.Thread(target=watch)
    thread.start()
    for n in range(100_000):
        page[PUBLISHED] = values[n % 2]
    done.set()
    thread.join()
    reader.close()
    assert torn <= set(values)


def test_no_two_fields_have_the_same_place():
    numbers = {name: value for name, value in vars(shared_state).items() if type(value) is int}
    fields = [number for name, number in numbers.items() if name not in NO_FIELDS]
    assert len(fields) == len({*fields})
    assert all(0 < number < PAGE_BYTES // 8 for number in fields)
