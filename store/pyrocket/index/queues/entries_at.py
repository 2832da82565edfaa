"""Where single entries of a queue point."""

import numpy as np

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.queue_entry import PRE_BLANK_SIZE
from pyrocket.index.queues.consume_queue import ConsumeQueue

_NEAR = 512
_NOWHERE = -1


def log_offsets_at(queue: ConsumeQueue, offsets: Ints) -> Ints:
    """Return the log offsets in the entries at these queue offsets, which ascend from 0 on.

    -1 where there is no entry. Entries that are near each other are read together.
    """
    found = np.full(len(offsets), _NOWHERE, np.int64)
    for rows in np.split(np.arange(len(offsets)), np.flatnonzero(np.diff(offsets) > _NEAR) + 1):
        if not len(rows):
            continue
        first = int(offsets[rows[0]])
        entries = queue.entries(first, int(offsets[rows[-1]]) + 1)
        at = offsets[rows] - first
        there = at < len(entries)
        entries = entries[at[there]]
        is_entry = (entries["size"] > 0) & (entries["size"] != PRE_BLANK_SIZE)
        found[rows[there]] = np.where(is_entry, entries["physical_offset"], _NOWHERE)
    return found
