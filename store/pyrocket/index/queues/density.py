"""Checks that the queue offsets of the records in a log have no gaps.

After the durable end of a log there may be complete records that were written before a truncation.
Their queue offsets do not continue the queues, so queues cannot be rebuilt from them. RocketMQ does
not check for these records.
"""

from collections.abc import Callable

import numpy as np

from pyrocket.formats.arrow_buffers import Ints
from pyrocket.formats.record_fields import RecordFields
from pyrocket.index.queues.dispatcher import queue_rows

SYS_INNER_BATCH = 0xC0
"""5.x: one record that occupies several queue offsets."""


class OffsetContinuity:
    """Checks consecutive runs of a log; the first record of each queue may have any offset."""

    def __init__(self, first_offset: Callable[[str, int], int]) -> None:
        self._first_offset = first_offset
        self._next: dict[tuple[str, int], int] = {}

    def check(self, run: RecordFields) -> int:
        """Return the number of leading records of the next run that continue their queues.

        A queue continues with the next offset, or restarts at 0 if a broker deleted and recreated
        the topic. Records of a topic that pyrocket deleted are not checked.
        """
        good = len(run)
        for queue, rows in queue_rows(run):
            if (run.sys_flag[rows] & SYS_INNER_BATCH).any():
                self._next.pop(queue, None)
                continue
            good = min(good, self._first_bad(queue, rows, run.queue_offset[rows], len(run)))
        return good

    def _first_bad(self, queue: tuple[str, int], rows: Ints, offsets: Ints, none: int) -> int:
        begin = self._first_offset(*queue)
        alive = offsets >= begin
        rows, offsets = rows[alive], offsets[alive]
        if not len(rows):
            return none
        before = np.concatenate(([self._next.get(queue, offsets[0]) - 1], offsets[:-1]))
        sound = offsets == before + 1
        if not begin:
            sound |= offsets == 0
        self._next[queue] = int(offsets[-1]) + 1
        return none if sound.all() else int(rows[int(np.argmin(sound))])
