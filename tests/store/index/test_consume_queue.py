"""One ConsumeQueue: finding its minimum and maximum offset in its files."""

import numpy as np
import pytest
from pyrocket.disk.file_queue import FileQueue
from pyrocket.errors import StoreDamagedError
from pyrocket.formats.queue_entry import build_entries
from pyrocket.index.queues.consume_queue import ConsumeQueue

PER_FILE = 10
ALL = 2**63 - 1


@pytest.fixture
def make(tmp_path):
    def queue():
        run = FileQueue(tmp_path / "q", PER_FILE * 20, tmp_path / "tmp")
        return ConsumeQueue("t", 0, run)

    return queue


def entries(first, count):
    """Entries of consecutive records of 100 bytes from log offset 4096 on."""
    offsets = 4096 + 100 * np.arange(first, first + count)
    return build_entries(offsets, np.full(count, 100), np.arange(first, first + count))


@pytest.mark.parametrize("count", [0, 9, 10, 11, 57])
def test_the_end_is_found_with_and_without_a_hint(make, count):
    writer = make()
    for at in range(count):
        writer.put(at, entries(at, 1), at)
        assert writer.max_offset(ALL) == at + 1
    assert make().max_offset(ALL) == count
    stale = make()
    stale._hint = 3
    assert stale.max_offset(ALL) == count


def test_the_end_before_a_log_offset_excludes_later_records(make):
    make().put(0, entries(0, 57), 0)
    queue = make()
    for bound in [*range(57), 56, 3, 40]:
        assert queue.max_offset(4096 + 100 * bound) == bound
        assert make().max_offset(4096 + 100 * bound) == bound


def test_the_minimum_offset_follows_the_start_of_the_log(make):
    queue = make()
    queue.put(0, entries(0, 57), 0)
    for lost in (0, 1, 30, 56, 57, 99):
        expected = min(lost, 57)
        assert queue.min_offset(4096 + 100 * lost, 57) == expected
        assert queue.min_offset(4096 + 100 * lost - 50, 57) == expected


def test_existing_entries_are_skipped_and_a_gap_is_an_error(make):
    queue = make()
    queue.put(0, entries(0, 15), 0)
    queue.put(5, entries(5, 20), 15)
    assert queue.max_offset(ALL) == 25
    assert (queue.entries(0, 25) == entries(0, 25)).all()
    with pytest.raises(StoreDamagedError) as caught:
        queue.put(27, entries(27, 1), 25)
    assert caught.value.code == "QUEUE_GAP"


@pytest.mark.parametrize("kept", [0, 1, 10, 31, 32])
def test_cut_keeps_the_entries_below_a_bound_and_zeroes_the_rest(make, kept):
    make().put(0, entries(0, 32), 0)
    assert make().cut(4096 + 100 * kept) == kept
    queue = make()
    assert queue.max_offset(ALL) == kept
    assert (queue.entries(0, kept) == entries(0, kept)).all()
    assert not queue.entries(kept, 40)["size"].any()
    assert len(queue.run.starts()) == -(-kept // PER_FILE)


@pytest.mark.parametrize("at", [12, 19, 20, 25, 31])
@pytest.mark.parametrize("damage", ["zero", "negative", "back", "ahead", "size"])
def test_cut_truncates_at_the_first_invalid_entry(make, at, damage):
    make().put(0, entries(0, 32), 0)
    bad = entries(at, 1)
    if damage == "zero":
        bad["size"] = 0
    elif damage == "negative":
        bad["physical_offset"] = -5
    elif damage == "back":
        bad["physical_offset"] = 4096
    elif damage == "ahead":
        bad["physical_offset"] = 10**9
    else:
        bad["size"] = 10**6
    make().run.write(at * 20, bad.tobytes())
    assert make().cut(4096 + 3200) == at
    assert make().max_offset(ALL) == at
