"""Of a message's copies only the last is pending, or none if the message was cancelled."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from pyrocket.formats.timer_entry import CANCELS, TIMER_ENTRY, slot_start
from pyrocket.services.delay.pending_timers import are_live

ROWS = st.tuples(st.integers(1, 3000), st.integers(0, 3), st.integers(CANCELS, 3))


def plainly(rows):
    """The expected result, computed entry by entry."""
    alive = []
    for due, key, copies in rows:
        same = [
            other for at, name, other in rows if name == key and slot_start(at) == slot_start(due)
        ]
        alive.append(copies != CANCELS and CANCELS not in same and copies == max(same))
    return alive


@given(st.lists(ROWS, max_size=40))
def test_entries_are_pending_unless_cancelled_or_replaced(rows):
    entries = np.zeros(len(rows), TIMER_ENTRY)
    for number, (due, key, copies) in enumerate(rows):
        entries[number]["due"], entries[number]["key"] = due, key
        entries[number]["copies"] = copies
    assert are_live(entries).tolist() == plainly(rows)
