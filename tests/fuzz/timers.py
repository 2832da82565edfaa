"""The harness of the timer index: its files and their tally."""

from contextlib import suppress

import numpy as np
from fuzz.files import NOW, new_layout
from pyrocket.disk.file_queue import file_name
from pyrocket.errors import PyrocketError, StoreDamagedError
from pyrocket.formats.timer_entry import ENTRY_BYTES, TIMER_ENTRY, seal
from pyrocket.services.delay.pending_timers import TimerProgress, read_pending, read_second
from pyrocket.services.delay.timer_index import HOUR_MS, TimerIndex, count_by_hour

COUNT = 3
START = NOW // HOUR_MS * HOUR_MS


def _known():
    entries = np.zeros(COUNT, TIMER_ENTRY)
    entries["due"] = START + 1 + np.arange(COUNT) * 1000
    entries["queue_offset"] = np.arange(COUNT)
    return seal(entries)


def timers(data):
    """Read the files of three timers and of the tally after a part of one file was overwritten:
    the result is all three timers or an error.

    The first byte of the input selects the file, and the second byte the position.
    """
    index, known = TimerIndex(new_layout("timers").timers), _known()
    index.add(known)
    index.tally.add(0, COUNT, count_by_hour(known), lambda: (0, 0))
    _change(index, data)
    with suppress(StoreDamagedError):
        found = read_pending(index, TimerProgress(COUNT, (0, 0))).pending
        assert found.tolist() == known.tolist()
        index.check(index.tally.read(COUNT), 0, whole=True)
    with suppress(PyrocketError):
        assert len(read_second(index, TimerProgress(COUNT, (0, 0)), START + 1).pending) == 1
    _go_on(index)


def _change(index, data):
    which, at = (data[0], data[1]) if len(data) > 1 else (0, 0)
    path = index.tally.path if which % 2 else index.tally.path.with_name(file_name(START))
    old = path.read_bytes()
    path.write_bytes(old[:at] + data[2:] + old[at + len(data) - 2 :] if data[2:] else old[:at])


def _go_on(index):
    """Check that entries added after the existing ones are found, and can be removed."""
    more = np.zeros(1, TIMER_ENTRY)
    more["due"], more["queue_offset"] = START + 5, COUNT
    index.add(seal(more))
    assert index.length(START) % ENTRY_BYTES == 0
    found = index.chosen(START, lambda part: part["queue_offset"] == COUNT)
    assert len(found)
    index.recount(COUNT + 1)
    index.check(index.tally.read(COUNT + 1), 0, whole=True)
    index.erase(lambda part: part["queue_offset"] == COUNT)
    assert not len(index.chosen(START, lambda part: part["queue_offset"] == COUNT))
