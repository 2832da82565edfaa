"""The timer index returns each entry once, from the file of its hour, and no torn entries."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.disk import io
from pyrocket.disk.shared_state import NEVER
from pyrocket.formats.timer_entry import ENTRY_BYTES, TIMER_ENTRY, seal, slot_start
from pyrocket.services.delay.timer_index import HOUR_MS, TimerIndex, are_after


def made(dues, first=0):
    entries = np.zeros(len(dues), TIMER_ENTRY)
    entries["due"], entries["queue_offset"] = dues, np.arange(first, first + len(dues))
    return seal(entries)


def held(index):
    parts = [part for start in index.starts() for part in index.parts(start)]
    return sorted(tuple(entry) for part in parts for entry in part.tolist())


@pytest.fixture
def index(tmp_path):
    return TimerIndex(tmp_path / "timers")


def test_entries_are_in_the_file_of_their_hour(index):
    entries = made([1, HOUR_MS, HOUR_MS + 1, 5 * HOUR_MS, 2])
    index.add(entries)
    assert index.starts() == [0, HOUR_MS, 4 * HOUR_MS]
    assert [index.length(start) // 48 for start in index.starts()] == [3, 1, 1]
    assert held(index) == sorted(map(tuple, entries.tolist()))


@given(st.integers(1, 10**13))
def test_all_due_times_of_a_second_belong_to_one_file(due):
    hour = (due - 1) // HOUR_MS
    assert slot_start(due) // HOUR_MS == hour
    assert (slot_start(due) + 999) // HOUR_MS == hour


def test_a_torn_end_is_overwritten(index, tmp_path):
    index.add(made([5]))
    (path,) = (tmp_path / "timers").iterdir()
    with path.open("ab") as file:
        file.write(b"torn")
    assert index.length(0) == ENTRY_BYTES
    assert len(held(index)) == 1
    index.add(made([6], first=1))
    assert len(held(index)) == 2
    assert path.stat().st_size == 96


def test_erase_removes_only_chosen_entries(index):
    index.add(made([1, 2, HOUR_MS * 2, HOUR_MS * 2 + 5]))
    assert index.erase(lambda part: part["queue_offset"] % 2 == 0) == 2
    assert [entry[1] for entry in held(index)] == [1, 3]
    assert index.erase(lambda part: part["queue_offset"] % 2 == 0) == 0


def test_the_first_due_time_is_the_earliest_after_the_cursor(index):
    assert index.first_due((0, 0)) == NEVER
    index.add(made([HOUR_MS * 9, 700, 700, 5]))
    assert index.first_due((0, 0)) == 5
    assert index.first_due((5, 3)) == 700
    assert index.first_due((700, 1)) == 700
    assert index.first_due((700, 2)) == HOUR_MS * 9
    assert index.first_due((HOUR_MS * 9, 0)) == NEVER


def test_remove_before_deletes_earlier_files(index):
    index.add(made([1, HOUR_MS, HOUR_MS + 1, 3 * HOUR_MS]))
    index.remove_before(HOUR_MS)
    assert index.starts() == [0, HOUR_MS, 2 * HOUR_MS]
    index.remove_before(HOUR_MS + 1)
    assert index.starts() == [HOUR_MS, 2 * HOUR_MS]
    index.clear()
    assert index.starts() == []
    assert index.is_there


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5))), st.integers(0, 6), st.integers(0, 6)
)
def test_the_mask_selects_the_entries_after_the_cursor(pairs, due, offset):
    entries = np.zeros(len(pairs), TIMER_ENTRY)
    for number, (at, place) in enumerate(pairs):
        entries[number]["due"], entries[number]["queue_offset"] = at, place
    assert are_after(entries, (due, offset)).tolist() == [pair > (due, offset) for pair in pairs]


def test_sync_flushes_all_files(index, tmp_path, monkeypatch):
    index.add(made([1, HOUR_MS + 1, 5 * HOUR_MS]))
    index.recount(3)
    synced, real = set(), io.sync

    def sync(descriptor):
        real(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(io, "sync", sync)
    index.sync()
    files = [*(tmp_path / "timers").iterdir()]
    assert len(files) == 4
    assert {path.stat().st_ino for path in files} <= synced
